// SPDX-License-Identifier: Apache-2.0
// Fuzzes the program loader with whole files: once as they are, and once under a header that fits them.
#include "tests/fuzz/program_input.h"

namespace {

using namespace switchyard;  // NOLINT(google-build-using-namespace)

// Uses a loaded program: every view is read, every index followed.
uint64_t use(const Program& program) {
  uint64_t seen = program.verify_weights().ok() ? 1 : 0;
  for (const Tensor& tensor : program.tensors) {
    seen += describe(tensor).dims[0] + program.segment_bytes(tensor).size();
    seen += program.find_tensor(tensor.name) == &tensor ? 0 : 1;
  }
  for (const Encoding& e : program.encodings) seen += e.codes.size() + std::strlen(e.desc.name);
  for (const State& state : program.states) seen += describe(state).rank;
  for (const Function& function : program.functions) {
    for (const Op& op : function.ops) {
      for (const uint32_t i : op.inputs) seen += describe(function.values[i], 1).dims[1];
      for (const uint32_t i : op.outputs) seen += function.values[i].name.size();
      if (op.id == SWY_OP_NAMED) seen += program.functions[op.function].ops.size() + op_kind(op).size();
      for (const uint32_t i : op.weights) seen += program.tensors[i].dims[0];
      for (const uint32_t i : op.states) seen += program.states[i].dims[0];
      for (const std::byte b : op.attrs) seen += static_cast<uint64_t>(b);
    }
  }
  for (const std::string_view text : {program.tokenizer_json, program.chat_template, program.source_config}) {
    seen += static_cast<uint64_t>(std::count(text.begin(), text.end(), 'a'));
  }
  return seen;
}

void load(const Result<Program>& program) {
  if (program.ok()) {
    volatile uint64_t sink = use(*program);
    (void)sink;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  load(Program::parse(std::make_shared<testing::Input>(std::vector<std::byte>(input.begin(), input.end()))));
  load(testing::parse_sealed(input));
  return 0;
}
