// SPDX-License-Identifier: Apache-2.0
// How the delta rule's states lie in memory, and how eight lanes hold a column of one.
//
// A slot is [value_heads, value_dim, key_dim]: a column of the rule is contiguous. Its elements are fp32, or 16 bits
// (by the option delta_i16), and then [value_heads, value_dim] scales in fp32 follow them. With 16 bits, an element is
// (u - 32768) times its column's scale, which is the smallest power of two that keeps |u - 32768| <= 32767. So both
// conversions are exact but for one rounding to nearest, and a state that is read and written again stays as it is.
// A column with an infinity, or all of NaN, or with a magnitude from 2^119 on (device_states.hpp) has the scale NaN and
// is read so. The rule spreads a NaN over its column.
//
// The kernels have an instance for each form: kI16.
#pragma once

#include <type_traits>

#include "common/device_code.cuh"

namespace gpu {

struct RuleStates {
  char* slots;
  uint32_t slot_bytes, columns, key_dim;  // columns: of a slot, over all heads
  bool i16;

  RuleStates() = default;
  RuleStates(void* at, uint32_t columns_of_slot, uint32_t dim, bool in_16_bits)
      : slots(static_cast<char*>(at)), columns(columns_of_slot), key_dim(dim), i16(in_16_bits) {
    const uint32_t elements = columns * key_dim;
    slot_bytes = i16 ? (elements * 2 + columns * 4 + 15) / 16 * 16 : elements * 4;
  }
  __device__ char* slot_at(uint64_t slot) const { return slots + uint64_t{static_cast<uint32_t>(slot)} * slot_bytes; }
  template <bool kI16>
  __device__ char* column(uint64_t slot, uint32_t at) const {
    return slot_at(slot) + at * key_dim * (kI16 ? 2 : 4);
  }
  __device__ float* scale(uint64_t slot, uint32_t at) const {
    return reinterpret_cast<float*>(slot_at(slot) + (columns * key_dim * 2 + at * 4));
  }
};

// Lane `part` of the eight that share a column holds N groups of four keys. In 16 bits two groups are neighbours, so
// that a request of 16 bytes has both; then key_dim is a multiple of 8.
template <bool kI16, int N>
__device__ constexpr uint32_t first_key(uint32_t group, uint32_t part) {
  return kI16 && N > 1 ? group / 2 * 64 + part * 8 + group % 2 * 4 : group * 32 + part * 4;
}
// Where a key lies in an array in which lanes read group after group, 16 bytes each, without bank conflicts: the key
// first_key(group, part) at group * 32 + part * 4.
template <bool kI16, int N>
__device__ constexpr uint32_t place_of_key(uint32_t key) {
  return kI16 && N > 1 ? key / 64 * 64 + key / 4 % 2 * 32 + key / 8 % 8 * 4 + key % 4 : key;
}

// The float 2^23 + u has u as its lowest bits.
constexpr uint32_t kBitsAbove = 0x4b000000u;           // its other bits
constexpr float kFloatOfZero = 8388608.0f + 32768.0f;  // for the value 0
constexpr uint32_t kTwoZeros = 0x80008000u;            // two elements with it

// The scale of a column whose largest absolute value this is. At least 2^-126, so that its inverse is finite, too; at
// most 2^104, so that floats_of has finite products.
__device__ inline float scale_of(float largest) {
  constexpr uint32_t kMost = 0x7afffe00u;  // 32767 * 2^104
  const uint32_t bits = __float_as_uint(largest);
  // 32767 * 2^-14 is the largest mantissa that keeps its exponent.
  const int of = static_cast<int>(((bits + 0x1ffu) & 0x7f800000u) - (14u << 23));
  return bits > kMost ? __uint_as_float(0x7fc00000u) : __int_as_float(max(of, 1 << 23));
}

// Two neighbouring elements and their bits.
__device__ inline void floats_of(uint32_t bits, float scale, float& low, float& high) {
  const float zero = -kFloatOfZero * scale;
  low = fmaf(__uint_as_float(__byte_perm(bits, kBitsAbove, 0x7610)), scale, zero);
  high = fmaf(__uint_as_float(__byte_perm(bits, kBitsAbove, 0x7632)), scale, zero);
}
__device__ inline uint32_t bits_of(float low, float high, float inverse) {
  return __byte_perm(__float_as_uint(fmaf(low, inverse, kFloatOfZero)),
                     __float_as_uint(fmaf(high, inverse, kFloatOfZero)), 0x5410);
}

// The largest absolute value of a column, from each lane's part.
template <int N>
__device__ inline float largest_of(const float (&state)[N][4]) {
  float most[N];
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const float(&x)[4] = state[n];
    most[n] = fmaxf(fmaxf(fabsf(x[0]), fabsf(x[1])), fmaxf(fabsf(x[2]), fabsf(x[3])));
  }
#pragma unroll
  for (int n = 1; n < N; ++n) most[0] = fmaxf(most[0], most[n]);
#pragma unroll
  for (int x = 1; x < 8; x *= 2) most[0] = fmaxf(most[0], __shfl_xor_sync(kAll, most[0], x));
  return most[0];
}

