// SPDX-License-Identifier: Apache-2.0
// Operands as device code sees them.
#pragma once

#include <cstdint>

#include "switchyard/plugin.h"
#include "switchyard/sdk/operands.hpp"
#include "switchyard/sdk/weight_rows.hpp"

namespace gpu {

// A weight in its canonical encoding (weights.h), rows of `width` elements, as kernels read it.
//
// Rows are contiguous, so a warp reads one with 16 bytes per lane without gaps. Nothing is repacked: a file's segment
// is uploaded as it is.
struct Weight {
  const uint8_t* data;
  const uint16_t* scales;   // fp16 [rows, groups]; null for f32 and bf16. MXFP4: bytes, exponents [rows, groups]
  const uint16_t* offsets;  // fp16 [rows, groups]; i4a only
  uint32_t rows;            // of all leading dims
  uint32_t width;
  uint32_t row_bytes;
  uint32_t groups;       // per row
  uint32_t group;        // elements in a full group
  uint32_t piece_shift;  // pieces of 16 bytes per group, as a power of two; 31: one group per row
  uint32_t half_shift;   // 16 elements per group, as a power of two; 31: one group per row
  swy_dtype dtype;
};

Weight weight_of(const swy_tensor& tensor, const void* data);

using swy::is_quantized, swy::readable_in_pieces, swy::readable_in_steps, swy::refuse_rows;
// Whether the products of common/vector.cuh and common/tiles.cuh can read a weight's rows.
inline bool readable_by_vectors(const swy_tensor& t) { return readable_in_steps(t, 16); }

// A bias, or another vector that goes with a product's rows: f32 or bf16; null: there is none.
struct Bias {
  const void* data;
  swy_dtype dtype;
};

// act(gate, up) of ops.h; not clamped: silu(gate) * up.
struct Activation {
  bool clamped;
  float alpha, limit;
};
// Of the attributes of an operation that has one.
template <class Attrs>
Activation activation_of(const Attrs& a) {
  return {a.activation == SWY_ACT_CLAMPED, a.act_alpha, a.act_limit};
}

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
  Bias bias(swy::OperandName name) const;      // likewise
  // By place: of weights and outputs that are repeated.
  template <class T = float>
  T* output(uint32_t i) const {
    return static_cast<T*>(address(bindings.outputs[i]));
  }
  Weight weight(uint32_t i) const { return weight_of(*op.weights[i], address(bindings.weights[i])); }
  Bias bias(uint32_t i) const { return {address(bindings.weights[i]), op.weights[i]->dtype}; }
  void* workspace() const { return address(bindings.workspace); }

 private:
  void* address_of(uint32_t list, const swy_binding* bound, swy::OperandName name) const;
  static void* address(const swy_binding& b);
};

}  // namespace gpu
