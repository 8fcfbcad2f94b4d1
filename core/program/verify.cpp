// SPDX-License-Identifier: Apache-2.0
#include "core/program/verify.h"

#include <algorithm>
#include <array>

#include "core/base/printable.h"
#include "core/program/file_header.h"
#include "core/program/named_ops.h"
#include "core/program/op_check.h"
#include "core/program/op_names.h"
#include "switchyard/weights.h"

namespace switchyard {
namespace {

constexpr uint64_t kMaxNameBytes = 256;
constexpr uint64_t kMaxWidth = uint64_t{1} << 31;
constexpr uint64_t kMaxStateElements = uint64_t{1} << 40;
// Features that a program may require of this version; none yet.
constexpr std::array<std::string_view, 0> kKnownFeatures{};

// Names end up in messages and on terminals: printable ASCII, so that a file cannot send control codes there.
bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

Status bad(std::string message) { return Status(Code::invalid_data, std::move(message)); }

Status check_name(std::string_view what, size_t index, std::string_view name) {
  if (is_name(name)) return {};
  return bad(fmt::format("the name of {} {} is not 1..{} characters of printable ASCII", what, index, kMaxNameBytes));
}

// Names of one kind must differ, or a lookup by name would be a guess. Sorts indices, not names.
template <class T>
Status check_names(std::string_view what, const std::vector<T>& items) {
  std::vector<uint32_t> order(items.size());
  for (uint32_t i = 0; i < order.size(); ++i) {
    SWY_TRY(check_name(what, i, items[i].name));
    order[i] = i;
  }
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return items[a].name < items[b].name; });
  for (size_t i = 1; i < order.size(); ++i) {
    const std::string_view name = items[order[i]].name;
    if (name == items[order[i - 1]].name) return bad(fmt::format("two {}s are named '{}'", what, name));
  }
  return {};
}

Status check_features(const Program& program) {
  for (const std::string_view feature : program.required_features) {
    if (!is_name(feature)) return bad("a required feature has no readable name");
    if (std::find(kKnownFeatures.begin(), kKnownFeatures.end(), feature) == kKnownFeatures.end()) {
      return error(Code::unsupported,
                   "this program needs feature '{}', which this runtime does not have; update switchyard", feature);
    }
  }
  return {};
}

// The newest revision that a program may have; else any entry of the operation; NULL where it has none.
const swy_op_spec* newest_in_files(uint32_t id) {
  const swy_op_spec* found = swy_find_op(id, 0);
  for (const swy_op_spec& spec : swy_op_table) {
    if (spec.id == id && spec.in_files != 0) found = &spec;
  }
  return found;
}

Status check_revision(const Op& op) {
  if (op.id == SWY_OP_NAMED) return check_name(op);
  if (!op.name.empty() || op.function != Op::kNoFunction) {
    return bad(fmt::format("op {} has a name or a function; only ops of id {} have them", op_name(op.id),
                           uint32_t{SWY_OP_NAMED}));
  }
  const swy_op_spec* known = newest_in_files(op.id);
  if (known == nullptr) {
    return error(Code::unsupported, "this program needs op {}, which this runtime does not know; update switchyard",
                 op_name(op.id));
  }
  if (known->in_files == 0) {
    return bad(fmt::format(
        "op '{}' cannot be part of a program, which ends with its logits; the runtime adds it itself", known->name));
  }
  if (op.revision > known->revision) {
    return error(Code::unsupported,
                 "this program needs op '{}' revision {}; this runtime knows revision {}; update switchyard",
                 known->name, op.revision, known->revision);
  }
  if (op.revision == 0) return bad(fmt::format("op '{}' has revision 0; revisions count from 1", known->name));
  return {};
}

Status check_encoding(const Encoding& encoding) {
  const std::string name = printable(encoding.name);
  const uint32_t bits = encoding.desc.bits;
  if (encoding.name.find('\0') != std::string_view::npos) return bad(fmt::format("encoding '{}' has a NUL", name));
  if (bits >= 1 && bits <= 8 && encoding.codes.size() != size_t{1} << bits) {
    return bad(
        fmt::format("encoding '{}' has {} codes; {} bits have {}", name, encoding.codes.size(), bits, 1u << bits));
  }
  const char* flaw = swy_encoding_flaw(&encoding.desc);
  if (flaw == nullptr) return {};
  return bad(fmt::format("encoding '{}' ({} bits, groups of {}, scales of {}): {}", name, bits, encoding.desc.group,
                         dtype_name(encoding.desc.scale_dtype), flaw));
}

