// SPDX-License-Identifier: Apache-2.0
// Operands as device code sees them.
#pragma once

#include <cstdint>

#include "switchyard/plugin.h"
#include "switchyard/sdk/operands.hpp"

namespace gpu {

// A weight in its canonical encoding (weights.h), rows of `width` elements, as kernels read it.
//
// Rows are contiguous, so a warp reads one with 16 bytes per lane without gaps. Nothing is repacked: a file's segment
// is uploaded as it is.
struct Weight {
  const uint8_t* data;
  const uint16_t* scales;   // fp16 [rows, groups]; null for f32 and bf16
  const uint16_t* offsets;  // fp16 [rows, groups]; i4a only
  uint32_t rows;            // of all leading dims
  uint32_t width;
  uint32_t row_bytes;
  uint32_t groups;       // per row
  uint32_t group;        // elements in a full group
  uint32_t piece_shift;  // pieces of 16 bytes per group, as a power of two; 31: one group per row
  swy_dtype dtype;
};

Weight weight_of(const swy_tensor& tensor, const void* data);

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

  // By their names in the op table; null where the operation has no such operand.
  template <class T = float>
  T* input(swy::OperandName name) const {
    return static_cast<T*>(address_of(SWY_REF_INPUT, bindings.inputs, name));
  }
  template <class T = float>
  T* output(swy::OperandName name) const {
    return static_cast<T*>(address_of(SWY_REF_OUTPUT, bindings.outputs, name));
  }
  template <class T = float>
  T* state(swy::OperandName name) const {
    return static_cast<T*>(address_of(SWY_REF_STATE, bindings.states, name));
  }
  Weight weight(swy::OperandName name) const;  // {} where the operation has none
  // By place: of weights and outputs that are repeated.
  template <class T = float>
  T* output(uint32_t i) const {
    return static_cast<T*>(address(bindings.outputs[i]));
  }
  Weight weight(uint32_t i) const { return weight_of(*op.weights[i], address(bindings.weights[i])); }
  void* workspace() const { return address(bindings.workspace); }

 private:
  void* address_of(uint32_t list, const swy_binding* bound, swy::OperandName name) const;
  static void* address(const swy_binding& b);
};

}  // namespace gpu
