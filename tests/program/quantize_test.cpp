// SPDX-License-Identifier: Apache-2.0
#include "core/program/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "switchyard/weights.h"

namespace switchyard {
namespace {

swy_tensor shape_of(swy_dtype dtype, uint32_t group, uint64_t rows, uint64_t in) {
  swy_tensor t{};
  t.struct_size = sizeof t;
  t.dtype = dtype;
  t.group = group;
  t.rank = 2;
  t.dims[0] = rows;
  t.dims[1] = in;
  t.dims[2] = t.dims[3] = 1;
  return t;
}

// A whole canonical segment, quantized `step` rows at a time.
Result<std::vector<std::byte>> quantize(const swy_tensor& t, const std::vector<float>& w, uint64_t step) {
  swy_weight_planes p;
  EXPECT_EQ(0, swy_weight_planes_of(&t, &p));
  std::vector<std::byte> segment(p.total_bytes);
  for (uint64_t row = 0; row < p.rows; row += step) {
    const uint64_t count = std::min(step, p.rows - row);
    std::vector<uint16_t> scales(count * p.groups), offsets(t.dtype == SWY_I4A ? count * p.groups : 0);
    SWY_TRY(quantize_rows(w.data() + row * t.dims[1], count, t,
                          {std::span(segment).subspan(row * p.row_bytes, count * p.row_bytes), scales, offsets}));
    std::memcpy(segment.data() + p.scales + row * p.groups * 2, scales.data(), scales.size() * 2);
    if (!offsets.empty())
      std::memcpy(segment.data() + p.offsets + row * p.groups * 2, offsets.data(), offsets.size() * 2);
  }
  return segment;
}

std::vector<float> dequantize(const swy_tensor& t, const std::vector<std::byte>& segment) {
  swy_weight_planes p;
  swy_weight_planes_of(&t, &p);
  std::vector<float> out(p.rows * t.dims[1]);
  for (uint64_t row = 0; row < p.rows; ++row) {
    swy_weight_row(&t, &p, segment.data(), row, out.data() + row * t.dims[1]);
  }
  return out;
}

double squared_error(std::span<const float> a, std::span<const float> b) {
  double total = 0;
  for (size_t i = 0; i < a.size(); ++i) total += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
  return total;
}

float half(float x) { return swy_f16_to_f32(f32_to_f16(x)); }

// The error of the choice that spans the extremes, computed the plain way.
double plain_error(std::span<const float> w, swy_dtype dtype) {
  const auto [low, high] = std::minmax_element(w.begin(), w.end());
  const float extreme = std::max(std::abs(*low), std::abs(*high));
  const int least = dtype == SWY_I8 ? -127 : dtype == SWY_I4 ? -8 : 0, most = dtype == SWY_I8 ? 127 : least + 15;
  const float scale = half(dtype == SWY_I4A ? (*high - *low) / 15 : extreme / static_cast<float>(most));
  const float offset = dtype == SWY_I4A ? half(*low) : 0;
  double total = 0;
  for (const float x : w) {
    const float q = scale == 0 ? 0 : std::clamp(std::nearbyint((x - offset) / scale), float(least), float(most));
    total += std::pow(static_cast<double>(x) - (static_cast<double>(q * scale) + static_cast<double>(offset)), 2);
  }
  return total;
}

struct Case {
  swy_dtype dtype;
  uint32_t group;
  uint64_t in;
};

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const swy_dtype dtype : {SWY_I8, SWY_I4, SWY_I4A}) {
    for (const uint32_t group : {0u, 32u, 64u, 128u}) {
      for (const uint64_t in : {1u, 3u, 8u, 31u, 32u, 33u, 40u, 127u, 128u, 257u, 512u})
        out.push_back({dtype, group, in});
    }
  }
  return out;
}

TEST(Quantize, IsNeverWorseThanTheExtremesPerGroup) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.01f, 0.05f);
  double ours = 0, plain = 0;
  for (const Case& c : cases()) {
    const swy_tensor t = shape_of(c.dtype, c.group, 6, c.in);
    std::vector<float> w(6 * c.in);
    for (float& x : w) x = normal(random) * (random() % 50 == 0 ? 5.0f : 1.0f);
    const auto segment = quantize(t, w, 6);
    ASSERT_TRUE(segment.ok()) << segment.status().message();
    const auto back = dequantize(t, *segment);
    const uint64_t group = c.group == 0 ? c.in : c.group;
    for (uint64_t row = 0; row < 6; ++row) {
      for (uint64_t at = 0; at < c.in; at += group) {
        const uint64_t n = std::min(group, c.in - at);
        const auto want = std::span(w).subspan(row * c.in + at, n);
        const double error = squared_error(want, std::span(back).subspan(row * c.in + at, n));
        const double bound = plain_error(want, c.dtype);
        EXPECT_LE(error, bound * (1 + 1e-5) + 1e-12) << c.dtype << " group " << c.group << " in " << c.in;
        if (c.dtype != SWY_I8 && n >= 32) ours += error, plain += bound;
      }
    }
  }
  EXPECT_LT(ours, 0.85 * plain);  // the search is worth its time
}

