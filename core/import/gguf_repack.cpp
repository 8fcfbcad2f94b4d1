// SPDX-License-Identifier: Apache-2.0
#include "core/import/gguf_repack.h"

#include <algorithm>
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
template <size_t kCount>
void put_nibbles(const std::array<uint8_t, kCount>& codes, std::byte* out) {
  for (size_t j = 0; j < kCount / 2; ++j) out[j] = static_cast<std::byte>(codes[2 * j] | codes[2 * j + 1] << 4);
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

bool sixteen(const GgufSixteen& part, swy_dtype dtype, const RepackedGroup& out) {
  if (dtype == SWY_I8) {
    std::memcpy(out.quants, part.quants.data(), part.quants.size());
  } else {
    std::array<uint8_t, 16> codes;
    const int zero = dtype == SWY_I4 ? 8 : 0;
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(part.quants[i] + zero);
    put_nibbles(codes, out.quants);
  }
  return put_scale(part.scale, out.scale) && (dtype != SWY_I4A || put_scale(-part.min, out.offset));
}

bool mxfp4(const std::byte* block, const RepackedGroup& out) {
  const float scale = gguf_half_of_e8m0(block[0]);
  put_bytes(nibbles(block + 1), out.quants, [](uint8_t q) { return kGgufE2m1Doubled[q]; });
  return put_scale(scale, out.scale) && swy_f16_to_f32(*out.scale) == scale;
}

// ---- nearest values in i8

using Values = std::array<float, kRepackGroup>;
constexpr float kMostQuant = 127;
constexpr size_t kLanes = 8;

float rounded_quant(float value, float inverse_scale) {
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: at this size floats are whole numbers
  const float q = value * inverse_scale;
  return ((q < -kMostQuant ? -kMostQuant : q > kMostQuant ? kMostQuant : q) + kShift) - kShift;
}

float squared_error(const Values& w, float scale) {
  const float inverse = 1 / scale;
  std::array<float, kLanes> sums{};
  for (size_t i = 0; i < kRepackGroup; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float off = w[i + lane] - rounded_quant(w[i + lane], inverse) * scale;
      sums[lane] += off * off;
    }
  }
  float sum = 0;
  for (const float s : sums) sum += s;
  return sum;
}

// The scale with the least error among the one that spans the values and the whole parts of `step`, the distance of the
// source's values: with such a scale they keep their distances, and errors arise only from the offset.
bool nearest_i8(const Values& w, float step, const RepackedGroup& out) {
  float most = 0;
  for (const float x : w) most = std::max(most, std::abs(x));
  if (!std::isfinite(most)) return false;  // NaN is found below
  constexpr int kTried = 5;
  uint16_t best = f32_to_f16(most / kMostQuant);
  float best_scale = swy_f16_to_f32(best), least = best_scale > 0 ? squared_error(w, best_scale) : most;
  const float parts = std::abs(step) / most * kMostQuant;  // how many still fit
  const int finest = parts >= 1 && parts < 1e6f ? static_cast<int>(parts) + 1 : 0;
  for (int k = finest; k > 0 && k > finest - kTried; --k) {
    const uint16_t half = f32_to_f16(std::abs(step) / static_cast<float>(k));
    const float scale = swy_f16_to_f32(half);
    if (!(scale > 0) || !std::isfinite(scale)) continue;
    if (const float error = squared_error(w, scale); error < least) {
      least = error;
      best = half;
      best_scale = scale;
    }
  }
  if (!(best_scale > 0) || !std::isfinite(best_scale) || !std::isfinite(least)) return false;
  for (size_t i = 0; i < kRepackGroup; ++i) {
    out.quants[i] = static_cast<std::byte>(static_cast<int8_t>(rounded_quant(w[i], 1 / best_scale)));
  }
  *out.scale = best;
  return true;
}

bool q5_k(const std::byte* block, uint64_t part, const RepackedGroup& out) {
  Values w;
  decode_q5_k_part(block, part, w.data());
  return nearest_i8(w, q4_k_scale(block, part).scale, out);
}

bool q5_1(const std::byte* block, const RepackedGroup& out) {
  Values w;
  (*gguf_block(kGgufQ5_1))->decode(block, w.data());
  return nearest_i8(w, swy_f16_to_f32(load<uint16_t>(block)), out);
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
      return {SWY_I4A, kRepackGroup};
    case kGgufQ2_K:
      return {SWY_I4A, 16};
    case kGgufQ3_K:
      return {SWY_I4, 16};
    case kGgufQ6_K:
      return {SWY_I8, 16};
    default:
      return {SWY_I8, kRepackGroup};
  }
}

bool repack_mxfp4(const std::byte* block, std::byte* quants, uint16_t* scale) {
  put_nibbles(nibbles(block + 1), quants);
  *scale = static_cast<uint8_t>(block[0]);
  return *scale != 255;
}

bool repack_group(const GgufBlock& block, const std::byte* row, uint64_t group, const RepackedGroup& out) {
  const WeightEncoding encoding = encoding_of(block);
  if (encoding.group == 0) return false;
  const uint64_t per_block = block.elements / encoding.group;
  const std::byte* b = row + group / per_block * block.bytes;
  const uint64_t part = group % per_block;
  if (block.sixteen != nullptr) return sixteen(block.sixteen(b, part), encoding.dtype, out);
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
    case kGgufQ5_1:
      return q5_1(b, out);
    case kGgufQ5_K:
      return q5_k(b, part, out);
    default:
      return false;
  }
}

}  // namespace switchyard