// What a lane holds of a column, as it lies in memory: `words` of a group, and the column's scale. Without kPairs
// groups lie as in fp32, for any key_dim that is a multiple of 4.
template <bool kI16, int N, bool kPairs = kI16 && (N > 1)>
struct LaneBits {
  static constexpr int kWords = kI16 ? 2 : 4, kElement = kI16 ? 2 : 4;
  static constexpr int kGroups = kPairs ? 2 : 1;  // of a request
  using Request = std::conditional_t<kI16 && !kPairs, uint2, uint4>;
  uint32_t words[N][kWords];
  float scale;

  // Requests what is in memory at a column; zeros if it is not `there`.
  __device__ void ask(const RuleStates& of, uint64_t slot, uint32_t column, uint32_t part, bool there) {
    const char* from = of.column<kI16>(slot, column);
    if (kI16) scale = there ? __ldcs(of.scale(slot, column)) : 0.0f;
#pragma unroll
    for (int n = 0; n < N; n += kGroups) {
      const uint32_t k = first_key<kPairs, N>(n, part);
      Request v;
      v.x = v.y = kI16 ? kTwoZeros : 0;
      if constexpr (sizeof v == 16) v.z = v.w = v.x;
      if (there && k < of.key_dim) v = __ldcs(reinterpret_cast<const Request*>(from + k * kElement));
      words[n][0] = v.x, words[n][1] = v.y;
      if constexpr (kPairs) words[n + 1][0] = v.z, words[n + 1][1] = v.w;
      if constexpr (!kI16) words[n][2] = v.z, words[n][3] = v.w;
    }
  }
  __device__ void get(float (&state)[N][4]) const {
#pragma unroll
    for (int n = 0; n < N; ++n) {
      if constexpr (kI16) {
        floats_of(words[n][0], scale, state[n][0], state[n][1]);
        floats_of(words[n][1], scale, state[n][2], state[n][3]);
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j) state[n][j] = __uint_as_float(words[n][j]);
      }
    }
  }
  // From the state. All lanes of a warp call this.
  __device__ void put(const float (&state)[N][4]) {
    if constexpr (kI16) {
      scale = scale_of(largest_of(state));
      const float inverse = inverse_of_power(scale);
#pragma unroll
      for (int n = 0; n < N; ++n) {
        words[n][0] = bits_of(state[n][0], state[n][1], inverse);
        words[n][1] = bits_of(state[n][2], state[n][3], inverse);
      }
    } else {
#pragma unroll
      for (int n = 0; n < N; ++n) {
#pragma unroll
        for (int j = 0; j < 4; ++j) words[n][j] = __float_as_uint(state[n][j]);
      }
    }
  }
  __device__ void write(const RuleStates& of, uint64_t slot, uint32_t column, uint32_t part, bool there) const {
    char* to = of.column<kI16>(slot, column);
    if (kI16 && there && part == 0) __stcs(of.scale(slot, column), scale);
#pragma unroll
    for (int n = 0; n < N; n += kGroups) {
      const uint32_t k = first_key<kPairs, N>(n, part);
      Request v;
      v.x = words[n][0], v.y = words[n][1];
      if constexpr (kPairs) v.z = words[n + 1][0], v.w = words[n + 1][1];
      if constexpr (!kI16) v.z = words[n][2], v.w = words[n][3];
      if (there && k < of.key_dim) __stcs(reinterpret_cast<Request*>(to + k * kElement), v);
    }
  }
};

}  // namespace gpu