Status check_group(const Tensor& tensor) {
  if ((tensor.dtype == SWY_ENCODED) != (tensor.encoding != nullptr)) {
    return bad(fmt::format("tensor '{}' of {} {} an encoding", tensor.name, dtype_name(tensor.dtype),
                           tensor.encoding == nullptr ? "lacks" : "names"));
  }
  if (tensor.encoding != nullptr) {
    if (tensor.group == tensor.encoding->desc.group) return {};
    return bad(fmt::format("tensor '{}' has groups of {}; those of {} are {}", tensor.name, tensor.group,
                           tensor.encoding->name, tensor.encoding->desc.group));
  }
  if (tensor.dtype == SWY_MXFP4) {
    if (tensor.group == SWY_MXFP4_GROUP) return {};
    return bad(fmt::format("tensor '{}' of mxfp4 has groups of {}; they are always {}", tensor.name, tensor.group,
                           uint32_t{SWY_MXFP4_GROUP}));
  }
  const bool quantized = tensor.dtype == SWY_I8 || tensor.dtype == SWY_I4 || tensor.dtype == SWY_I4A;
  const uint32_t group = tensor.group;
  if (group == 0 || (quantized && std::ranges::count(kWeightGroups, group) != 0)) return {};
  return bad(
      fmt::format("tensor '{}' of {} has groups of {}; {}", tensor.name, dtype_name(tensor.dtype), group,
                  quantized ? "groups are 16, 32, 64, 128 or 0 for a row" : "only quantized tensors have groups"));
}

Status check_segments(const Tensor& tensor, uint64_t canonical_bytes) {
  if (tensor.segments.empty() || !tensor.segments[0].layout.empty()) {
    return bad(fmt::format("the first segment of tensor '{}' is not the canonical one", tensor.name));
  }
  if (tensor.segments[0].bytes != canonical_bytes) {
    return bad(fmt::format("the segment of tensor '{}' has {} bytes; its shape and encoding take {}", tensor.name,
                           tensor.segments[0].bytes, canonical_bytes));
  }
  for (size_t i = 1; i < tensor.segments.size(); ++i) {
    const Segment& segment = tensor.segments[i];
    if (!is_name(segment.layout)) return bad(fmt::format("tensor '{}': segment {} has no layout", tensor.name, i));
    if (segment.bytes == 0)
      return bad(fmt::format("tensor '{}': its {} segment is empty", tensor.name, segment.layout));
  }
  return {};
}

Status check_tensor(const Tensor& tensor) {
  if (tensor.rank < 1 || tensor.rank > 3) {
    return bad(fmt::format("tensor '{}' has {} dimensions; weights have 1 to 3", tensor.name, tensor.rank));
  }
  SWY_TRY(check_group(tensor));
  const swy_tensor shape = describe(tensor);
  swy_weight_planes planes;
  if (swy_weight_planes_of(&shape, &planes) != 0) {
    return bad(fmt::format("tensor '{}' is not a weight: {} [{}]", tensor.name, dtype_name(tensor.dtype),
                           fmt::join(std::span(tensor.dims).first(tensor.rank), ", ")));
  }
  return check_segments(tensor, planes.total_bytes);
}

// Inside the file, aligned, after the FlatBuffer, and no two sharing a byte.
Status check_places(const Program& program, uint64_t file_bytes) {
  const std::vector<Segment>& segments = program.segments;
  const uint64_t begin = kHeaderBytes + program.flatbuffer_bytes;
  std::vector<uint32_t> order(segments.size());
  for (uint32_t i = 0; i < order.size(); ++i) {
    const Segment& s = segments[i];
    order[i] = i;
    if (s.offset % kSegmentAlignment != 0) {
      return bad(fmt::format("a segment begins at byte {}, which is no multiple of {}", s.offset, kSegmentAlignment));
    }
    if (s.offset < begin || s.offset > file_bytes || s.bytes > file_bytes - s.offset) {
      return bad(fmt::format("a segment of {} bytes at byte {} lies outside the weights of the file (bytes {} to {})",
                             s.bytes, s.offset, begin, file_bytes));
    }
  }
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return segments[a].offset < segments[b].offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const Segment& before = segments[order[i - 1]];
    const Segment& after = segments[order[i]];
    if (before.bytes > after.offset - before.offset) {
      return bad(fmt::format("the segments at bytes {} and {} overlap", before.offset, after.offset));
    }
  }
  return {};
}

Status check_state(const State& state) {
  if (state.kind != SWY_STATE_SLOTTED && state.kind != SWY_STATE_PAGED) {
    return bad(fmt::format("state '{}' is of unknown kind {}", state.name, state.kind));
  }
  if (state.dtype != SWY_F32 && state.dtype != SWY_BF16 && state.dtype != SWY_I32) {
    return bad(
        fmt::format("state '{}' cannot be {}; states are f32, bf16 or i32", state.name, dtype_name(state.dtype)));
  }
  if (state.rank < 1 || state.rank > 4) {
    return bad(fmt::format("state '{}' has {} dimensions; states have 1 to 4", state.name, state.rank));
  }
  uint64_t elements = 1;
  for (const uint64_t dim : state.dims) {
    if (dim == 0 || dim > kMaxStateElements / elements) {
      return bad(fmt::format("state '{}' has an impossible shape [{}]", state.name, fmt::join(state.dims, ", ")));
    }
    elements *= dim;
  }
  return {};
}

