// SPDX-License-Identifier: Apache-2.0
// Hopper's matrix products of signed bytes, with sums of 32 bits. PTX ISA, section on wgmma.
#pragma once

#include "wgmma.cuh"

namespace gpu {

#ifdef SWY_HOPPER

// d [64, N] += a [64, 32] * b [N, 32]^T, as matrix_product. a: the registers of mma.m16n8k32. b: rows of 128 bytes.
// There are no products of 40 and of 56 rows, nor above 64 of others than whole 16s.
template <int N>
__device__ void byte_product(uint32_t (&d)[N / 2], const uint32_t (&a)[4], uint64_t b);

#define SWY_FOUR_SUMS(i) "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3])
#define SWY_SUMS_8 SWY_FOUR_SUMS(0)
#define SWY_SUMS_16 SWY_SUMS_8, SWY_FOUR_SUMS(4)
#define SWY_SUMS_24 SWY_SUMS_16, SWY_FOUR_SUMS(8)
#define SWY_SUMS_32 SWY_SUMS_24, SWY_FOUR_SUMS(12)
#define SWY_SUMS_48 SWY_SUMS_32, SWY_FOUR_SUMS(16), SWY_FOUR_SUMS(20)
#define SWY_SUMS_64 SWY_SUMS_48, SWY_FOUR_SUMS(24), SWY_FOUR_SUMS(28)
#define SWY_SUMS_80 SWY_SUMS_64, SWY_FOUR_SUMS(32), SWY_FOUR_SUMS(36)
#define SWY_SUMS_96 SWY_SUMS_80, SWY_FOUR_SUMS(40), SWY_FOUR_SUMS(44)
#define SWY_SUMS_112 SWY_SUMS_96, SWY_FOUR_SUMS(48), SWY_FOUR_SUMS(52)
#define SWY_SUMS_128 SWY_SUMS_112, SWY_FOUR_SUMS(56), SWY_FOUR_SUMS(60)
#define SWY_BYTE_PRODUCT(n, a0, a1, a2, a3, at)                                                               \
  template <>                                                                                                 \
  __device__ inline void byte_product<n>(uint32_t(&d)[n / 2], const uint32_t(&a)[4], uint64_t b) {            \
    asm volatile("{.reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n" #n                   \
                 "k32.s32.s8.s8 {" SWY_NAMES_##n "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #at ", p;}" \
                 : SWY_SUMS_##n                                                                               \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                       \
  }
SWY_BYTE_PRODUCT(8, 4, 5, 6, 7, 8)
SWY_BYTE_PRODUCT(16, 8, 9, 10, 11, 12)
SWY_BYTE_PRODUCT(24, 12, 13, 14, 15, 16)
SWY_BYTE_PRODUCT(32, 16, 17, 18, 19, 20)
SWY_BYTE_PRODUCT(48, 24, 25, 26, 27, 28)
SWY_BYTE_PRODUCT(64, 32, 33, 34, 35, 36)
SWY_BYTE_PRODUCT(80, 40, 41, 42, 43, 44)
SWY_BYTE_PRODUCT(96, 48, 49, 50, 51, 52)
SWY_BYTE_PRODUCT(112, 56, 57, 58, 59, 60)
SWY_BYTE_PRODUCT(128, 64, 65, 66, 67, 68)
#undef SWY_BYTE_PRODUCT

#endif  // SWY_HOPPER

}  // namespace gpu