TEST(Quantize, RepresentableWeightsAreExact) {
  std::mt19937 random(11);
  for (const Case& c : cases()) {
    const swy_tensor t = shape_of(c.dtype, c.group, 4, c.in);
    const uint64_t group = c.group == 0 ? c.in : c.group;
    const int least = c.dtype == SWY_I8   ? -127
                      : c.dtype == SWY_I4 ? -8
                                          : 0,
              most = c.dtype == SWY_I8 ? 127 : least + 15;
    std::vector<float> w(4 * c.in);
    for (size_t i = 0; i < w.size(); ++i) {
      const uint64_t row = i / c.in, column = i % c.in, in_group = column % group, index = column / group;
      const float scale = half(0.013f * static_cast<float>(1 + index + row));
      const float offset = c.dtype == SWY_I4A ? half(-0.11f * static_cast<float>(1 + row)) : 0;
      int q = least + static_cast<int>(random() % static_cast<unsigned>(most - least + 1));
      if (in_group == 0) q = least;  // the grid's ends occur, as they do when a grid was fitted to weights
      if (in_group == 1) q = most;
      w[i] = static_cast<float>(q) * scale + offset;
    }
    const auto segment = quantize(t, w, 4);
    ASSERT_TRUE(segment.ok());
    EXPECT_LE(squared_error(w, dequantize(t, *segment)), 0.0) << c.dtype << " group " << c.group << " in " << c.in;
  }
}

TEST(Quantize, RowsMayBeSharedOut) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const swy_dtype dtype : {SWY_I8, SWY_I4, SWY_I4A}) {
    const swy_tensor t = shape_of(dtype, 64, 9, 75);
    std::vector<float> w(9 * 75);
    for (float& x : w) x = normal(random);
    EXPECT_EQ(*quantize(t, w, 9), *quantize(t, w, 2));
  }
}

TEST(Quantize, ZerosAndConstants) {
  for (const Case& c : cases()) {
    const swy_tensor t = shape_of(c.dtype, c.group, 2, c.in);
    for (const float x : {0.0f, -0.0f, 0.5f, -0.25f}) {
      const std::vector<float> w(2 * c.in, x);
      const auto back = dequantize(t, *quantize(t, w, 2));
      for (const float y : back) EXPECT_NEAR(x, y, std::abs(x) * 1e-3f);
    }
  }
}

TEST(Quantize, TinyAndHugeWeightsStayFinite) {
  for (const Case& c : cases()) {
    const swy_tensor t = shape_of(c.dtype, c.group, 1, c.in);
    for (const float size : {1e-45f, 1e-38f, 1e-9f, 6e-8f, 1e-6f, 3e4f}) {
      std::vector<float> w(c.in);
      for (size_t i = 0; i < w.size(); ++i) w[i] = size * (i % 2 == 0 ? 1.0f : -0.5f);
      const auto segment = quantize(t, w, 1);
      ASSERT_TRUE(segment.ok());
      for (const float y : dequantize(t, *segment)) {
        ASSERT_TRUE(std::isfinite(y));
        EXPECT_LE(std::abs(y), size * 1.2f + 1e-6f);
      }
    }
  }
}

TEST(Quantize, RefusesWhatHasNoScale) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const Case& c : cases()) {
    const swy_tensor t = shape_of(c.dtype, c.group, 2, c.in);
    for (const float x : {std::nanf(""), -std::nanf(""), infinity, -infinity, 3e38f, -3e38f}) {
      std::vector<float> w(2 * c.in, 0.1f);
      w[2 * c.in - 1] = x;
      const Status status = quantize(t, w, 2).status();
      EXPECT_EQ(Code::invalid_data, status.code()) << c.dtype << " " << c.in << " " << x;
      EXPECT_NE(std::string::npos, status.message().find(fmt::format("row 1, column {}", c.in - 1)))
          << status.message();
    }
  }
}

TEST(Quantize, RefusesWrongSpans) {
  const swy_tensor t = shape_of(SWY_I4, 32, 1, 32);
  const std::vector<float> w(32);
  std::vector<std::byte> quants(16);
  std::vector<uint16_t> scales(1);
  EXPECT_TRUE(quantize_rows(w.data(), 1, t, {quants, scales, {}}).ok());
  EXPECT_EQ(Code::internal, quantize_rows(w.data(), 1, t, {quants, scales, scales}).code());
  EXPECT_EQ(Code::internal, quantize_rows(w.data(), 1, t, {std::span(quants).first(15), scales, {}}).code());
  EXPECT_EQ(Code::internal, quantize_rows(w.data(), 1, shape_of(SWY_BF16, 0, 1, 32), {quants, scales, {}}).code());
}

TEST(Half, InvertsEveryHalfAndRoundsToEven) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float f = swy_f16_to_f32(static_cast<uint16_t>(h));
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(swy_f16_to_f32(f32_to_f16(f))));
    } else {
      EXPECT_EQ(h, f32_to_f16(f));
    }
    if ((h & 0x7fff) >= 0x7bff) continue;  // between a half and the next: the even one at the middle, else the nearer
    const float next = swy_f16_to_f32(static_cast<uint16_t>(h + 1));
    const float middle = f / 2 + next / 2;
    EXPECT_EQ(h % 2 == 0 ? h : h + 1, f32_to_f16(middle));
    EXPECT_EQ(h, f32_to_f16(std::nextafter(middle, f)));
    EXPECT_EQ(h + 1, f32_to_f16(std::nextafter(middle, next)));
  }
  EXPECT_EQ(0x7bff, f32_to_f16(65519.0f));
  EXPECT_EQ(0x7c00, f32_to_f16(65520.0f));
}

}  // namespace
}  // namespace switchyard
