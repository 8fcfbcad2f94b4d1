// SPDX-License-Identifier: Apache-2.0
// Operands as shaders see them: addresses, and how to read a weight.
#pragma once

#include <cstdint>

#include "list.h"
#include "switchyard/sdk/operands.hpp"

namespace gpu {

Weight weight_of(const swy_tensor& tensor, uint64_t data);

// Whether rows are whole steps of 32 elements, and of quantized ones each `elements` (at most 32) have one scale.
bool readable_in_steps(const swy_tensor& tensor, uint32_t elements);
// Whether rows can be read in pieces of 16 bytes that have one scale each: groups of 16 only with 8 bits.
bool readable_in_pieces(const swy_tensor& tensor);
// SWY_UNSUPPORTED, and what is wrong with weight i of an operation for whoever reads it in that way.
swy_status refuse_rows(const swy_op& op, uint32_t i, swy_error* error);
bool is_quantized(swy_dtype dtype);

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
