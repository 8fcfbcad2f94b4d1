// SPDX-License-Identifier: Apache-2.0
#include "core/program/spec.h"

#include <cstring>

#include "core/program/program.h"
#include "switchyard/op_table.h"

namespace switchyard {
namespace {

template <class T>
std::vector<T> list(std::span<const T> from) {
  return {from.begin(), from.end()};
}

template <class From>
std::vector<uint64_t> dims_of(const From& from) {
  return {from.dims.begin(), from.dims.begin() + from.rank};
}

ProgramSpec::Function spec_of(const Program& program, const Function& f) {
  ProgramSpec::Function out{std::string(f.name), {}, {}, list(f.inputs), list(f.outputs), list(f.weights),
                            list(f.states)};
  for (const Value& v : f.values) out.values.push_back({std::string(v.name), v.dtype, v.rows, v.width});
  for (const Op& op : f.ops) {
    out.ops.push_back({op.id, op.revision, list(op.attrs), list(op.inputs), list(op.weights), list(op.states),
                       list(op.outputs), std::string(op.name),
                       op.function == Op::kNoFunction ? "" : std::string(program.functions[op.function].name)});
  }
  return out;
}

}  // namespace

ProgramSpec spec_of(const Program& program) {
  ProgramSpec out;
  out.required_features.assign(program.required_features.begin(), program.required_features.end());
  for (const Function& f : program.functions) out.functions.push_back(spec_of(program, f));
  for (const Encoding& e : program.encodings) {
    out.encodings.push_back(
        {std::string(e.name), e.desc.bits, e.desc.group, e.desc.scale_dtype, e.desc.has_offset != 0, e.codes});
  }
  for (const Tensor& t : program.tensors) {
    ProgramSpec::Tensor& to = out.tensors.emplace_back();
    to.name = t.name;
    to.dtype = t.dtype;
    to.group = t.group;
    to.dims = dims_of(t);
    if (t.encoding != nullptr) to.encoding = t.encoding->name;
    for (const Segment& s : t.segments.subspan(1)) {
      to.packed.push_back({std::string(s.layout), s.layout_revision, s.bytes});
    }
  }
  for (const State& s : program.states) out.states.push_back({std::string(s.name), s.kind, s.dtype, dims_of(s)});
  out.architecture = program.architecture;
  out.context_length = program.context_length;
  out.eos_ids = list(program.eos_ids);
  out.source_config = program.source_config;
  out.quantization = program.quantization;
  out.metadata.assign(program.metadata.begin(), program.metadata.end());
  out.tokenizer_json = program.tokenizer_json;
  out.chat_template = program.chat_template;
  return out;
}

void truncate_attrs(std::vector<std::byte>& attrs, swy_op_id op, uint32_t revision) {
  const swy_op_spec* spec = swy_find_op(op, revision);
  if (spec == nullptr || attrs.size() <= spec->attrs_size) return;
  attrs.resize(spec->attrs_size);
  if (!attrs.empty()) std::memcpy(attrs.data(), &spec->attrs_size, sizeof spec->attrs_size);
}

}  // namespace switchyard
