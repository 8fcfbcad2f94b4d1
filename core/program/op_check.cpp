// SPDX-License-Identifier: Apache-2.0
#include "core/program/op_check.h"

#include <array>
#include <bit>
#include <cmath>

#include "core/program/op_names.h"
#include "core/program/shape.h"

namespace switchyard {
namespace {

constexpr std::array<std::string_view, 4> kListNames = {"input", "weight", "state", "output"};  // by SWY_REF_*
constexpr std::string_view kExpertIds = "expert_ids";

class OpCheck {
 public:
  OpCheck(const Program& program, const Function& function, const Op& op, const swy_op_spec& spec,
          std::span<const Op* const> makers)
      : program_(program),
        function_(function),
        op_(op),
        spec_(spec),
        makers_(makers),
        names_(spec, op.attrs),
        lists_{op.inputs, op.weights, op.states, op.outputs} {}

  Status run() {
    SWY_TRY(check_attrs());
    for (const swy_attr_spec& field : std::span(spec_.attrs, spec_.attr_count)) SWY_TRY(check_field(field));
    for (uint32_t list = 0; list < lists_.size(); ++list) SWY_TRY(check_list(list));
    const swy_rows same = op_.inputs.empty() ? swy_rows{SWY_ROWS_STEP} : function_.values[op_.inputs[0]].rows;
    SWY_TRY(check_rows(SWY_REF_INPUT, spec_.rows_in == SWY_ROWS_SAME ? same : spec_.rows_in));
    SWY_TRY(check_rows(SWY_REF_OUTPUT, spec_.rows_out == SWY_ROWS_SAME ? same : spec_.rows_out));
    return check_operands();
  }

 private:
  template <class... Args>
  static Status bad(fmt::format_string<Args...> format, Args&&... args) {
    return error(Code::invalid_data, format, std::forward<Args>(args)...);
  }

  // ---- attributes

  Status check_attrs() const {
    const uint32_t size = spec_.attrs_size;
    uint32_t declared = size;
    if (op_.attrs.size() >= sizeof declared) std::memcpy(&declared, op_.attrs.data(), sizeof declared);
    if (op_.attrs.size() != size || declared != size) {
      return bad("its attributes have {} bytes and declare {}; revision {} has {}", op_.attrs.size(), declared,
                 op_.revision, size);
    }
    if (reinterpret_cast<uintptr_t>(op_.attrs.data()) % 8 != 0) {
      return bad("its attributes are not aligned to 8 bytes");
    }
    return {};
  }

  uint32_t word(uint32_t offset) const { return swy_attr_word(op_.attrs.data(), offset); }

  // "16 (head_dim)", or a number.
  static std::string with_name(uint64_t value, std::string_view expression) {
    return whole_name(expression).empty() ? fmt::format("{}", value) : fmt::format("{} ({})", value, expression);
  }

  Status check_field(const swy_attr_spec& field) const {
    if (field.kind != SWY_ATTR_U32) return check_float(field);
    const uint64_t value = word(field.offset);
    const auto of = [&](const char* expression) { return evaluate(expression, names_).value_or(0); };
    if (const uint64_t most = of(field.most); value < field.least || value > most) {
      return bad("{} is {}; it must be {} to {}", field.name, value, field.least, with_name(most, field.most));
    }
    if (field.multiple_of != nullptr) {
      const uint64_t unit = of(field.multiple_of);
      if (unit == 0 || value % unit != 0) {
        return bad("{} is {}; it must be a multiple of {}", field.name, value, with_name(unit, field.multiple_of));
      }
    }
    if (field.divides != nullptr) {
      const uint64_t whole = of(field.divides);
      if (value == 0 || whole % value != 0) {
        return bad("{} is {}; it must divide {}", field.name, value, with_name(whole, field.divides));
      }
    }
    return {};
  }

  Status check_float(const swy_attr_spec& field) const {
    const float value = std::bit_cast<float>(word(field.offset));
    if (field.kind == SWY_ATTR_EPSILON && !(value >= 0 && value < 1)) {
      return bad("{} is {}; it must be at least 0 and below 1", field.name, value);
    }
    if (field.kind == SWY_ATTR_POSITIVE && !(std::isfinite(value) && value > 0)) {
      return bad("{} is {}; it must be above 0 and finite", field.name, value);
    }
    if (!std::isfinite(value)) return bad("{} is {}; it must be finite", field.name, value);
    return {};
  }

