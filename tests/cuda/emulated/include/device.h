// SPDX-License-Identifier: Apache-2.0
// CUDA's language and its functions for the device, for code that a C++ compiler makes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "machine/machine.h"

#define __device__
#define __host__
#define __global__
#define __constant__
#define __forceinline__ inline
#define __noinline__
#define __restrict__
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ SWY_SHARED  // translate.py knows this word
#define __CUDACC__ 1
#define __CUDA_ARCH__ 900
#define __CUDA_ARCH_FEAT_SM90_ALL 1

constexpr int warpSize = 32;

namespace emulated {

template <class To, class From>
To bits_of(From x) {
  static_assert(sizeof(To) >= sizeof(From));
  To y{};
  std::memcpy(&y, &x, sizeof x);
  return y;
}
template <class To, class From>
To from_bits(From x) {
  static_assert(sizeof(To) <= sizeof(From));
  To y;
  std::memcpy(&y, &x, sizeof y);
  return y;
}

template <class... T>
void keep(T&&...) {}

// What a lane gets from another one.
enum class Pick : uint8_t { lane, up, exclusive };
uint64_t shuffle(const char* what, uint32_t mask, uint64_t value, Pick pick, uint32_t which, uint32_t width);
enum class Vote : uint8_t { ballot, add, min, max, min_signed, max_signed, either };
uint32_t vote(const char* what, uint32_t mask, uint32_t value, Vote kind);

}  // namespace emulated

// ---- meetings

void __syncthreads();
int __syncthreads_count(int yes);
int __syncthreads_or(int yes);
void __syncwarp(uint32_t mask = ~0u);
inline void __threadfence() {}
inline void __threadfence_system() {}

#define SWY_SHUFFLE(name, kind, Which)                                                                        \
  template <class T>                                                                                          \
  [[gnu::always_inline]] inline T name(uint32_t mask, T value, Which which, int width = 32) {                 \
    return ::emulated::from_bits<T>(::emulated::shuffle(#name, mask, ::emulated::bits_of<uint64_t>(value),    \
                                                        ::emulated::Pick::kind, static_cast<uint32_t>(which), \
                                                        static_cast<uint32_t>(width)));                       \
  }
SWY_SHUFFLE(__shfl_sync, lane, int)
SWY_SHUFFLE(__shfl_up_sync, up, unsigned)
SWY_SHUFFLE(__shfl_xor_sync, exclusive, int)
#undef SWY_SHUFFLE

#define SWY_VOTE [[gnu::always_inline]] inline
SWY_VOTE uint32_t __ballot_sync(uint32_t mask, int yes) {
  return ::emulated::vote("__ballot_sync", mask, yes != 0, ::emulated::Vote::ballot);
}
SWY_VOTE int __any_sync(uint32_t mask, int yes) {
  return ::emulated::vote("__any_sync", mask, yes != 0, ::emulated::Vote::ballot) != 0;
}
SWY_VOTE int __all_sync(uint32_t mask, int yes) {
  return ::emulated::vote("__all_sync", mask, yes == 0, ::emulated::Vote::ballot) == 0;
}
SWY_VOTE uint32_t __reduce_add_sync(uint32_t mask, uint32_t x) {
  return ::emulated::vote("__reduce_add_sync", mask, x, ::emulated::Vote::add);
}
SWY_VOTE int __reduce_add_sync(uint32_t mask, int x) {
  return static_cast<int>(::emulated::vote("__reduce_add_sync", mask, static_cast<uint32_t>(x), ::emulated::Vote::add));
}
SWY_VOTE uint32_t __reduce_or_sync(uint32_t mask, uint32_t x) {
  return ::emulated::vote("__reduce_or_sync", mask, x, ::emulated::Vote::either);
}
SWY_VOTE uint32_t __reduce_min_sync(uint32_t mask, uint32_t x) {
  return ::emulated::vote("__reduce_min_sync", mask, x, ::emulated::Vote::min);
}
SWY_VOTE uint32_t __reduce_max_sync(uint32_t mask, uint32_t x) {
  return ::emulated::vote("__reduce_max_sync", mask, x, ::emulated::Vote::max);
}
SWY_VOTE int __reduce_min_sync(uint32_t mask, int x) {
  return static_cast<int>(
      ::emulated::vote("__reduce_min_sync", mask, static_cast<uint32_t>(x), ::emulated::Vote::min_signed));
}
SWY_VOTE int __reduce_max_sync(uint32_t mask, int x) {
  return static_cast<int>(
      ::emulated::vote("__reduce_max_sync", mask, static_cast<uint32_t>(x), ::emulated::Vote::max_signed));
}
#undef SWY_VOTE

// ---- memory

inline size_t __cvta_generic_to_shared(const void* p) { return ::emulated::shared_address(p); }
template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
template <class T>
T __ldcs(const T* p) {
  return *p;
}
template <class T>
void __stcs(T* p, T v) {
  *p = v;
}
template <class T>
void __stcg(T* p, T v) {
  *p = v;
}
// Nothing else runs in between: threads of the device are fibers of one thread.
#define SWY_ATOMIC(name, after)             \
  template <class T>                        \
  T name(T* p, std::type_identity_t<T> v) { \
    const T old = *p;                       \
    *p = after;                             \
    return old;                             \
  }
SWY_ATOMIC(atomicAdd, old + v)
SWY_ATOMIC(atomicSub, old - v)
SWY_ATOMIC(atomicMax, std::max(old, v))
SWY_ATOMIC(atomicOr, old | v)
SWY_ATOMIC(atomicExch, v)
#undef SWY_ATOMIC

// ---- numbers

template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  const std::common_type_t<A, B> x = a, y = b;
  return y < x ? y : x;
}
template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  const std::common_type_t<A, B> x = a, y = b;
  return x < y ? y : x;
}
inline float __uint_as_float(uint32_t x) { return ::emulated::from_bits<float>(x); }
inline float __int_as_float(int x) { return ::emulated::from_bits<float>(x); }
inline uint32_t __float_as_uint(float x) { return ::emulated::from_bits<uint32_t>(x); }
inline int __float_as_int(float x) { return ::emulated::from_bits<int>(x); }
inline int __float2int_rn(float x) { return static_cast<int>(std::nearbyintf(x)); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return std::exp2f(x * 1.442695041f); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline void sincospif(float x, float* s, float* c) {
  *s = static_cast<float>(std::sin(static_cast<double>(x) * M_PI)),
  *c = static_cast<float>(std::cos(static_cast<double>(x) * M_PI));
}
inline int __popc(uint32_t x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<uint32_t>(x)); }
inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t select) {
  const uint64_t both = uint64_t{b} << 32 | a;
  uint32_t r = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t s = select >> 4 * i & 15;
    uint32_t byte = static_cast<uint32_t>(both >> 8 * (s & 7)) & 255;
    if ((s & 8) != 0) byte = (byte & 128) != 0 ? 255 : 0;
    r |= byte << 8 * i;
  }
  return r;
}
#include "ptx.h"
