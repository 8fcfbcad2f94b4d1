// SPDX-License-Identifier: Apache-2.0
// Every float that can be an argument of the chain's functions.
#include <gtest/gtest.h>

#include <cmath>

#include "switchyard/sdk/row_kernels.hpp"

namespace switchyard {
namespace {

// Skipping whole groups of a row, and completing from candidates, rely on this.
TEST(Exhaustive, WeightsNeverRiseAsTheDistanceGrows) {
  constexpr uint32_t kBlock = 4096;
  const uint32_t end = swy_float_bits(21.0f);
  uint32_t weights[kBlock], last = 1u << 30;
  float distances[kBlock];
  for (uint32_t first = 0; first < end; first += kBlock) {
    for (uint32_t j = 0; j < kBlock; ++j) distances[j] = swy_bits_float((first + j) | 0x80000000u);
    swy::row_kernels().front()->weights(distances, kBlock, 0.0f, weights);
    for (const uint32_t w : weights) {
      ASSERT_LE(w, last) << "near " << -swy_bits_float(first);
      last = w;
    }
  }
  EXPECT_EQ(0u, last);
}

TEST(Exhaustive, PolynomialsStayWithinTheStatedUlps) {
  double exp_worst = 0, log_worst = 0;
  // e^x for x from -80 to -2^-24 (above, the result is 1 to half an ulp), every third float.
  for (uint32_t bits = swy_float_bits(0x1p-24f); bits < swy_float_bits(80.0f); bits += 3) {
    const float x = -swy_bits_float(bits);
    const double exact = std::exp(static_cast<double>(x));
    exp_worst = std::max(exp_worst, std::abs(swy_exp(x) - exact) / std::ldexp(1.0, std::ilogb(exact) - 23));
  }
  // ln x over two octaves away from 1; other octaves differ in the exact part alone.
  for (const float low : {0x1p-64f, 0x1.4p0f, 0x1p5f}) {
    for (uint32_t bits = swy_float_bits(low); bits < swy_float_bits(low * 4); ++bits) {
      const double exact = std::log(static_cast<double>(swy_bits_float(bits)));
      const double error = std::abs(swy_log(swy_bits_float(bits), 0) - exact);
      log_worst = std::max(log_worst, error / std::ldexp(1.0, std::ilogb(exact) - 23));
    }
  }
  std::printf("worst error: exp %.3f ulp, log %.3f ulp\n", exp_worst, log_worst);
  EXPECT_LT(exp_worst, 1.5);
  EXPECT_LT(log_worst, 1.5);
}

}  // namespace
}  // namespace switchyard
