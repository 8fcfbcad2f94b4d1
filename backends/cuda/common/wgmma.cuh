// SPDX-License-Identifier: Apache-2.0
// Hopper's asynchronous units: barriers in shared memory, the copy engine, and matrix products of a warpgroup whose
// first operand is in registers. PTX ISA, sections on mbarrier, cp.async.bulk and wgmma.
#pragma once

#include "copy_engine.cuh"

// Defined if code is compiled for sm_90a. Kernels of this kind have no body elsewhere.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define SWY_HOPPER 1
#endif

namespace gpu {

#ifdef SWY_HOPPER

// ---- registers

template <int kCount>
__device__ inline void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ inline void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

// ---- matrix products

__device__ inline void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most kLeft committed groups are still running.
template <int kLeft>
__device__ inline void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
// Keeps the compiler from reusing registers that a product reads before this point.
template <int kCount>
__device__ inline void keep(uint32_t (&r)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(r[i])::"memory");
}
template <int kCount>
__device__ inline void keep(float (&r)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(r[i])::"memory");
}

// The second operand: rows of 64 bf16 in shared memory, 128 bytes each, in groups of 8 rows that are aligned to 1024
// bytes and whose 16-byte pieces are permuted by the row's number (piece ^ row). `stride`: bytes between groups.
__device__ inline uint64_t rows_descriptor(uint32_t at, uint32_t stride) {
  return (uint64_t{1} << 62) | (uint64_t{stride >> 4} << 32) | (uint64_t{1} << 16) | ((at & 0x3ffff) >> 4);
}

// d [64, N] += a [64, 16] * b [N, 16]^T. d[4 i + 2 h + e] of a thread: row 16 * warp + lane / 4 + 8 h, column 8 i + 2
// (lane % 4) + e. a: the registers of mma.m16n8k16.
template <int N>
__device__ void matrix_product(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b);

#define SWY_NAMES_8 "%0, %1, %2, %3"
#define SWY_NAMES_16 SWY_NAMES_8 ", %4, %5, %6, %7"
#define SWY_NAMES_24 SWY_NAMES_16 ", %8, %9, %10, %11"
#define SWY_NAMES_32 SWY_NAMES_24 ", %12, %13, %14, %15"
#define SWY_NAMES_40 SWY_NAMES_32 ", %16, %17, %18, %19"
#define SWY_NAMES_48 SWY_NAMES_40 ", %20, %21, %22, %23"
#define SWY_NAMES_56 SWY_NAMES_48 ", %24, %25, %26, %27"
#define SWY_NAMES_64 SWY_NAMES_56 ", %28, %29, %30, %31"
#define SWY_NAMES_80 SWY_NAMES_64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define SWY_NAMES_96 SWY_NAMES_80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define SWY_NAMES_112 SWY_NAMES_96 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define SWY_NAMES_128 SWY_NAMES_112 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define SWY_FOUR(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SWY_REGISTERS_8 SWY_FOUR(0)
#define SWY_REGISTERS_16 SWY_REGISTERS_8, SWY_FOUR(4)
#define SWY_REGISTERS_24 SWY_REGISTERS_16, SWY_FOUR(8)
#define SWY_REGISTERS_32 SWY_REGISTERS_24, SWY_FOUR(12)
#define SWY_REGISTERS_40 SWY_REGISTERS_32, SWY_FOUR(16)
#define SWY_REGISTERS_48 SWY_REGISTERS_40, SWY_FOUR(20)
#define SWY_REGISTERS_56 SWY_REGISTERS_48, SWY_FOUR(24)
#define SWY_REGISTERS_64 SWY_REGISTERS_56, SWY_FOUR(28)
#define SWY_REGISTERS_80 SWY_REGISTERS_64, SWY_FOUR(32), SWY_FOUR(36)
#define SWY_REGISTERS_96 SWY_REGISTERS_80, SWY_FOUR(40), SWY_FOUR(44)
#define SWY_REGISTERS_112 SWY_REGISTERS_96, SWY_FOUR(48), SWY_FOUR(52)
#define SWY_REGISTERS_128 SWY_REGISTERS_112, SWY_FOUR(56), SWY_FOUR(60)
#define SWY_PRODUCT(n, a0, a1, a2, a3, at)                                                                \
  template <>                                                                                             \
  __device__ inline void matrix_product<n>(float(&d)[n / 2], const uint32_t(&a)[4], uint64_t b) {         \
    asm volatile("{.reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n" #n               \
                 "k16.f32.bf16.bf16 {" SWY_NAMES_##n "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #at \
                                                     ", p, 1, 1, 0;}"                                     \
                 : SWY_REGISTERS_##n                                                                      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                   \
  }
SWY_PRODUCT(8, 4, 5, 6, 7, 8)
SWY_PRODUCT(16, 8, 9, 10, 11, 12)
SWY_PRODUCT(24, 12, 13, 14, 15, 16)
SWY_PRODUCT(32, 16, 17, 18, 19, 20)
SWY_PRODUCT(40, 20, 21, 22, 23, 24)
SWY_PRODUCT(48, 24, 25, 26, 27, 28)
SWY_PRODUCT(56, 28, 29, 30, 31, 32)
SWY_PRODUCT(64, 32, 33, 34, 35, 36)
SWY_PRODUCT(80, 40, 41, 42, 43, 44)
SWY_PRODUCT(96, 48, 49, 50, 51, 52)
SWY_PRODUCT(112, 56, 57, 58, 59, 60)
SWY_PRODUCT(128, 64, 65, 66, 67, 68)
#undef SWY_PRODUCT

#endif  // SWY_HOPPER

}  // namespace gpu
