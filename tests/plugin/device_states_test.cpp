// SPDX-License-Identifier: Apache-2.0
// The SDK's forms of states: sizes, places of elements, what rounding may change, and zeros.
#include "switchyard/sdk/device_states.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace switchyard::testing {
namespace {

constexpr uint32_t kPage = 16;
constexpr swy::StateForms kForms[] = {{}, {.kv_bf16 = true}, {.kv_i8 = true}, {.delta_i16 = true}};

swy_tensor tensor(swy_state_kind kind, uint64_t a, uint64_t b, uint64_t c) {
  swy_tensor t{};
  t.struct_size = sizeof t;
  t.dtype = SWY_F32, t.state = kind, t.rank = 3;
  t.dims[0] = a, t.dims[1] = b, t.dims[2] = c;
  return t;
}
const swy_tensor kKv = tensor(SWY_STATE_PAGED, 2, 3, 24), kDelta = tensor(SWY_STATE_SLOTTED, 3, 20, 7);

// Rows of very different sizes, one of zeros, and one too small to matter.
std::vector<float> numbers(uint64_t count) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> x(count);
  for (uint64_t i = 0; i < count; ++i) x[i] = std::ldexp(normal(random), static_cast<int>(random() % 40) - 20);
  return x;
}

std::vector<float> there_and_back(const swy::DeviceState& state, const std::vector<float>& x) {
  std::vector<float> back(x.size(), NAN);
  const std::vector<char> unit = state.from_canonical(x.data());
  EXPECT_EQ(unit.size(), state.unit_bytes());
  state.to_canonical(unit, back.data());
  return back;
}

TEST(DeviceStates, SizesOfUnits) {
  const uint64_t kv = 2 * 3 * 24 * kPage, delta = 3 * 20 * 7;
  for (const swy::StateForms& forms : kForms) {
    const swy::DeviceState keys(kKv, kPage, forms), rule(kDelta, kPage, forms);
    EXPECT_EQ(keys.canonical_bytes(), kv * 4);
    EXPECT_EQ(rule.canonical_bytes(), delta * 4);
    // Scales: 96 rows of keys and values in 384 bytes, which are whole rows of 24; 21 columns in 84 bytes.
    EXPECT_EQ(keys.unit_bytes(), forms.kv_i8 ? kv + 384 : kv * (forms.kv_bf16 ? 2 : 4));
    EXPECT_EQ(rule.unit_bytes(), forms.delta_i16 ? 928 : delta * 4);
  }
}

TEST(DeviceStates, RowsAreContiguous) {
  std::vector<float> x(3 * 20 * 7);
  for (uint64_t head = 0; head < 3; ++head) {
    for (uint64_t k = 0; k < 20; ++k) {
      for (uint64_t v = 0; v < 7; ++v) x[(head * 20 + k) * 7 + v] = static_cast<float>(head * 10000 + v * 100 + k);
    }
  }
  const std::vector<char> unit = swy::DeviceState(kDelta, kPage, {}).from_canonical(x.data());
  const auto* row = reinterpret_cast<const float*>(unit.data()) + (2 * 7 + 5) * 20;
  for (uint64_t k = 0; k < 20; ++k) EXPECT_EQ(row[k], static_cast<float>(20000 + 500 + k));
}

TEST(DeviceStates, FullFormsAreExact) {
  for (const swy_tensor* t : {&kKv, &kDelta}) {
    const swy::DeviceState state(*t, kPage, {});
    const std::vector<float> x = numbers(state.canonical_bytes() / 4);
    EXPECT_EQ(there_and_back(state, x), x);
  }
}

