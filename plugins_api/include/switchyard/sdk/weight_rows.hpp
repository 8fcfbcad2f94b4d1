// SPDX-License-Identifier: Apache-2.0
// C++ SDK: which rows of a canonical weight a kernel can read several elements at a time. Rows lie without gaps, in
// steps of 32 elements; what differs is how many elements share a scale.
#pragma once

#include "switchyard/sdk/error.hpp"

#pragma GCC visibility push(hidden)  // so that two plugins with this code share none of it

namespace swy {

inline bool is_quantized(swy_dtype dtype) {
  return dtype == SWY_I8 || dtype == SWY_I4 || dtype == SWY_I4A || dtype == SWY_MXFP4;
}

// Whether rows are whole steps of 32 elements, and of quantized ones each `elements` (at most 32) have one scale.
inline bool readable_in_steps(const swy_tensor& t, uint32_t elements) {
  constexpr uint64_t kMostWidth = 1 << 20;
  const uint64_t width = t.dims[t.rank - 1];
  if (width % 32 != 0 || width > kMostWidth) return false;
  if (!is_quantized(t.dtype) || t.group == 0 || t.group >= width) return t.group == 0 || t.group % elements == 0;
  return t.group % elements == 0 && (t.group & (t.group - 1)) == 0;
}

// Whether rows can be read in pieces of 16 bytes that have one scale each: groups of 16 only with 8 bits.
inline bool readable_in_pieces(const swy_tensor& t) { return readable_in_steps(t, t.dtype == SWY_I8 ? 16 : 32); }

// SWY_UNSUPPORTED, and what is wrong with weight i of an operation for whoever reads it in one of these ways.
inline swy_status refuse_rows(const swy_op& op, uint32_t i, swy_error* error) {
  const swy_tensor& t = *op.weights[i];
  if (readable_in_steps(t, 1)) {
    return fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "weight %u has groups of %u, which are too small", i,
                t.group);
  }
  return fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
              "weight %u has rows of %llu; they must be a multiple of 32, with groups of a power of two", i,
              static_cast<unsigned long long>(t.dims[t.rank - 1]));
}

}  // namespace swy

#pragma GCC visibility pop
