// SPDX-License-Identifier: Apache-2.0
#include "core/program/op_check.h"

#include "core/program/op_operands.h"

namespace switchyard {
namespace {

// Counts and indices: after this every operand can be looked at.
Status check_list(const char* kind, std::span<const uint32_t> list, Range count, size_t existing) {
  if (list.size() < count.least || list.size() > count.most) {
    const std::string wanted =
        count.least == count.most ? fmt::format("{}", count.least) : fmt::format("{} to {}", count.least, count.most);
    return error(Code::invalid_data, "it has {} {}s; {} are needed", list.size(), kind, wanted);
  }
  for (const uint32_t index : list) {
    if (index >= existing)
      return error(Code::invalid_data, "{} {} does not exist; there are {}", kind, index, existing);
  }
  return {};
}

Status check_attrs(const Op& op) {
  const uint32_t size = find_op(op.id)->attrs_size;
  uint32_t declared = size;
  if (op.attrs.size() >= sizeof declared) std::memcpy(&declared, op.attrs.data(), sizeof declared);
  if (op.attrs.size() != size || declared != size) {
    return error(Code::invalid_data, "its attributes have {} bytes and declare {}; revision {} has {}", op.attrs.size(),
                 declared, op.revision, size);
  }
  if (reinterpret_cast<uintptr_t>(op.attrs.data()) % 8 != 0) {
    return error(Code::invalid_data, "its attributes are not aligned to 8 bytes");
  }
  return {};
}

Status check_rows(const char* kind, const Function& function, std::span<const uint32_t> list, uint32_t wanted) {
  for (const uint32_t index : list) {
    const Value& value = function.values[index];
    if (value.rows != wanted) {
      return error(Code::invalid_data, "{} '{}' must have the rows of the {}", kind, value.name,
                   wanted == SWY_ROWS_STEP ? "step" : "logits");
    }
  }
  return {};
}

}  // namespace

Status check_op(const Program& program, const Function& function, const Op& op, std::span<const Op* const> makers) {
  const OpRule* rule = find_rule(op.id);
  if (rule == nullptr) return error(Code::internal, "op {} has no rule", op_name(op.id));
  SWY_TRY(check_attrs(op));
  SWY_TRY(check_list("input", op.inputs, rule->inputs, function.values.size()));
  SWY_TRY(check_list("weight", op.weights, rule->weights, program.tensors.size()));
  SWY_TRY(check_list("state", op.states, rule->states, program.states.size()));
  SWY_TRY(check_list("output", op.outputs, rule->outputs, function.values.size()));
  const swy_rows same = op.inputs.empty() ? swy_rows{SWY_ROWS_STEP} : function.values[op.inputs[0]].rows;
  const auto rows = [&](Rows wanted) { return wanted == Rows::same ? same : static_cast<uint32_t>(wanted); };
  SWY_TRY(check_rows("input", function, op.inputs, rows(rule->rows_in)));
  SWY_TRY(check_rows("output", function, op.outputs, rows(rule->rows_out)));
  Operands operands(program, function, op, makers);
  rule->check(operands);
  return operands.status();
}

bool belongs_in_files(swy_op_id id) { return find_rule(id) != nullptr; }

bool writes_states(swy_op_id id) { return id != SWY_OP_ATTEND; }

}  // namespace switchyard