  // ---- counts and indices: after these every operand can be looked at

  size_t existing(uint32_t list) const {
    if (list == SWY_REF_WEIGHT) return program_.tensors.size();
    return list == SWY_REF_STATE ? program_.states.size() : function_.values.size();
  }

  Status check_list(uint32_t list) {
    const size_t size = lists_[list].size();
    size_t fixed = 0, given = 0, repeated = 0, most = 0;
    std::vector<std::string_view> wanted;
    std::vector<std::string> conditions;
    for (const swy_operand_spec& o : operands(list)) {
      const std::string_view field = condition(o);
      if (!field.empty()) {
        std::string condition = fmt::format("{} {}", field, word(o.when));
        if (conditions.empty() || conditions.back() != condition) conditions.push_back(std::move(condition));
        if (word(o.when) == 0) continue;
      }
      wanted.push_back(o.name);
      ++(o.when == SWY_GIVEN ? given : o.most > 1 ? repeated : fixed);
      most = std::max<size_t>(most, o.most);
    }
    const size_t rest = size - fixed;
    const bool fits = size >= fixed && (repeated == 0 ? rest == 0 || rest == given
                                                      : rest % repeated == 0 && rest > 0 && rest <= repeated * most);
    if (!fits) {
      std::string count = fmt::format("{}", fixed);
      if (repeated != 0) count = fmt::format("{} to {}", fixed + repeated, fixed + repeated * most);
      if (given != 0) count += fmt::format(" or {}", fixed + given);
      const std::string names = wanted.empty() ? "" : fmt::format(" ({})", fmt::join(wanted, ", "));
      if (conditions.empty()) {
        return bad("it has {} {}s; {} are needed{}", size, kListNames[list], count, names);
      }
      return bad("{} needs {} {}s{}; there are {}", fmt::join(conditions, ", "), count, kListNames[list], names, size);
    }
    for (const uint32_t index : lists_[list]) {
      if (index < existing(list)) continue;
      return bad("{} {} does not exist; there are {}", kListNames[list], index, existing(list));
    }
    return repeated == 0 ? Status() : check_repetitions(list, rest / repeated);
  }

  // Repeated operands of all lists are as many as the outputs.
  Status check_repetitions(uint32_t list, size_t count) const {
    if (count == op_.outputs.size()) return {};
    return bad("{} {}s need as many outputs; there are {}", count, kListNames[list], op_.outputs.size());
  }

  Status check_rows(uint32_t list, swy_rows wanted) const {
    for (const uint32_t index : lists_[list]) {
      const Value& value = function_.values[index];
      if (value.rows == wanted) continue;
      return bad("{} '{}' must have the rows of the {}", kListNames[list], value.name,
                 wanted == SWY_ROWS_STEP ? "step" : "logits");
    }
    return {};
  }

  // ---- types and shapes

  std::vector<std::reference_wrapper<const swy_operand_spec>> operands(uint32_t list) const {
    std::vector<std::reference_wrapper<const swy_operand_spec>> out;
    for (const swy_operand_spec& o : std::span(spec_.operands, spec_.operand_count)) {
      if (o.list == list) out.emplace_back(o);
    }
    return out;
  }

  // The field that decides whether an operand is there; empty: none.
  std::string_view condition(const swy_operand_spec& operand) const {
    if (operand.when == SWY_ALWAYS || operand.when == SWY_GIVEN) return {};
    for (const swy_attr_spec& field : std::span(spec_.attrs, spec_.attr_count)) {
      if (field.offset == operand.when) return field.name;
    }
    return "?";
  }

  // In the order of the entry: the first operand that has a free name gives it its number.
  Status check_operands() {
    std::array<uint32_t, 4> places{};  // by list
    for (const swy_operand_spec& o : std::span(spec_.operands, spec_.operand_count)) {
      const std::span<const uint32_t> list = lists_[o.list];
      uint32_t& place = places[o.list];
      const uint32_t count = swy_operand_places(&o, op_.attrs.data(), place, static_cast<uint32_t>(list.size()),
                                                static_cast<uint32_t>(op_.outputs.size()));
      for (uint32_t i = 0; i < count; ++i) SWY_TRY(check_operand({o, i}, list[place + i]));
      place += count;
    }
    return {};
  }

  struct Operand {
    const swy_operand_spec& spec;
    uint32_t repetition;
  };

