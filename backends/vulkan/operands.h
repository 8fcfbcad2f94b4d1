// SPDX-License-Identifier: Apache-2.0
// Operands as shaders see them: addresses, and how to read a weight.
#pragma once

#include <cstdint>

#include "list.h"
#include "switchyard/sdk/operands.hpp"
#include "switchyard/sdk/weight_rows.hpp"

namespace gpu {

Weight weight_of(const swy_tensor& tensor, uint64_t data);

using swy::is_quantized, swy::readable_in_pieces, swy::readable_in_steps, swy::refuse_rows;

// The addresses of one operation's operands.
struct Operands {
  const swy_op& op;
  const swy_bindings& bindings;

  // By their names in the op table; {} where the operation has no such operand.
  Span input(swy::OperandName name) const { return span_of(SWY_REF_INPUT, bindings.inputs, name); }
  Span output(swy::OperandName name) const { return span_of(SWY_REF_OUTPUT, bindings.outputs, name); }
  Span state(swy::OperandName name) const { return span_of(SWY_REF_STATE, bindings.states, name); }
  Weight weight(swy::OperandName name) const;
  // By place: of weights and outputs that are repeated.
  Weight weight(uint32_t i) const { return weight_of(*op.weights[i], span(bindings.weights[i]).address); }
  Span output(uint32_t i) const { return span(bindings.outputs[i]); }
  Span workspace() const { return span(bindings.workspace); }

 private:
  Span span_of(uint32_t list, const swy_binding* bound, swy::OperandName name) const;
  static Span span(const swy_binding& b);
};

}  // namespace gpu