Status check_value(size_t index, const Value& value) {
  SWY_TRY(check_name("value", index, value.name));
  if (value.dtype != SWY_F32 && value.dtype != SWY_BF16 && value.dtype != SWY_I32) {
    return bad(
        fmt::format("value '{}' cannot be {}; activations are f32, bf16 or i32", value.name, dtype_name(value.dtype)));
  }
  if (value.rows > SWY_ROWS_LOGITS) return bad(fmt::format("value '{}' has unknown rows {}", value.name, value.rows));
  if (value.width == 0 || value.width > kMaxWidth) {
    return bad(fmt::format("value '{}' has width {}; widths are 1 to {}", value.name, value.width, kMaxWidth));
  }
  return {};
}

// Walks through one function in order, and tracks which values are defined and which states are written.
class FunctionCheck {
 public:
  FunctionCheck(const Program& program, const Function& function)
      : program_(program),
        function_(function),
        defined_(function.values.size()),
        makers_(function.values.size()),
        written_(program.states.size()) {}

  Status run() {
    for (size_t i = 0; i < function_.values.size(); ++i) SWY_TRY(check_value(i, function_.values[i]));
    for (const uint32_t value : function_.inputs) SWY_TRY(define(value));
    for (size_t i = 0; i < function_.ops.size(); ++i) {
      const Op& op = function_.ops[i];
      SWY_TRY(check(op).in(fmt::format("op {} ({})", i, op_kind(op))));
    }
    for (const uint32_t value : function_.outputs) SWY_TRY(use(value));
    const auto missing = std::find(defined_.begin(), defined_.end(), false);
    if (missing == defined_.end()) return {};
    const Value& value = function_.values[static_cast<size_t>(missing - defined_.begin())];
    return bad(fmt::format("value '{}' is never defined", value.name));
  }

 private:
  Status check(const Op& op) {
    SWY_TRY(op.id == SWY_OP_NAMED ? check_operands(program_, function_, op)
                                  : check_op(program_, function_, op, *swy_find_op(op.id, op.revision), makers_));
    for (const uint32_t value : op.inputs) SWY_TRY(use(value));
    for (const uint32_t value : op.outputs) {
      SWY_TRY(define(value));
      makers_[value] = &op;
    }
    if (!writes_states(op)) return {};
    for (const uint32_t state : op.states) {
      if (written_[state]) return bad(fmt::format("state '{}' is written by two ops", program_.states[state].name));
      written_[state] = true;
    }
    return {};
  }

  Status define(uint32_t value) {
    SWY_TRY(in_range(value));
    if (defined_[value]) return bad(fmt::format("value '{}' is defined twice", function_.values[value].name));
    defined_[value] = true;
    return {};
  }

  Status use(uint32_t value) const {
    SWY_TRY(in_range(value));
    if (!defined_[value])
      return bad(fmt::format("value '{}' is used before it is defined", function_.values[value].name));
    return {};
  }

  Status in_range(uint32_t value) const {
    if (value < function_.values.size()) return {};
    return bad(fmt::format("value {} does not exist; there are {}", value, function_.values.size()));
  }

  const Program& program_;
  const Function& function_;
  std::vector<bool> defined_;      // by value
  std::vector<const Op*> makers_;  // likewise; NULL for those of the caller
  std::vector<bool> written_;      // by state
};

Status check_main(const Program& program) {
  if (program.functions.empty()) return bad("the program has no function");
  const Function& main = program.main();
  if (!main.inputs.empty()) return bad(fmt::format("the main function '{}' takes inputs; it gets none", main.name));
  if (main.outputs.empty())
    return bad(fmt::format("the main function '{}' has no output; it yields logits", main.name));
  const Value& logits = main.values[main.outputs[0]];
  if (logits.dtype != SWY_F32 || logits.rows != SWY_ROWS_LOGITS) {
    return bad(fmt::format("the main function's first output '{}' is not logits (f32, of the rows that are wanted)",
                           logits.name));
  }
  return {};
}

Status check_op_count(const Program& program) {
  size_t ops = 0;
  for (const Function& function : program.functions) ops += function.ops.size();
  if (ops <= kMaxOps) return {};
  return bad(fmt::format("the program has {} operations; at most {} are planned", ops, kMaxOps));
}

}  // namespace

Status verify_program(const Program& program, uint64_t file_bytes) {
  SWY_TRY(check_features(program));
  SWY_TRY(check_op_count(program));
  for (const Function& function : program.functions) {
    for (const Op& op : function.ops) SWY_TRY(check_revision(op));
  }
  SWY_TRY(check_names("encoding", program.encodings));
  for (const Encoding& encoding : program.encodings) SWY_TRY(check_encoding(encoding));
  SWY_TRY(check_names("tensor", program.tensors));
  SWY_TRY(check_names("state", program.states));
  SWY_TRY(check_names("function", program.functions));
  for (const Tensor& tensor : program.tensors) SWY_TRY(check_tensor(tensor));
  SWY_TRY(check_places(program, file_bytes));
  for (const State& state : program.states) SWY_TRY(check_state(state));
  for (const Function& function : program.functions) {
    SWY_TRY(FunctionCheck(program, function).run().in(fmt::format("function '{}'", function.name)));
  }
  SWY_TRY(check_calls(program));
  for (size_t i = 0; i < program.metadata.size(); ++i)
    SWY_TRY(check_name("metadata entry", i, program.metadata[i].first));
  return check_main(program);
}

}  // namespace switchyard