  // "weight 'w[1]' ('layers.0.qkv')"
  static std::string which(const Operand& o, std::string_view name) {
    const std::string each = o.spec.most > 1 ? fmt::format("[{}]", o.repetition) : "";
    return fmt::format("{} '{}{}' ('{}')", kListNames[o.spec.list], o.spec.name, each, name);
  }

  Status check_operand(const Operand& o, uint32_t index) {
    if (o.spec.list == SWY_REF_WEIGHT) {
      const Tensor& t = program_.tensors[index];
      if (!allows(o, t.dtype)) return bad("{} cannot be {}", which(o, t.name), encoding_name(t));
      return check_shape(o, t.name, std::span(t.dims).first(t.rank));
    }
    if (o.spec.list == SWY_REF_STATE) {
      const State& s = program_.states[index];
      if (s.kind != o.spec.state) {
        return bad("{} must be {}", which(o, s.name), o.spec.state == SWY_STATE_PAGED ? "paged" : "slotted");
      }
      if (!allows(o, s.dtype)) return bad("{} cannot be {}", which(o, s.name), dtype_name(s.dtype));
      return check_shape(o, s.name, std::span(s.dims).first(s.rank));
    }
    const Value& v = function_.values[index];
    if (!allows(o, v.dtype)) return bad("{} cannot be {}", which(o, v.name), dtype_name(v.dtype));
    SWY_TRY(check_shape(o, v.name, std::span(&v.width, 1)));
    return o.spec.list == SWY_REF_INPUT && o.spec.name == kExpertIds ? check_routing(o, index) : Status();
  }

  static bool allows(const Operand& o, swy_dtype dtype) { return (SWY_DTYPE_BIT(dtype) & o.spec.dtypes) != 0; }

  Status check_shape(const Operand& o, std::string_view name, std::span<const uint64_t> dims) {
    const std::vector<std::string_view> shape = dimensions_of(o.spec.shape);
    bool fits = dims.size() == shape.size();
    for (size_t d = 0; fits && d < shape.size(); ++d) {
      const auto value = evaluate(shape[d], names_, o.repetition);
      if (!value && !whole_name(shape[d]).empty()) {
        names_.bind(shape[d], o.repetition, dims[d]);
      } else {
        fits = value == dims[d];
      }
    }
    if (fits) return {};
    std::vector<std::string> wanted;
    for (const std::string_view dimension : shape) {
      const auto value = evaluate(dimension, names_, o.repetition);
      wanted.push_back(value ? fmt::format("{}", *value) : std::string(dimension));
    }
    if (o.spec.list == SWY_REF_INPUT || o.spec.list == SWY_REF_OUTPUT) {
      return bad("{} has width {}; {} is needed", which(o, name), dims[0], wanted[0]);
    }
    return bad("{} is [{}]; [{}] is needed", which(o, name), fmt::join(dims, ", "), fmt::join(wanted, ", "));
  }

  // Ids of experts index memory: they must come from a router over as many experts.
  Status check_routing(const Operand& o, uint32_t value) const {
    const std::string_view name = function_.values[value].name;
    const Op* maker = makers_[value];
    if (maker == nullptr || maker->id != SWY_OP_ROUTER_TOPK || maker->outputs[0] != value) {
      return bad("{} must be the expert ids of a router_topk", which(o, name));
    }
    const uint32_t theirs = maker->attrs_as<swy_moe_attrs>().experts, ours = op_.attrs_as<swy_moe_attrs>().experts;
    if (theirs == ours) return {};
    return bad("{} holds ids of {} experts; there are {} here", which(o, name), theirs, ours);
  }

  const Program& program_;
  const Function& function_;
  const Op& op_;
  const swy_op_spec& spec_;
  std::span<const Op* const> makers_;
  ShapeNames names_;
  std::array<std::span<const uint32_t>, 4> lists_;  // by SWY_REF_*
};

}  // namespace

Status check_op(const Program& program, const Function& function, const Op& op, const swy_op_spec& spec,
                std::span<const Op* const> makers) {
  return OpCheck(program, function, op, spec, makers).run();
}

bool writes_states(const Op& op) {
  const swy_op_spec* spec = swy_find_op(op.id, op.revision);
  if (spec == nullptr) return true;
  bool only_read = false;
  for (const swy_operand_spec& o : std::span(spec->operands, spec->operand_count)) {
    only_read = only_read || o.only_read != 0;
  }
  return !only_read;
}

}  // namespace switchyard
