// SPDX-License-Identifier: Apache-2.0
#include "core/program/named_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/base/printable.h"
#include "core/base/saturate.h"
#include "core/program/op_names.h"

namespace switchyard {
namespace {

constexpr uint32_t kMaxDepth = 4;                       // of functions in functions
constexpr uint64_t kMaxAttrBytes = uint64_t{16} << 20;  // of all operations that the main function amounts to

template <class... Args>
Status bad(fmt::format_string<Args...> format, Args&&... args) {
  return error(Code::invalid_data, format, std::forward<Args>(args)...);
}

Status check_list(const char* kind, std::span<const uint32_t> list, size_t existing) {
  if (list.size() > SWY_MAX_NAMED_OPERANDS) {
    return bad("it has {} {}s; at most {} are taken", list.size(), kind, uint32_t{SWY_MAX_NAMED_OPERANDS});
  }
  for (const uint32_t index : list) {
    if (index >= existing) return bad("{} {} does not exist; there are {}", kind, index, existing);
  }
  return {};
}

// ---- an op and the function that does the same

bool same(const Value& a, const Value& b) { return a.dtype == b.dtype && a.rows == b.rows && a.width == b.width; }
bool same(const Tensor& a, const Tensor& b) {
  return a.dtype == b.dtype && a.group == b.group && a.encoding == b.encoding && a.rank == b.rank && a.dims == b.dims;
}
bool same(const State& a, const State& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.rank == b.rank && a.dims == b.dims;
}

std::string shape(const Value& v) {
  return fmt::format("{} [{}, {}]", dtype_name(v.dtype), v.rows == SWY_ROWS_STEP ? "rows" : "logit rows", v.width);
}
std::string shape(const Tensor& t) {
  return fmt::format("{} in groups of {} [{}]", encoding_name(t), t.group,
                     fmt::join(std::span(t.dims).first(t.rank), ", "));
}
std::string shape(const State& s) {
  return fmt::format("{} {} [{}]", s.kind == SWY_STATE_PAGED ? "paged" : "slotted", dtype_name(s.dtype),
                     fmt::join(std::span(s.dims).first(s.rank), ", "));
}

// Whether parameters and operands, both indices that exist, agree.
template <class T>
Status check_same(const char* kind, std::span<const uint32_t> parameters, std::span<const T> theirs,
                  std::span<const uint32_t> operands, std::span<const T> ours) {
  if (parameters.size() != operands.size()) {
    return bad("it has {} {}s, and the function takes {}", operands.size(), kind, parameters.size());
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    const T &is = ours[operands[i]], &wanted = theirs[parameters[i]];
    if (!same(is, wanted)) return bad("{} {} is {}, and the function takes {}", kind, i, shape(is), shape(wanted));
  }
  return {};
}

Status check_call(const Program& program, const Function& caller, const Op& op) {
  const Function& f = program.functions[op.function];
  const auto check = [&]() -> Status {
    using Values = std::span<const Value>;
    SWY_TRY(check_same("input", f.inputs, Values(f.values), op.inputs, Values(caller.values)));
    SWY_TRY(check_same("output", f.outputs, Values(f.values), op.outputs, Values(caller.values)));
    const std::span<const Tensor> tensors(program.tensors);
    SWY_TRY(check_same("weight", f.weights, tensors, op.weights, tensors));
    const std::span<const State> states(program.states);
    return check_same("state", f.states, states, op.states, states);
  };
  return check().in(fmt::format("op '{}', done by function '{}'", op.name, f.name));
}

// ---- a function that ops with names are done by

Status check_distinct(const char* kind, std::span<const uint32_t> list, size_t existing) {
  SWY_TRY(check_list(kind, list, existing));
  if (std::set<uint32_t>(list.begin(), list.end()).size() == list.size()) return {};
  return bad("a {} is listed twice among its parameters", kind);
}

// The values of the main function are its own, so that it never is one.
Status check_callee(const Program& program, const Function& f) {
  SWY_TRY(check_distinct("input", f.inputs, f.values.size()));
  SWY_TRY(check_distinct("output", f.outputs, f.values.size()));
  SWY_TRY(check_distinct("weight", f.weights, program.tensors.size()));
  SWY_TRY(check_distinct("state", f.states, program.states.size()));
  const auto listed = [](std::span<const uint32_t> list, uint32_t index) {
    return std::find(list.begin(), list.end(), index) != list.end();
  };
  for (const uint32_t v : f.outputs) {
    if (listed(f.inputs, v)) return bad("'{}' is an input and an output", f.values[v].name);
  }
  for (const Op& op : f.ops) {
    for (const uint32_t s : op.states) {
      if (!listed(f.states, s)) return bad("state '{}' is no parameter", program.states[s].name);
    }
  }
  return {};
}

// ---- what functions amount to

class Expansion {
 public:
  explicit Expansion(const Program& program) : program_(program), sizes_(program.functions.size()) {}

