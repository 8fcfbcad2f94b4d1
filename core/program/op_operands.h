// SPDX-License-Identifier: Apache-2.0
// One op under examination: the vocabulary in which op_rules.cpp states what ops.h asks of each.
#pragma once

#include <cmath>
#include <initializer_list>
#include <span>

#include "core/program/op_names.h"
#include "core/program/program.h"

namespace switchyard {

inline constexpr uint32_t kFloat = SWY_DTYPE_BIT(SWY_F32) | SWY_DTYPE_BIT(SWY_BF16);
inline constexpr uint32_t kF32 = SWY_DTYPE_BIT(SWY_F32);
inline constexpr uint32_t kI32 = SWY_DTYPE_BIT(SWY_I32);
inline constexpr uint32_t kEncoded =
    kFloat | SWY_DTYPE_BIT(SWY_I8) | SWY_DTYPE_BIT(SWY_I4) | SWY_DTYPE_BIT(SWY_I4A) | SWY_DTYPE_BIT(SWY_ENCODED);
inline constexpr uint32_t kMaxCount =
    1u << 20;  // of heads, dims and widths in attributes: no product of three overflows

// One op under examination. Every check is skipped once one has failed, so that a rule reads as a list of facts.
class Operands {
 public:
  Operands(const Program& program, const Function& function, const Op& op, std::span<const Op* const> makers)
      : program_(program), function_(function), op_(op), makers_(makers) {}

  const Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }
  const Op& op() const { return op_; }
  template <class Attrs>
  Attrs attrs() const {
    return op_.attrs_as<Attrs>();
  }

  template <class... Args>
  void require(bool holds, fmt::format_string<Args...> format, Args&&... args) {
    if (ok() && !holds) status_ = error(Code::invalid_data, format, std::forward<Args>(args)...);
  }
  // Attribute ranges.
  void count(const char* name, uint64_t value) {
    require(value >= 1 && value <= kMaxCount, "{} is {}; it must be 1 to {}", name, value, kMaxCount);
  }
  void epsilon(const char* name, float value) {
    require(std::isfinite(value) && value >= 0 && value < 1, "{} is {}; it must be at least 0 and below 1", name,
            value);
  }
  void finite(const char* name, float value) {
    require(std::isfinite(value), "{} is {}; it must be finite", name, value);
  }
  void positive(const char* name, float value) {
    require(std::isfinite(value) && value > 0, "{} is {}; it must be above 0", name, value);
  }

  const Value& in(size_t i) const { return function_.values[op_.inputs[i]]; }
  const Value& out(size_t i) const { return function_.values[op_.outputs[i]]; }
  const Tensor& weight(size_t i) const { return program_.tensors[op_.weights[i]]; }
  // The ROUTER_TOPK whose expert ids input i is; NULL when it is anything else.
  const Op* router(size_t i) const {
    const Op* maker = makers_[op_.inputs[i]];
    return maker != nullptr && maker->id == SWY_OP_ROUTER_TOPK && maker->outputs[0] == op_.inputs[i] ? maker : nullptr;
  }

  void input(size_t i, uint32_t dtypes, uint64_t width) { value("input", i, in(i), dtypes, width); }
  void output(size_t i, uint32_t dtypes, uint64_t width) { value("output", i, out(i), dtypes, width); }
  void weight(size_t i, uint32_t dtypes, std::initializer_list<uint64_t> dims) {
    const Tensor& t = weight(i);
    require((SWY_DTYPE_BIT(t.dtype) & dtypes) != 0, "weight {} ('{}') cannot be {}", i, t.name, encoding_name(t));
    shape("weight", i, t.name, t.rank, t.dims, dims);
  }
  void state(size_t i, swy_state_kind kind, uint32_t dtypes, std::initializer_list<uint64_t> dims) {
    const State& s = program_.states[op_.states[i]];
    require(s.kind == kind, "state {} ('{}') must be {}", i, s.name, kind == SWY_STATE_PAGED ? "paged" : "slotted");
    require((SWY_DTYPE_BIT(s.dtype) & dtypes) != 0, "state {} ('{}') cannot be {}", i, s.name, dtype_name(s.dtype));
    shape("state", i, s.name, s.rank, s.dims, dims);
  }

 private:
  void value(const char* kind, size_t i, const Value& v, uint32_t dtypes, uint64_t width) {
    require((SWY_DTYPE_BIT(v.dtype) & dtypes) != 0, "{} {} ('{}') cannot be {}", kind, i, v.name, dtype_name(v.dtype));
    require(v.width == width, "{} {} ('{}') has width {}; {} is needed", kind, i, v.name, v.width, width);
  }
  void shape(const char* kind, size_t i, std::string_view name, uint32_t rank, const std::array<uint64_t, 4>& dims,
             std::initializer_list<uint64_t> wanted) {
    const auto have = std::span(dims).first(rank);
    require(std::equal(have.begin(), have.end(), wanted.begin(), wanted.end()), "{} {} ('{}') is [{}]; [{}] is needed",
            kind, i, name, fmt::join(have, ", "), fmt::join(wanted, ", "));
  }

  const Program& program_;
  const Function& function_;
  const Op& op_;
  std::span<const Op* const> makers_;
  Status status_;
};

// How many operands of a kind an op takes.
struct Range {
  size_t least, most;
};

// Which rows the inputs and the outputs follow. `same`: any, but all alike.
enum class Rows : uint32_t { step = SWY_ROWS_STEP, logits = SWY_ROWS_LOGITS, same };

// The requirements of ops.h on one op: operand counts, rows, and a function that checks the rest once the operands
// exist.
struct OpRule {
  swy_op_id id;
  Range inputs, weights, states, outputs;
  Rows rows_in, rows_out;
  void (*check)(Operands&);
};

// NULL for an id that is not known, and for the operations that only the runtime adds: those that sample.
const OpRule* find_rule(swy_op_id id);

}  // namespace switchyard