// The largest error of a row, in units of its largest element, for rows with `stride` between elements.
double worst(const swy_tensor& t, const swy::StateForms& forms, uint64_t width, uint64_t stride) {
  const swy::DeviceState state(t, kPage, forms);
  std::vector<float> x = numbers(state.canonical_bytes() / 4);
  const auto at = [&](uint64_t row, uint64_t i) { return row / stride * stride * width + row % stride + i * stride; };
  for (uint64_t i = 0; i < width; ++i) x[at(1, i)] = 0, x[at(2, i)] = i == 3 ? 1e-31f : 0;
  const std::vector<float> back = there_and_back(state, x);
  double most = 0;
  for (uint64_t row = 0; row < x.size() / width; ++row) {
    const bool vanishes = row == 1 || row == 2;
    float largest = 0, error = 0;
    for (uint64_t i = 0; i < width; ++i) {
      largest = std::max(largest, std::fabs(x[at(row, i)]));
      error = std::max(error, std::fabs(x[at(row, i)] - back[at(row, i)]));
      EXPECT_TRUE(!vanishes || back[at(row, i)] == 0);
    }
    if (!vanishes) most = std::max(most, static_cast<double>(error) / largest);
  }
  return most;
}

TEST(DeviceStates, BytesErrByHalfAStep) {
  EXPECT_LE(worst(kKv, {.kv_i8 = true}, 24, 1), 0.5 / 127 * (1 + 1e-6));
  EXPECT_GE(worst(kKv, {.kv_i8 = true}, 24, 1), 0.4 / 127);
}

TEST(DeviceStates, ShortsErrByHalfAStepOfAPowerOfTwo) {
  EXPECT_LE(worst(kDelta, {.delta_i16 = true}, 20, 7), 1.0 / 32767 * (1 + 1e-6));
  EXPECT_GE(worst(kDelta, {.delta_i16 = true}, 20, 7), 0.25 / 32767);
}

// What has been rounded once stays as it is: the scale is a power of two.
TEST(DeviceStates, RoundedShortsStay) {
  const swy::DeviceState state(kDelta, kPage, {.delta_i16 = true});
  const std::vector<float> once = there_and_back(state, numbers(state.canonical_bytes() / 4));
  EXPECT_EQ(there_and_back(state, once), once);
}

TEST(DeviceStates, ZeroBytesAreZeros) {
  for (const swy::StateForms& forms : kForms) {
    for (const swy_tensor* t : {&kKv, &kDelta}) {
      const swy::DeviceState state(*t, kPage, forms);
      std::vector<float> x(state.canonical_bytes() / 4, NAN);
      state.to_canonical(std::vector<char>(state.unit_bytes()), x.data());
      for (const float v : x) EXPECT_EQ(v, 0.0f);
    }
  }
}

// The largest scale is 2^104.
TEST(DeviceStates, ShortsEndBelow2To119) {
  const swy::DeviceState state(kDelta, kPage, {.delta_i16 = true});
  std::vector<float> x(state.canonical_bytes() / 4, 32767 * 0x1p104f);
  x[0] = -x[0];
  EXPECT_EQ(there_and_back(state, x), x);
  x[0] = std::nextafter(x[0], -INFINITY);
  const std::vector<float> back = there_and_back(state, x);
  for (uint64_t i = 0; i < 20; ++i) EXPECT_TRUE(std::isnan(back[i * 7]));
  EXPECT_EQ(back.back(), x.back());
}

TEST(DeviceStates, WhatIsNotFiniteBecomesNan) {
  for (const swy::StateForms& forms : {kForms[2], kForms[3]}) {
    const swy_tensor& t = forms.kv_i8 ? kKv : kDelta;
    const uint64_t stride = forms.kv_i8 ? 1 : 7, width = forms.kv_i8 ? 24 : 20;
    for (const float bad : {NAN, INFINITY}) {
      const swy::DeviceState state(t, kPage, forms);
      std::vector<float> x(state.canonical_bytes() / 4, 1.0f);
      x[3 * stride] = bad;
      const std::vector<float> back = there_and_back(state, x);
      for (uint64_t i = 0; i < width; ++i) EXPECT_TRUE(std::isnan(back[i * stride]));
      EXPECT_FALSE(std::isnan(back.back()));
    }
  }
}

}  // namespace
}  // namespace switchyard::testing
