// SPDX-License-Identifier: Apache-2.0
// Which elements of a product's operands a lane has (PTX ISA, fragments of mma).
#pragma once

#include "cuda_fp16.h"
#include "ptx.h"

namespace emulated {

constexpr uint32_t depth_of(ptx::Numbers numbers) {
  const bool halves = numbers == ptx::Numbers::bf16 || numbers == ptx::Numbers::f16;
  return halves ? 16 : numbers == ptx::Numbers::tf32 ? 8 : 32;
}

inline float float_of_bf16(uint32_t bits) { return from_bits<float>(bits << 16); }
inline float float_of_f16(uint32_t bits) { return __half2float(__ushort_as_half(static_cast<uint16_t>(bits))); }

// A register of a fragment: elements along k from `k`, of row or column `at`.
template <class PutFloat, class PutWhole>
void unpack(ptx::Numbers numbers, bool is_signed, uint32_t word, PutFloat put, PutWhole put_whole) {
  switch (numbers) {
    case ptx::Numbers::bf16:
      put(0u, float_of_bf16(word & 0xffff)), put(1u, float_of_bf16(word >> 16));
      return;
    case ptx::Numbers::f16:
      put(0u, float_of_f16(word & 0xffff)), put(1u, float_of_f16(word >> 16));
      return;
    case ptx::Numbers::tf32:
      put(0u, from_bits<float>(word & 0xffffe000u));
      return;
    default:
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t byte = word >> 8 * i & 255;
        put_whole(i, is_signed ? static_cast<int>(static_cast<int8_t>(byte)) : static_cast<int>(byte));
      }
  }
}

// Words are 2 (bf16, f16), 1 (tf32) or 4 (bytes) elements; a lane's word t of four covers elements t * that.
inline void take_first(ptx::Numbers numbers, const uint32_t* word, uint32_t lane, float (&a)[16][32],
                       int (&ai)[16][32]) {
  const uint32_t half = depth_of(numbers) / 2, each = half / 4;
  for (uint32_t r = 0; r < 4; ++r) {
    const uint32_t row = lane / 4 + r % 2 * 8, k = lane % 4 * each + r / 2 * half;
    unpack(
        numbers, numbers == ptx::Numbers::bytes, word[r], [&](uint32_t i, float v) { a[row][k + i] = v; },
        [&](uint32_t i, int v) { ai[row][k + i] = v; });
  }
}
inline void take_second(ptx::Numbers numbers, const uint32_t* word, uint32_t lane, float (&b)[32][8],
                        int (&bi)[32][8]) {
  const uint32_t half = depth_of(numbers) / 2, each = half / 4;
  for (uint32_t r = 0; r < 2; ++r) {
    const uint32_t n = lane / 4, k = lane % 4 * each + r * half;
    unpack(
        numbers, true, word[r], [&](uint32_t i, float v) { b[k + i][n] = v; },
        [&](uint32_t i, int v) { bi[k + i][n] = v; });
  }
}

}  // namespace emulated
