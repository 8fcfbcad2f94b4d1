// SPDX-License-Identifier: Apache-2.0
// Program: a model as it lies in a `.swy` file. Plain structs over the mapped file; nothing of the weights is copied.
//
// A Program that `load` returned has been verified: every index is in range, every shape and attribute is what ops.h
// asks for, every segment lies inside the file and overlaps no other. Weight checksums are compared only by
// `verify_weights`. A loaded Program is immutable, and reading it is thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/os.h"
#include "core/base/status.h"
#include "core/program/id_ranges.h"
#include "switchyard/ops.h"

namespace switchyard {

// One stored form of a tensor. Layout "" is the canonical one of switchyard/weights.h, and each tensor's first segment;
// any other names a backend's packed layout.
struct Segment {
  std::string_view layout;
  uint32_t layout_revision = 0;
  uint64_t offset = 0;  // from the start of the file, a multiple of 64
  uint64_t bytes = 0;
  uint64_t checksum = 0;  // XXH3-64
};

// An encoding of weights as data.
struct Encoding {
  std::string_view name;  // "acme.nf4/1"; unique
  swy_encoding desc{};    // points to `name` and `codes`
  std::vector<float> codes;
};

// A weight: [width], [out, in] or [experts, out, in].
struct Tensor {
  std::string_view name;  // that of the checkpoint; unique
  swy_dtype dtype = 0;    // an encoding
  uint32_t group = 0;     // elements per scale; 0: one scale per row
  uint32_t rank = 0;      // 1..3
  std::array<uint64_t, 4> dims{1, 1, 1, 1};
  std::span<const Segment> segments;   // at least the canonical one
  const Encoding* encoding = nullptr;  // SWY_ENCODED: one of Program::encodings, and `group` is its group
};

struct State {
  std::string_view name;  // unique
  swy_state_kind kind = SWY_STATE_NONE;
  swy_dtype dtype = 0;                       // that of the canonical form; a session pool may keep it in another
  uint32_t rank = 0;                         // 1..4
  std::array<uint64_t, 4> dims{1, 1, 1, 1};  // of one slot, or of one token
};

// An activation [rows, width] of one function.
struct Value {
  std::string_view name;
  swy_dtype dtype = 0;
  swy_rows rows = SWY_ROWS_STEP;
  uint64_t width = 0;
};

// Indices of inputs and outputs are into Function::values, of weights into Program::tensors, of states into
// Program::states.
struct Op {
  static constexpr uint32_t kNoFunction = UINT32_MAX;

  swy_op_id id = 0;
  uint32_t revision = 0;
  std::span<const std::byte> attrs;  // the attribute struct of ops.h, aligned to 8 bytes; empty where the op has none
  std::span<const uint32_t> inputs;
  std::span<const uint32_t> weights;
  std::span<const uint32_t> states;
  std::span<const uint32_t> outputs;
  std::string_view name = {};       // SWY_OP_NAMED: "acme.gelu/1"; ends in NUL
  uint32_t function = kNoFunction;  // SWY_OP_NAMED: what does the same, in Program::functions

  // The attribute struct by value. `Attrs` must be the one that ops.h names for this op.
  template <class Attrs>
  Attrs attrs_as() const {
    Attrs out{};
    if (!attrs.empty()) std::memcpy(&out, attrs.data(), std::min(attrs.size(), sizeof out));
    return out;
  }
};

// Weights of i8, i4 and i4a that share a scale; besides these, 0 for a row.
inline constexpr uint32_t kWeightGroups[] = {16, 32, 64, 128};

inline constexpr std::string_view kMtpFunction = "mtp";

// Ops in an order in which they can run. Each value is defined once: by the caller (`inputs`) or by one op.
//
// A function that an op with a name refers to is called with the op's operands: its `inputs`, `weights`, `states` and
// `outputs` are the parameters, in the op's order, and equal the operands in type and shape. Weights that are no
// parameters are constants.
//
// A function `mtp` that no op refers to is the multi-token prediction layer (core/engine/mtp.h): its input is the row
// that the main function's head sees at a position, its tokens are those after the positions, and its outputs are
// logits and the layer's own row.
struct Function {
  std::string_view name;
  std::vector<Value> values;
  std::vector<Op> ops;
  std::span<const uint32_t> inputs;   // values that the caller supplies; none for a main function
  std::span<const uint32_t> outputs;  // for the main function the first is the logits, f32 [logit rows, vocab]
  std::span<const uint32_t> weights;  // parameters
  std::span<const uint32_t> states;   // likewise
};

struct Program {
  uint32_t schema_version = 0;
  std::vector<std::string_view> required_features;
  std::vector<Function> functions;  // the first is the main one
  std::vector<Tensor> tensors;
  std::vector<Segment> segments;  // of all tensors, in their order
  std::vector<Encoding> encodings;
  std::vector<State> states;

  std::string_view architecture;      // "qwen3_5_moe"
  uint64_t context_length = 0;        // tokens; 0: not said
  std::span<const uint32_t> eos_ids;  // tokens that end an answer
  std::string_view source_config;     // config.json of the checkpoint, as it was
  std::string_view quantization;      // as given to `convert`: "i4 group 32"
  std::vector<std::pair<std::string_view, std::string_view>> metadata;
  IdRanges mtp_shortlist;           // kShortlistKey of the metadata; empty: there is none
  std::string_view tokenizer_json;  // "" when the checkpoint had none
  std::string_view chat_template;   // "" when the checkpoint had none

  uint64_t flatbuffer_bytes = 0;
  std::shared_ptr<const MappedFile> file;  // what every view above points into

  Program() = default;
  Program(Program&&) =
      default;  // tensors point into `segments` and `encodings`, so that a copy would point into the original
  Program& operator=(Program&&) = default;

  // Maps and verifies a file. Errors: not_found, io; invalid_data for a file that is foreign, truncated or damaged, or
  // that breaks a rule; unsupported for one that is newer than this runtime. Each names the path.
  static Result<Program> load(Os& os, const std::string& path);

  // The same over a file that is already mapped, at an address aligned to 8 bytes.
  static Result<Program> parse(std::shared_ptr<const MappedFile> file);

  const Function& main() const { return functions.front(); }
  const Tensor* find_tensor(std::string_view name) const;  // NULL when there is none

  // The bytes of one stored form, inside the mapping.
  std::span<const std::byte> segment_bytes(const Segment& segment) const;
  // Gives its pages back to the system, until it is read again through segment_bytes.
  void release(const Segment& segment) const { file->release(segment.offset, segment.bytes); }
  // Those of the canonical form.
  std::span<const std::byte> segment_bytes(const Tensor& tensor) const { return segment_bytes(tensor.segments[0]); }

  // Called with the bytes done and the bytes in all; returning false stops with Code::cancelled.
  using Progress = std::function<bool(uint64_t done, uint64_t total)>;
  // Reads all weights and compares their checksums; gives the pages back as it goes. The error names the tensor.
  Status verify_weights(const Progress& progress = {}) const;
};

// "attention", "acme.gelu/1"; "#99" for an id that is not known.
std::string op_kind(const Op& op);
// "i4", "acme.nf4/1".
std::string encoding_name(const Tensor& tensor);

// The operand descriptions of the plugin ABI, canonical layout. `rows` is the row count of the bucket.
swy_tensor describe(const Tensor& tensor);
swy_tensor describe(const State& state);
swy_tensor describe(const Value& value, uint64_t rows);

}  // namespace switchyard
