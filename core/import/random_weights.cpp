// SPDX-License-Identifier: Apache-2.0
#include "core/import/random_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/program/quantize.h"
#include "switchyard/weights.h"

namespace switchyard {
namespace {

// SplitMix64 (Steele, Lea, Flood 2014) as a counter-based generator: word i of a stream.
uint64_t word(uint64_t stream, uint64_t i) {
  uint64_t z = stream + (i + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// Nibbles of 0 become 8, so that (q - 8) has mean zero.
uint64_t centre_nibbles(uint64_t w) {
  constexpr uint64_t kOnes = 0x1111111111111111ull;
  const uint64_t pairs = w | (w >> 1);
  const uint64_t some = (pairs | (pairs >> 2)) & kOnes;
  return w | ((~some & kOnes) << 3);
}

// Bytes of -128 become 0.
uint64_t centre_bytes(uint64_t w) {
  constexpr uint64_t kHigh = 0x8080808080808080ull;
  const uint64_t others = ((w & ~kHigh) + ~kHigh) | ~w;  // bit 7 of a byte: it is not 0x80
  return w & ~(~others & kHigh);
}

// A float in [-1, 1) from 16 random bits.
float unit(uint64_t bits) { return static_cast<float>(static_cast<int>(bits & 0xffffu) - 32768) / 32768.0f; }

// Uniform numbers on (-sqrt 3, sqrt 3) have deviation 1.
constexpr float kUniform = 1.7320508f;

void plain(swy_dtype dtype, Spread spread, uint64_t stream, uint64_t begin, std::span<std::byte> out) {
  const uint64_t size = dtype == SWY_F32 ? 4 : 2;
  for (uint64_t at = 0; at + size <= out.size(); at += size) {
    const uint64_t i = (begin + at) / size;
    const float v = spread.mean + spread.deviation * kUniform * unit(word(stream, i / 4) >> (16 * (i % 4)));
    if (dtype == SWY_F32) {
      std::memcpy(out.data() + at, &v, 4);
    } else {
      const uint16_t h = swy_f32_to_bf16(v);
      std::memcpy(out.data() + at, &h, 2);
    }
  }
}

void repeat(uint16_t half, std::span<std::byte> out) {
  for (uint64_t at = 0; at + 2 <= out.size(); at += 2) std::memcpy(out.data() + at, &half, 2);
}

// Standard deviations of the generated quants: whole numbers uniform on -7..7, -127..127 and 0..15, and e2m1's values.
constexpr double kNibble = 4.3205, kByte = 73.32, kAffine = 4.6098, kE2m1 = 2.9262;

void quants(swy_dtype dtype, uint64_t stream, uint64_t begin, std::span<std::byte> out) {
  for (uint64_t at = 0; at < out.size(); at += 8) {
    uint64_t w = word(stream, (begin + at) / 8);
    if (dtype == SWY_I4) w = centre_nibbles(w);
    if (dtype == SWY_I8) w = centre_bytes(w);
    std::memcpy(out.data() + at, &w, std::min<uint64_t>(8, out.size() - at));
  }
}

uint64_t hash(const std::string& text, uint64_t seed) {
  uint64_t h = word(seed, 0);
  for (const char c : text) h = word(h ^ static_cast<unsigned char>(c), 1);
  return h;
}

bool ends(const std::string& name, const char* end) { return name.ends_with(end); }

}  // namespace

Spread spread_of(const std::string& name, const std::vector<uint64_t>& dims, float centre, uint32_t layers) {
  const auto fan_in = static_cast<float>(dims.back());
  if (ends(name, "A_log")) return {1.4f, 0.7f};     // rates of about 1 to 16
  if (ends(name, "dt_bias")) return {-3.0f, 1.0f};  // times softplus of that: states that last tens of tokens
  if (ends(name, "norm.weight")) return {centre, 0.05f};
  if (ends(name, "conv1d.weight")) return {0.0f, 0.5f};
  if (ends(name, "embed_tokens.weight")) return {0.0f, 1.0f};
  // Weights that write to the residual stream are scaled so that all layers together let it grow by a bounded factor.
  const bool back = ends(name, "out_proj.weight") || ends(name, "o_proj.weight") || ends(name, "down_proj") ||
                    ends(name, "down_proj.weight");
  const float share = back ? 1.0f / std::sqrt(2.0f * static_cast<float>(layers)) : 1.0f;
  return {0.0f, share / std::sqrt(fan_in)};
}

void random_weights(const ProgramSpec::Tensor& t, Spread spread, uint64_t seed, uint64_t begin,
                    std::span<std::byte> out) {
  const uint64_t stream = hash(t.name, seed);
  if (t.dtype == SWY_F32 || t.dtype == SWY_BF16) return plain(t.dtype, spread, stream, begin, out);
  swy_tensor desc{};
  desc.dtype = t.dtype;
  desc.group = t.group;
  desc.rank = static_cast<uint32_t>(t.dims.size());
  std::copy(t.dims.begin(), t.dims.end(), desc.dims);
  swy_weight_planes planes;
  if (swy_weight_planes_of(&desc, &planes) != 0) return;
  const double quant = t.dtype == SWY_I4 ? kNibble : t.dtype == SWY_I8 ? kByte : t.dtype == SWY_MXFP4 ? kE2m1 : kAffine;
  const auto scale = static_cast<float>(spread.deviation / quant);
  const auto part = [&](uint64_t from, uint64_t to) {  // of `out`: bytes [from, to) of the segment
    const uint64_t a = std::clamp(from, begin, begin + out.size()), b = std::clamp(to, begin, begin + out.size());
    return out.subspan(a - begin, b - a);
  };
  quants(t.dtype, stream, begin, part(0, planes.scales));
  if (t.dtype == SWY_MXFP4) {  // the power of two that is nearest to the scale
    const auto exponents = part(planes.scales, planes.total_bytes);
    const int exponent = std::clamp(static_cast<int>(std::lround(std::log2(scale))) + 127, 0, 254);
    std::fill(exponents.begin(), exponents.end(), static_cast<std::byte>(exponent));
    return;
  }
  repeat(f32_to_f16(scale), part(planes.scales, t.dtype == SWY_I4A ? planes.offsets : planes.total_bytes));
  if (t.dtype == SWY_I4A) repeat(f32_to_f16(-7.5f * scale), part(planes.offsets, planes.total_bytes));
}

}  // namespace switchyard
