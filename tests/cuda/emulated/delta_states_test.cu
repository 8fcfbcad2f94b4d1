// SPDX-License-Identifier: Apache-2.0
// States of the delta rule in 16 bits: the kernels round a column as the SDK does that brings it in.
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "gated_delta_state.cuh"
#include "switchyard/sdk/device_states.hpp"

namespace {

constexpr uint32_t kKeys = 8;

struct Column {
  uint16_t elements[kKeys];
  float scale;
};

swy_tensor tensor() {
  swy_tensor t{};
  t.struct_size = sizeof t;
  t.dtype = SWY_F32, t.state = SWY_STATE_SLOTTED, t.rank = 3;
  t.dims[0] = 1, t.dims[1] = kKeys, t.dims[2] = 1;
  return t;
}
const swy_tensor kTensor = tensor();
const swy::DeviceState kState(kTensor, 1, {.delta_i16 = true});

// As kernels keep it.
Column kept(const float (&x)[kKeys]) {
  float largest = 0;
  for (const float v : x) largest = std::fmax(largest, std::fabs(v));
  Column c;
  c.scale = gpu::scale_of(largest);
  for (uint32_t i = 0; i < kKeys; i += 2) {
    const uint32_t two = gpu::bits_of(x[i], x[i + 1], gpu::inverse_of_power(c.scale));
    std::memcpy(c.elements + i, &two, sizeof two);
  }
  return c;
}

void expect_same_column(const float (&x)[kKeys]) {
  const Column ours = kept(x);
  const std::vector<char> unit = kState.from_canonical(x);
  Column sdk;
  std::memcpy(&sdk.elements, unit.data(), sizeof sdk.elements);
  std::memcpy(&sdk.scale, unit.data() + sizeof sdk.elements, sizeof sdk.scale);
  float wanted[kKeys];
  kState.to_canonical(unit, wanted);
  ASSERT_EQ(std::isnan(ours.scale), std::isnan(sdk.scale)) << x[0];
  for (uint32_t i = 0; i < kKeys; i += 2) {
    float got[2];
    uint32_t two;
    std::memcpy(&two, sdk.elements + i, sizeof two);
    gpu::floats_of(two, sdk.scale, got[0], got[1]);
    for (uint32_t e = 0; e < 2; ++e) {
      if (std::isnan(sdk.scale)) {
        ASSERT_TRUE(std::isnan(got[e]) && std::isnan(wanted[i + e]));
        continue;
      }
      ASSERT_EQ(got[e], wanted[i + e]);
      ASSERT_EQ(ours.elements[i + e], sdk.elements[i + e]) << x[i + e] << " in steps of " << ours.scale;
    }
  }
  if (!std::isnan(sdk.scale)) ASSERT_EQ(ours.scale, sdk.scale);
}

TEST(DeltaStates, AreRoundedAsTheSdkDoes) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (int exponent = -95; exponent < 128; ++exponent) {
    for (int n = 0; n < 50; ++n) {
      float x[kKeys];
      for (float& v : x) v = std::ldexp(normal(random), exponent);
      if (std::fabs(x[0]) < 1e-30f || std::isinf(x[0])) continue;
      ASSERT_NO_FATAL_FAILURE(expect_same_column(x));
    }
  }
}

TEST(DeltaStates, HaveTheSmallestScale) {
  for (const float least : {32767.0f, std::nextafter(32767.0f, 1e9f), 32768.0f, 65534.0f}) {
    for (const int exponent : {-80, 0, 90}) {
      float x[kKeys] = {std::ldexp(least, exponent)};
      ASSERT_NO_FATAL_FAILURE(expect_same_column(x));
    }
  }
}

TEST(DeltaStates, TiesGoToEvenElements) {
  const float x[kKeys] = {20000, 0.5f, 1.5f, -0.5f, -1.5f, 2.5f, 0.75f, -0.25f};
  ASSERT_NO_FATAL_FAILURE(expect_same_column(x));
  const Column c = kept(x);
  const int wanted[kKeys] = {20000, 0, 2, 0, -2, 2, 1, 0};
  for (uint32_t i = 0; i < kKeys; ++i) EXPECT_EQ(c.elements[i] - 32768, wanted[i]);
}

TEST(DeltaStates, BecomeNanFrom2To119) {
  for (const float largest : {32767 * 0x1p104f, std::nextafter(32767 * 0x1p104f, INFINITY), 0x1p119f, FLT_MAX}) {
    const float x[kKeys] = {1, -largest};
    ASSERT_NO_FATAL_FAILURE(expect_same_column(x));
    EXPECT_EQ(std::isnan(kept(x).scale), largest > 32767 * 0x1p104f);
  }
}

}  // namespace
