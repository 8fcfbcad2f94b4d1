// SPDX-License-Identifier: Apache-2.0
// Operands as shaders see them: addresses, and how to read a weight.
#pragma once

#include <cstdint>

#include "list.h"

namespace gpu {

Weight weight_of(const swy_tensor& tensor, uint64_t data);

// Whether rows can be read in 16-byte pieces of whole groups.
bool readable_in_pieces(const swy_tensor& tensor);
bool is_quantized(swy_dtype dtype);

// The addresses of one operation's operands.
struct Operands {
  const swy_op& op;
  const swy_bindings& bindings;

  Span input(uint32_t i) const { return span(bindings.inputs[i]); }
  Span output(uint32_t i) const { return span(bindings.outputs[i]); }
  Span state(uint32_t i) const { return span(bindings.states[i]); }
  Span workspace() const { return span(bindings.workspace); }
  Weight weight(uint32_t i) const { return weight_of(*op.weights[i], span(bindings.weights[i]).address); }

 private:
  static Span span(const swy_binding& b);
};

}  // namespace gpu
