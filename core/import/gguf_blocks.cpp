// SPDX-License-Identifier: Apache-2.0
#include "core/import/gguf_blocks.h"

#include <algorithm>
#include <bit>

#include "core/base/load.h"
#include "switchyard/weights.h"

namespace switchyard {
namespace {

uint8_t byte_at(const std::byte* p, size_t i) { return static_cast<uint8_t>(p[i]); }
int8_t signed_at(const std::byte* p, size_t i) { return static_cast<int8_t>(p[i]); }
float half(const std::byte* p) { return swy_f16_to_f32(load<uint16_t>(p)); }
uint32_t low(uint8_t b) { return b & 15u; }
uint32_t high(uint8_t b) { return b >> 4; }

constexpr size_t kHalf = 16;  // in blocks of 32, byte j holds elements j and j + 16

void f32(const std::byte* b, float* out) { out[0] = load<float>(b); }
void f16(const std::byte* b, float* out) { out[0] = half(b); }
void bf16(const std::byte* b, float* out) { out[0] = swy_bf16_to_f32(load<uint16_t>(b)); }

void q4_0(const std::byte* b, float* out) {
  const float d = half(b);
  for (size_t j = 0; j < kHalf; ++j) {
    const uint8_t q = byte_at(b, 2 + j);
    out[j] = static_cast<float>(static_cast<int>(low(q)) - 8) * d;
    out[j + kHalf] = static_cast<float>(static_cast<int>(high(q)) - 8) * d;
  }
}

void q4_1(const std::byte* b, float* out) {
  const float d = half(b), m = half(b + 2);
  for (size_t j = 0; j < kHalf; ++j) {
    const uint8_t q = byte_at(b, 4 + j);
    out[j] = static_cast<float>(low(q)) * d + m;
    out[j + kHalf] = static_cast<float>(high(q)) * d + m;
  }
}

// The fifth bit of element i is bit i of `bits`.
uint32_t five(uint32_t nibble, uint32_t bits, size_t i) { return nibble | ((bits >> i & 1u) << 4); }

void q5_0(const std::byte* b, float* out) {
  const float d = half(b);
  const auto bits = load<uint32_t>(b + 2);
  for (size_t j = 0; j < kHalf; ++j) {
    const uint8_t q = byte_at(b, 6 + j);
    out[j] = static_cast<float>(static_cast<int>(five(low(q), bits, j)) - 16) * d;
    out[j + kHalf] = static_cast<float>(static_cast<int>(five(high(q), bits, j + kHalf)) - 16) * d;
  }
}

void q5_1(const std::byte* b, float* out) {
  const float d = half(b), m = half(b + 2);
  const auto bits = load<uint32_t>(b + 4);
  for (size_t j = 0; j < kHalf; ++j) {
    const uint8_t q = byte_at(b, 8 + j);
    out[j] = static_cast<float>(five(low(q), bits, j)) * d + m;
    out[j + kHalf] = static_cast<float>(five(high(q), bits, j + kHalf)) * d + m;
  }
}

void q8_0(const std::byte* b, float* out) {
  const float d = half(b);
  for (size_t j = 0; j < 32; ++j) out[j] = static_cast<float>(signed_at(b, 2 + j)) * d;
}

// ---- blocks of 256, whose scales are quantized, too

// Two bits of element i of a block.
uint32_t two_bits(const std::byte* qs, size_t i) {
  return byte_at(qs, i / 128 * 32 + i % 32) >> (2 * (i % 128 / 32)) & 3u;
}

GgufSixteen q2_k_part(const std::byte* b, uint64_t part) {
  const uint8_t s = byte_at(b, part);
  GgufSixteen out{half(b + 80) * static_cast<float>(low(s)), half(b + 82) * static_cast<float>(high(s)), {}};
  for (size_t l = 0; l < 16; ++l) out.quants[l] = static_cast<int8_t>(two_bits(b + 16, part * 16 + l));
  return out;
}

// Twelve bytes hold sixteen scales of six bits: nibbles in the first eight, the two high bits of four in each of the
// rest.
int q3_scale(const std::byte* scales, size_t j) {
  const uint8_t nibbles = byte_at(scales, j % 8);
  const uint32_t top = byte_at(scales, 8 + j % 4) >> (2 * (j / 4)) & 3u;
  return static_cast<int>((j < 8 ? low(nibbles) : high(nibbles)) | (top << 4)) - 32;
}

GgufSixteen q3_k_part(const std::byte* b, uint64_t part) {
  GgufSixteen out{half(b + 108) * static_cast<float>(q3_scale(b + 96, part)), 0, {}};
  for (size_t l = 0; l < 16; ++l) {
    const size_t i = part * 16 + l;
    const bool third = (byte_at(b, i % 32) >> (i / 32) & 1u) != 0;
    out.quants[l] = static_cast<int8_t>(static_cast<int>(two_bits(b + 32, i)) - (third ? 0 : 4));
  }
  return out;
}

GgufSixteen q6_k_part(const std::byte* b, uint64_t part) {
  GgufSixteen out{half(b + 208) * static_cast<float>(signed_at(b, 192 + part)), 0, {}};
  const size_t quarter = part / 2 % 4, begin = part % 2 * 16;
  const std::byte *ql = b + part / 8 * 64 + quarter % 2 * 32 + begin, *qh = b + 128 + part / 8 * 32 + begin;
  for (size_t l = 0; l < 16; ++l) {
    const uint8_t lows = byte_at(ql, l);
    const uint32_t top = byte_at(qh, l) >> (2 * quarter) & 3u;
    out.quants[l] = static_cast<int8_t>(static_cast<int>((quarter < 2 ? low(lows) : high(lows)) | (top << 4)) - 32);
  }
  return out;
}

template <GgufSixteen (*kPart)(const std::byte*, uint64_t)>
void by_sixteen(const std::byte* b, float* out) {
  for (size_t part = 0; part < 16; ++part) {
    const GgufSixteen p = kPart(b, part);
    for (size_t l = 0; l < 16; ++l) *out++ = p.scale * static_cast<float>(p.quants[l]) - p.min;
  }
}

void q4_k(const std::byte* b, float* out) {
  const std::byte* qs = b + 16;
  for (size_t j = 0; j < 8; ++j) {
    const GgufSubScale s = q4_k_scale(b, j);
    for (size_t l = 0; l < 32; ++l) {
      const uint8_t q = byte_at(qs, j / 2 * 32 + l);
      out[j * 32 + l] = s.scale * static_cast<float>(j % 2 == 0 ? low(q) : high(q)) - s.min;
    }
  }
}

void q5_k(const std::byte* b, float* out) {
  for (size_t j = 0; j < 8; ++j) decode_q5_k_part(b, j, out + j * 32);
}

// ---- values from a table

void by_table(const std::byte* q, const std::array<int8_t, 16>& table, float scale, float* out) {
  for (size_t j = 0; j < kHalf; ++j) {
    out[j] = scale * static_cast<float>(table[low(byte_at(q, j))]);
    out[j + kHalf] = scale * static_cast<float>(table[high(byte_at(q, j))]);
  }
}

void iq4_nl(const std::byte* b, float* out) { by_table(b + 2, kGgufNonlinear, half(b), out); }

void iq4_xs(const std::byte* b, float* out) {
  for (size_t j = 0; j < 8; ++j) by_table(b + 8 + j * kHalf, kGgufNonlinear, iq4_xs_scale(b, j), out + j * 32);
}

void mxfp4(const std::byte* b, float* out) { by_table(b + 1, kGgufE2m1Doubled, gguf_half_of_e8m0(b[0]), out); }

constexpr GgufBlock kBlocks[] = {
    {kGgufF32, "F32", 1, 4, f32},
    {kGgufF16, "F16", 1, 2, f16},
    {kGgufBF16, "BF16", 1, 2, bf16},
    {kGgufQ4_0, "Q4_0", 32, 18, q4_0},
    {kGgufQ4_1, "Q4_1", 32, 20, q4_1},
    {kGgufQ5_0, "Q5_0", 32, 22, q5_0},
    {kGgufQ5_1, "Q5_1", 32, 24, q5_1},
    {kGgufQ8_0, "Q8_0", 32, 34, q8_0},
    {kGgufQ2_K, "Q2_K", 256, 84, by_sixteen<q2_k_part>, q2_k_part},
    {kGgufQ3_K, "Q3_K", 256, 110, by_sixteen<q3_k_part>, q3_k_part},
    {kGgufQ4_K, "Q4_K", 256, 144, q4_k},
    {kGgufQ5_K, "Q5_K", 256, 176, q5_k},
    {kGgufQ6_K, "Q6_K", 256, 210, by_sixteen<q6_k_part>, q6_k_part},
    {kGgufIQ4_NL, "IQ4_NL", 32, 18, iq4_nl},
    {kGgufIQ4_XS, "IQ4_XS", 256, 136, iq4_xs},
    {kGgufMXFP4, "MXFP4", 32, 17, mxfp4},
};

// Types that files may have, and that are not read.
struct Unread {
  uint32_t id;
  const char* name;
};
constexpr Unread kUnread[] = {{15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"},
                              {21, "IQ3_S"}, {22, "IQ2_S"},   {24, "I8"},     {25, "I16"},     {26, "I32"},
                              {27, "I64"},   {28, "F64"},     {29, "IQ1_M"},  {34, "TQ1_0"},   {35, "TQ2_0"},
                              {40, "NVFP4"}, {41, "Q1_0"},    {42, "Q2_0"}};
constexpr uint32_t kRemoved[] = {4, 5, 31, 32, 33, 36, 37, 38};

}  // namespace

Result<const GgufBlock*> gguf_block(uint32_t id) {
  for (const GgufBlock& b : kBlocks) {
    if (b.id == id) return &b;
  }
  for (const Unread& u : kUnread) {
    if (u.id == id) {
      return error(Code::unsupported,
                   "type {} is not read; F32, F16, BF16, Q4_0 to Q8_0, Q2_K to Q6_K, IQ4_NL, IQ4_XS and MXFP4 are",
                   u.name);
    }
  }
  if (std::find(std::begin(kRemoved), std::end(kRemoved), id) != std::end(kRemoved)) {
    return error(Code::unsupported, "type {} was removed from the format; convert the original model again", id);
  }
  return error(Code::unsupported, "type {} is unknown; the file may come from a variant of llama.cpp", id);
}

// Six bits each, of eight scales and eight minima.
GgufSubScale q4_k_scale(const std::byte* block, uint64_t j) {
  const std::byte* s = block + 4;
  const float d = half(block), dmin = half(block + 2);
  uint32_t scale = byte_at(s, j) & 63u, min = byte_at(s, j + 4) & 63u;
  if (j >= 4) {
    scale = (byte_at(s, j + 4) & 15u) | (byte_at(s, j - 4) >> 6) << 4;
    min = high(byte_at(s, j + 4)) | (byte_at(s, j) >> 6) << 4;
  }
  return {d * static_cast<float>(scale), dmin * static_cast<float>(min)};
}

void decode_q5_k_part(const std::byte* block, uint64_t j, float* out) {
  const std::byte *high_bits = block + 16, *qs = block + 48 + j / 2 * 32;
  const GgufSubScale s = q4_k_scale(block, j);
  for (size_t l = 0; l < 32; ++l) {
    const uint8_t q = byte_at(qs, l);
    const uint32_t fifth = byte_at(high_bits, l) >> j & 1u;
    out[l] = s.scale * static_cast<float>((j % 2 == 0 ? low(q) : high(q)) | (fifth << 4)) - s.min;
  }
}

float iq4_xs_scale(const std::byte* block, uint64_t j) {
  const uint8_t lows = byte_at(block, 4 + j / 2);
  const uint32_t top = load<uint16_t>(block + 2) >> (2 * j) & 3u;
  return half(block) * static_cast<float>(static_cast<int>((j % 2 == 0 ? low(lows) : high(lows)) | top << 4) - 32);
}

float gguf_half_of_e8m0(std::byte exponent) {
  const auto e = static_cast<uint32_t>(exponent);
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

void decode_blocks(const GgufBlock& block, std::span<const std::byte> blocks, std::span<float> out) {
  const size_t count = out.size() / block.elements;
  for (size_t i = 0; i < count; ++i) block.decode(blocks.data() + i * block.bytes, out.data() + i * block.elements);
}

}  // namespace switchyard