  Status run() {
    for (uint32_t f = 0; f < sizes_.size(); ++f) SWY_TRY(measure(f, 0));
    const Size& main = sizes_[0];
    if (main.ops > kMaxOps) {
      return bad("with its functions the program has {} operations; at most {} are planned", main.ops, kMaxOps);
    }
    if (main.attr_bytes > kMaxAttrBytes) {
      return bad("with its functions the program has {} bytes of attributes; at most {} are planned", main.attr_bytes,
                 kMaxAttrBytes);
    }
    return {};
  }

 private:
  enum class State { unseen, open, done };
  struct Size {
    State state = State::unseen;
    uint32_t depth = 0;  // of the functions below it
    uint64_t ops = 0, attr_bytes = 0;
  };

  // `above`: functions on the way here.
  Status measure(uint32_t index, uint32_t above) {
    const Function& f = program_.functions[index];
    Size& size = sizes_[index];
    if (size.state == State::open) return bad("function '{}' leads back to itself", f.name);
    if (size.state == State::unseen) {
      if (above > kMaxDepth) return too_deep(f);
      size.state = State::open;
      for (const Op& op : f.ops) SWY_TRY(add(op, above, size));
      size.state = State::done;
    }
    return above + size.depth > kMaxDepth ? too_deep(f) : Status();
  }

  Status add(const Op& op, uint32_t above, Size& size) {
    size.ops = saturating_add(size.ops, 1);
    size.attr_bytes = saturating_add(size.attr_bytes, op.attrs.size());
    if (op.id != SWY_OP_NAMED) return {};
    SWY_TRY(measure(op.function, above + 1));
    const Size& callee = sizes_[op.function];
    size.depth = std::max(size.depth, callee.depth + 1);
    size.ops = saturating_add(size.ops, callee.ops);
    size.attr_bytes = saturating_add(size.attr_bytes, callee.attr_bytes);
    return {};
  }

  static Status too_deep(const Function& f) {
    return bad("function '{}' is more than {} functions deep", f.name, kMaxDepth);
  }

  const Program& program_;
  std::vector<Size> sizes_;  // by function
};

}  // namespace

Status check_name(const Op& op) {
  if (op.name.find('\0') != std::string_view::npos || !swy_is_name(std::string(op.name).c_str())) {
    return bad("an op is named '{}'; a name is vendor.name/revision in at most {} of [a-z0-9._-]", printable(op.name),
               uint32_t{SWY_MAX_NAME});
  }
  if (op.revision != 1) return bad("op '{}' has revision {}; its name has the revision", op.name, op.revision);
  if (op.function == Op::kNoFunction) return bad("op '{}' has no function that does the same", op.name);
  if (op.function == 0) return bad("op '{}' is done by the main function; another one is needed", op.name);
  if (op.attrs.size() > SWY_MAX_NAMED_ATTRS) {
    return bad("op '{}' has {} bytes of attributes; at most {} are taken", op.name, op.attrs.size(),
               uint32_t{SWY_MAX_NAMED_ATTRS});
  }
  if (reinterpret_cast<uintptr_t>(op.attrs.data()) % 8 != 0) {
    return bad("the attributes of op '{}' are not aligned to 8 bytes", op.name);
  }
  return {};
}

Status check_operands(const Program& program, const Function& function, const Op& op) {
  SWY_TRY(check_list("input", op.inputs, function.values.size()));
  SWY_TRY(check_list("weight", op.weights, program.tensors.size()));
  SWY_TRY(check_list("state", op.states, program.states.size()));
  return check_list("output", op.outputs, function.values.size());
}

Status check_calls(const Program& program) {
  std::set<uint32_t> callees;
  for (const Function& f : program.functions) {
    for (const Op& op : f.ops) {
      if (op.id == SWY_OP_NAMED) callees.insert(op.function);
    }
  }
  if (callees.empty()) return {};
  for (const uint32_t f : callees) {
    const std::string what = fmt::format("function '{}'", program.functions[f].name);
    SWY_TRY(check_callee(program, program.functions[f]).in(what));
  }
  for (const Function& f : program.functions) {
    for (const Op& op : f.ops) {
      if (op.id == SWY_OP_NAMED) SWY_TRY(check_call(program, f, op).in(fmt::format("function '{}'", f.name)));
    }
  }
  return Expansion(program).run();
}

}  // namespace switchyard
