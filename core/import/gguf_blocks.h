// SPDX-License-Identifier: Apache-2.0
// The types of tensors in GGUF files: blocks of elements with their scales, and what they stand for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/status.h"

namespace switchyard {

// Ids as the files have them.
enum GgufTypeId : uint32_t {
  kGgufF32 = 0,
  kGgufF16 = 1,
  kGgufQ4_0 = 2,
  kGgufQ4_1 = 3,
  kGgufQ5_0 = 6,
  kGgufQ5_1 = 7,
  kGgufQ8_0 = 8,
  kGgufQ2_K = 10,
  kGgufQ3_K = 11,
  kGgufQ4_K = 12,
  kGgufQ5_K = 13,
  kGgufQ6_K = 14,
  kGgufIQ4_NL = 20,
  kGgufIQ4_XS = 23,
  kGgufBF16 = 30,
  kGgufMXFP4 = 39,
};

// Sixteen elements of a block that share a scale: w = scale * quant - min.
struct GgufSixteen {
  float scale, min;
  std::array<int8_t, 16> quants;
};

struct GgufBlock {
  uint32_t id;
  const char* name;   // "Q4_K"
  uint32_t elements;  // of a block
  uint32_t bytes;     // of a block
  // One block, in fp32 arithmetic whose order is that of ggml's own code, so that the results agree bit for bit.
  void (*decode)(const std::byte* block, float* out);
  // Elements 16 * part to 16 * part + 15 of Q2_K, Q3_K and Q6_K, whose scales belong to so many; else NULL.
  GgufSixteen (*sixteen)(const std::byte* block, uint64_t part) = nullptr;
};

// Errors: unsupported, naming the type: one that is known but not read, one that was removed, or an unknown id.
Result<const GgufBlock*> gguf_block(uint32_t id);

// Elements of whole blocks, in fp32.
void decode_blocks(const GgufBlock& block, std::span<const std::byte> blocks, std::span<float> out);

// ---- parts of blocks, for whoever takes them apart

inline constexpr std::array<int8_t, 16> kGgufNonlinear = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                          1,    13,   25,  38,  53,  69,  89,  113};
// The values of e2m1, twice as large.
inline constexpr std::array<int8_t, 16> kGgufE2m1Doubled = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Of 32 elements of a Q4_K or Q5_K block: w = scale * q - min.
struct GgufSubScale {
  float scale, min;
};
GgufSubScale q4_k_scale(const std::byte* block, uint64_t part);

// 32 elements.
void decode_q5_k_part(const std::byte* block, uint64_t part, float* out);

float iq4_xs_scale(const std::byte* block, uint64_t part);  // of 32 elements

// 2^(e - 128): half of what the byte stands for, as the tables above are doubled.
float gguf_half_of_e8m0(std::byte exponent);

}  // namespace switchyard
