// SPDX-License-Identifier: Apache-2.0
// ProgramSpec: the contents of a program file except the weights, in a form that owns its parts and can be built up
// piece by piece. The writer's input; the fields have the meaning of those in program.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "switchyard/ops.h"

namespace switchyard {

struct ProgramSpec {
  // A packed form of a tensor, beside the canonical one that each has.
  struct Packed {
    std::string layout;
    uint32_t layout_revision = 0;
    uint64_t bytes = 0;
  };
  struct Encoding {
    std::string name;
    uint32_t bits = 0;
    uint32_t group = 0;
    swy_dtype scale_dtype = 0;
    bool has_offset = false;
    std::vector<float> codes;
  };
  struct Tensor {
    std::string name;
    swy_dtype dtype = 0;
    uint32_t group = 0;
    std::vector<uint64_t> dims;
    std::vector<Packed> packed;
    std::string encoding = {};  // the name of one of `encodings`
  };
  struct State {
    std::string name;
    swy_state_kind kind = SWY_STATE_NONE;
    swy_dtype dtype = 0;
    std::vector<uint64_t> dims;
  };
  struct Value {
    std::string name;
    swy_dtype dtype = 0;
    swy_rows rows = SWY_ROWS_STEP;
    uint64_t width = 0;
  };
  struct Op {
    swy_op_id id = 0;
    uint32_t revision = 1;
    std::vector<std::byte> attrs;
    std::vector<uint32_t> inputs;
    std::vector<uint32_t> weights;
    std::vector<uint32_t> states;
    std::vector<uint32_t> outputs;
    std::string name = {};
    std::string function = {};  // its name
  };
  struct Function {
    std::string name;
    std::vector<Value> values;
    std::vector<Op> ops;
    std::vector<uint32_t> inputs;
    std::vector<uint32_t> outputs;
    std::vector<uint32_t> weights = {};
    std::vector<uint32_t> states = {};
  };

  std::vector<std::string> required_features;
  std::vector<Function> functions;
  std::vector<Tensor> tensors;
  std::vector<State> states;
  std::string architecture;
  uint64_t context_length = 0;
  std::vector<uint32_t> eos_ids;
  std::string source_config;
  std::string quantization;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::string tokenizer_json;
  std::string chat_template;
  std::vector<Encoding> encodings = {};
};

struct Program;

// The contents of a program as a spec, for writing it again.
ProgramSpec spec_of(const Program& program);

// The bytes of an attribute struct, for ProgramSpec::Op::attrs; sets its struct_size.
template <class Attrs>
std::vector<std::byte> attr_bytes(Attrs attrs) {
  attrs.struct_size = sizeof attrs;
  const auto bytes = std::as_bytes(std::span(&attrs, 1));
  return {bytes.begin(), bytes.end()};
}

// Cuts them to those of this revision of an operation. Of a revision that there is not: all.
void truncate_attrs(std::vector<std::byte>& attrs, swy_op_id op, uint32_t revision);

// The same for a revision of an operation whose struct later revisions have made longer.
template <class Attrs>
std::vector<std::byte> attr_bytes(Attrs attrs, swy_op_id op, uint32_t revision) {
  std::vector<std::byte> bytes = attr_bytes(attrs);
  truncate_attrs(bytes, op, revision);
  return bytes;
}

}  // namespace switchyard
