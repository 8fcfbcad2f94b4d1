// SPDX-License-Identifier: Apache-2.0
// The convolution of one token. Included once per target (simd.h).
#if defined(CPU_CAUSAL_CONV_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CPU_CAUSAL_CONV_INL_H_
#undef CPU_CAUSAL_CONV_INL_H_
#else
#define CPU_CAUSAL_CONV_INL_H_
#endif

#include "causal_conv.h"
#include "math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace cpu {
namespace HWY_NAMESPACE {

// y [n] = silu(sum over j of taps[j] * rows[j]), for n channels; taps are in rows of `stride`.
HWY_INLINE void convolve(const float* const* rows, const float* taps, uint64_t n, uint64_t stride, uint32_t kernel,
                         float* y) {
  const uint64_t L = hn::Lanes(F());
  each_four_vectors(
      n, [&](auto width, uint64_t c, uint64_t count) __attribute__((always_inline)) {
        V sum[width];
        each_of<width>([&](uint32_t i) { sum[i] = hn::Zero(F()); });
        for (uint32_t j = 0; j < kernel; ++j) {
          const float *tap = taps + j * stride + c, *x = rows[j] + c;
          each_of<width>(
              [&](uint32_t i) { sum[i] = hn::MulAdd(load(tap + i * L, count), load(x + i * L, count), sum[i]); });
        }
        silu(sum);
        each_of<width>([&](uint32_t i) { store(sum[i], y + c + i * L, count); });
      });
}

// Row i of the run into y [columns of the block].
HWY_INLINE void convolve_row(const swy::Call& call, const ConvBlock& block, uint64_t i, float* y) {
  const uint32_t kernel = call.attrs<swy_gated_delta_attrs>().conv_kernel;
  const ConvScratch& s = block.scratch;
  for (const ConvPiece& piece : block.pieces) {
    for (uint32_t j = 0; j < kernel; ++j) s.rows[j] = block.row(call, piece, i + j);
    if (kernel == 4) {  // without a loop over the taps
      convolve(s.rows, s.taps + piece.column, piece.width, s.stride, 4, y + piece.column);
    } else {
      convolve(s.rows, s.taps + piece.column, piece.width, s.stride, kernel, y + piece.column);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
HWY_AFTER_NAMESPACE();

#endif
