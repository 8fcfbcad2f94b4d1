// SPDX-License-Identifier: Apache-2.0
#include "core/import/gguf_repack.h"

#include <array>
#include <cmath>
#include <cstring>

#include "core/base/load.h"
#include "core/program/quantize.h"
#include "switchyard/weights.h"

namespace switchyard {
namespace {

using Codes = std::array<uint8_t, kRepackGroup>;

// In blocks of 32, byte j holds elements j and j + 16.
Codes nibbles(const std::byte* q) {
  Codes codes;
  for (size_t j = 0; j < 16; ++j) {
    codes[j] = static_cast<uint8_t>(q[j]) & 15u;
    codes[j + 16] = static_cast<uint8_t>(q[j]) >> 4;
  }
  return codes;
}

// Ours: byte j holds elements 2j and 2j + 1.
void put_nibbles(const Codes& codes, std::byte* out) {
  for (size_t j = 0; j < kRepackGroup / 2; ++j) out[j] = static_cast<std::byte>(codes[2 * j] | codes[2 * j + 1] << 4);
}

template <class Value>
void put_bytes(const Codes& codes, std::byte* out, Value value) {
  for (size_t i = 0; i < kRepackGroup; ++i) out[i] = static_cast<std::byte>(static_cast<int8_t>(value(codes[i])));
}

bool put_scale(float scale, uint16_t* out) {
  *out = f32_to_f16(scale);
  return std::isfinite(swy_f16_to_f32(*out));
}

bool q4_k(const std::byte* block, uint64_t part, const RepackedGroup& out) {
  const GgufSubScale s = q4_k_scale(block, part);
  const std::byte* q = block + 16 + part / 2 * 32;
  Codes codes;
  for (size_t i = 0; i < kRepackGroup; ++i) {
    codes[i] = static_cast<uint8_t>(static_cast<uint8_t>(q[i]) >> (part % 2 * 4) & 15u);
  }
  put_nibbles(codes, out.quants);
  return put_scale(s.scale, out.scale) && put_scale(-s.min, out.offset);
}

bool mxfp4(const std::byte* block, const RepackedGroup& out) {
  const float scale = gguf_half_of_e8m0(block[0]);
  put_bytes(nibbles(block + 1), out.quants, [](uint8_t q) { return kGgufE2m1Doubled[q]; });
  return put_scale(scale, out.scale) && swy_f16_to_f32(*out.scale) == scale;
}

}  // namespace

WeightEncoding encoding_of(const GgufBlock& block) {
  switch (block.id) {
    case kGgufF32:
      return {SWY_F32, 0};
    case kGgufF16:
    case kGgufBF16:
      return {SWY_BF16, 0};
    case kGgufQ4_0:
      return {SWY_I4, kRepackGroup};
    case kGgufQ4_1:
    case kGgufQ4_K:
    case kGgufQ2_K:
    case kGgufQ3_K:
      return {SWY_I4A, kRepackGroup};
    default:
      return {SWY_I8, kRepackGroup};
  }
}

bool repack_group(const GgufBlock& block, const std::byte* row, uint64_t group, const RepackedGroup& out) {
  const uint64_t per_block = block.elements / kRepackGroup;
  if (per_block == 0) return false;
  const std::byte* b = row + group / per_block * block.bytes;
  const uint64_t part = group % per_block;
  switch (block.id) {
    case kGgufQ4_0:
      *out.scale = load<uint16_t>(b);
      put_nibbles(nibbles(b + 2), out.quants);
      return std::isfinite(swy_f16_to_f32(*out.scale));
    case kGgufQ4_1:
      *out.scale = load<uint16_t>(b);
      *out.offset = load<uint16_t>(b + 2);
      put_nibbles(nibbles(b + 4), out.quants);
      return std::isfinite(swy_f16_to_f32(*out.scale)) && std::isfinite(swy_f16_to_f32(*out.offset));
    case kGgufQ5_0: {
      const auto fifth = load<uint32_t>(b + 2);
      Codes codes = nibbles(b + 6);
      for (size_t i = 0; i < kRepackGroup; ++i) codes[i] = static_cast<uint8_t>(codes[i] | (fifth >> i & 1u) << 4);
      put_bytes(codes, out.quants, [](uint8_t q) { return q - 16; });
      *out.scale = load<uint16_t>(b);
      return std::isfinite(swy_f16_to_f32(*out.scale));
    }
    case kGgufQ8_0:
      for (size_t i = 0; i < kRepackGroup; ++i) {
        if (b[2 + i] == std::byte{0x80}) return false;  // -128, which i8 does not have
      }
      std::memcpy(out.quants, b + 2, kRepackGroup);
      *out.scale = load<uint16_t>(b);
      return std::isfinite(swy_f16_to_f32(*out.scale));
    case kGgufIQ4_NL:
      put_bytes(nibbles(b + 2), out.quants, [](uint8_t q) { return kGgufNonlinear[q]; });
      *out.scale = load<uint16_t>(b);
      return std::isfinite(swy_f16_to_f32(*out.scale));
    case kGgufIQ4_XS:
      put_bytes(nibbles(b + 8 + part * 16), out.quants, [](uint8_t q) { return kGgufNonlinear[q]; });
      return put_scale(iq4_xs_scale(b, part), out.scale);
    case kGgufMXFP4:
      return mxfp4(b, out);
    case kGgufQ4_K:
      return q4_k(b, part, out);
    default:
      return false;
  }
}

}  // namespace switchyard
