// SPDX-License-Identifier: Apache-2.0
// The arithmetic: published and recorded bits, and how far the polynomials are from the true functions.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/sampling/golden.h"

namespace switchyard {
namespace {

using testing::golden;

// Units in the last place of `exact` between it and `x`.
double ulps(float x, double exact) {
  const int exponent = std::max(std::ilogb(exact), -126);
  return std::abs(static_cast<double>(x) - exact) / std::ldexp(1.0, exponent - 23);
}

TEST(Philox, GivesThePublishedVectors) {
  for (const auto& record : golden("philox")) {
    const std::vector<uint32_t> counter = record.at("counter"), key = record.at("key"), want = record.at("out");
    std::vector<uint32_t> got(4);
    swy_philox4x32_10(counter.data(), key.data(), got.data());
    EXPECT_EQ(want, got);
  }
}

TEST(Philox, PutsSeedPositionAndIdWhereTheDesignSays) {
  const uint32_t counter[4] = {0x89abcdefu, 0x01234567u, 77u, 0u}, key[2] = {0x76543210u, 0xfedcba98u};
  uint32_t out[4];
  swy_philox4x32_10(counter, key, out);
  EXPECT_EQ((uint64_t{out[0]} << 32 | out[1]) | 1u, swy_random_bits(0xfedcba9876543210u, 0x0123456789abcdefu, 77));
}

void expect_bits(const char* kind, float (*f)(float)) {
  for (const auto& record : golden(kind)) {
    const std::vector<uint32_t> in = record.at("in_bits"), want = record.at("out_bits");
    ASSERT_EQ(in.size(), want.size());
    for (size_t i = 0; i < in.size(); ++i) EXPECT_EQ(want[i], swy_float_bits(f(swy_bits_float(in[i])))) << kind << i;
  }
}

TEST(Golden, ExpAndLogHaveTheRecordedBits) {
  expect_bits("exp", [](float x) { return swy_exp(x); });
  expect_bits("log", [](float x) { return swy_log(x, 0); });
}

TEST(Golden, NoiseHasTheRecordedBits) {
  const auto noise = golden("noise").at(0);
  for (size_t i = 0; i < noise.at("at").size(); ++i) {
    const auto& at = noise.at("at").at(i);
    EXPECT_EQ(noise.at("out_bits").at(i).get<uint32_t>(), swy_float_bits(swy_gumbel(at.at(0), at.at(1), at.at(2))));
  }
  const auto bits = golden("gumbel_of_bits").at(0);
  for (size_t i = 0; i < bits.at("r").size(); ++i) {
    const float g = -swy_log(swy_exponential(bits.at("r").at(i).get<uint64_t>()), 0);
    EXPECT_EQ(bits.at("out_bits").at(i).get<uint32_t>(), swy_float_bits(g));
  }
}

TEST(Golden, TheSelfCheckHashIsTheIndependentOne) {
  EXPECT_EQ(golden("self_check").at(0).at("hash").get<uint64_t>(), uint64_t{SWY_SELF_CHECK_HASH});
}

// Noise is largest where u is smallest. There u comes from all 64 bits: the most extreme values are right to a rounding
// and all different, and none reaches SWY_GUMBEL_MAX.
TEST(Noise, IsResolvedInBothTails) {
  const auto tail = golden("tail").at(0);
  std::set<float> seen;
  for (size_t i = 0; i < tail.at("r").size(); ++i) {
    const uint64_t r = std::stoull(tail.at("r").at(i).get<std::string>());
    const float g = -swy_log(swy_exponential(r), 0);
    EXPECT_LT(ulps(g, tail.at("g").at(i)), 1.5) << r;
    EXPECT_LT(g, SWY_GUMBEL_MAX);
    EXPECT_TRUE(seen.insert(g).second) << "two random words far apart give one noise: " << r;
  }
  EXPECT_EQ(0, std::count_if(seen.begin(), seen.end(), [](float g) { return !std::isfinite(g); }));
}

TEST(Noise, ResolvesSmallUAtEveryScale) {
  for (int zeros = 2; zeros < 63; ++zeros) {
    const uint64_t r = (0xb504f333f9de6484u >> zeros) | 1u;
    const double exact = -std::log(-std::log1p(-std::ldexp(static_cast<double>(r), -64)));
    EXPECT_LT(ulps(-swy_log(swy_exponential(r), 0), exact), 2.0) << zeros;
  }
}

// Both log1p branches meet at u = 1/4. Above it, 1 - u is cut to 24 bits before its logarithm is taken.
TEST(Noise, HasNoStepBetweenItsBranches) {
  const uint64_t quarter = uint64_t{1} << 62;
  for (const uint64_t r : {quarter - 1, quarter + 1, quarter - (1u << 30) + 1, quarter + (1u << 30) + 1}) {
    EXPECT_LT(ulps(swy_exponential(r), -std::log1p(-std::ldexp(static_cast<double>(r), -64))), 3.0) << r;
  }
}

// exhaustive_test measures 1.02 ulp for exp and 0.88 for log (away from 1, where the bound is an absolute 1e-7).
TEST(Polynomials, AreWithinTwoUlps) {
  double exp_worst = 0, log_worst = 0;
  for (uint32_t i = 0; i < 2000000; ++i) {
    const float x = -80.0f * static_cast<float>(i) / 2000000.0f;
    exp_worst = std::max(exp_worst, ulps(swy_exp(x), std::exp(static_cast<double>(x))));
    const float y = swy_bits_float(0x20000000u + i * 600);  // 2^-63 to 2^80
    if (std::abs(y - 1.0f) > 0.3f) {
      log_worst = std::max(log_worst, ulps(swy_log(y, 0), std::log(static_cast<double>(y))));
    }
  }
  RecordProperty("exp_worst_ulp", std::to_string(exp_worst));
  RecordProperty("log_worst_ulp", std::to_string(log_worst));
  EXPECT_LT(exp_worst, 2.0);
  EXPECT_LT(log_worst, 2.0);
}

TEST(Polynomials, AreExactWhereTheyMustBe) {
  EXPECT_EQ(1.0f, swy_exp(0.0f));
  EXPECT_EQ(1.0f, swy_exp(-0.0f));
  EXPECT_EQ(0.0f, swy_log(1.0f, 0));
  EXPECT_GT(swy_exp(-80.0f), 0.0f);
  EXPECT_EQ(0.0f, swy_exp(std::nextafter(-80.0f, -81.0f)));
  EXPECT_EQ(0.0f, swy_exp(-std::numeric_limits<float>::infinity()));
  EXPECT_EQ(1u << 30, swy_weight(0.0f));
  EXPECT_EQ(0u, swy_weight(-20.8f));
  EXPECT_EQ(uint64_t{1} << 40, swy_logprob_weight(0.0f));
}

// ---- parameters

std::string refusal(void (*change)(swy_sample_params&)) {
  swy_sample_params p{};
  swy_sample_params_init(&p);
  change(p);
  const swy_sample_params before = p;
  swy_sample_fault fault{};
  if (swy_sample_params_normalise(&p, &fault) == 1) return "accepted";
  EXPECT_EQ(0, std::memcmp(&before, &p, sizeof p)) << "refused parameters are changed";
  return std::string(fault.field) + " must be " + fault.range;
}

TEST(Parameters, OutOfRangeAreRefusedWithTheRange) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinite = std::numeric_limits<float>::infinity();
  const std::string temperature = "temperature must be 0 (greedy) or more, and finite";
  EXPECT_EQ(temperature, refusal([](auto& p) { p.temperature = -0.1f; }));
  EXPECT_EQ(temperature, refusal([](auto& p) { p.temperature = kInfinite; }));
  EXPECT_EQ(temperature, refusal([](auto& p) { p.temperature = kNan; }));
  EXPECT_EQ("top_p must be above 0 and at most 1", refusal([](auto& p) { p.top_p = 0; }));
  EXPECT_EQ("top_p must be above 0 and at most 1", refusal([](auto& p) { p.top_p = 1.01f; }));
  EXPECT_EQ("top_p must be above 0 and at most 1", refusal([](auto& p) { p.top_p = kNan; }));
  EXPECT_EQ("top_k must be 0 (off) or more", refusal([](auto& p) { p.top_k = -1; }));
  EXPECT_EQ("min_p must be from 0 to 1", refusal([](auto& p) { p.min_p = -0.01f; }));
  EXPECT_EQ("min_p must be from 0 to 1", refusal([](auto& p) { p.min_p = 1.01f; }));
  EXPECT_EQ("repetition_penalty must be above 0 and finite", refusal([](auto& p) { p.repetition_penalty = 0; }));
  EXPECT_EQ("repetition_penalty must be above 0 and finite",
            refusal([](auto& p) { p.repetition_penalty = kInfinite; }));
  EXPECT_EQ("presence_penalty must be from -2 to 2", refusal([](auto& p) { p.presence_penalty = 2.1f; }));
  EXPECT_EQ("frequency_penalty must be from -2 to 2", refusal([](auto& p) { p.frequency_penalty = -2.1f; }));
}

TEST(Parameters, ExtremesAreAccepted) {
  EXPECT_EQ("accepted", refusal([](auto& p) { p.temperature = 0; }));
  EXPECT_EQ("accepted", refusal([](auto& p) { p.temperature = FLT_MAX; }));
  EXPECT_EQ("accepted", refusal([](auto& p) { p.top_p = FLT_MIN; }));
  EXPECT_EQ("accepted", refusal([](auto& p) { p.top_k = INT32_MAX; }));
  EXPECT_EQ("accepted", refusal([](auto& p) { p.min_p = 1; }));
  EXPECT_EQ("accepted", refusal([](auto& p) { p.repetition_penalty = FLT_MAX; }));
}

TEST(Parameters, TopPIsRoundedToFifteenBits) {
  const auto q15 = [](float top_p) {
    swy_sample_params p{};
    swy_sample_params_init(&p);
    p.top_p = top_p;
    swy_sample_params_normalise(&p, nullptr);
    return p.top_p_q15;
  };
  EXPECT_EQ(1u, q15(1e-6f));
  EXPECT_EQ(16384u, q15(0.5f));
  EXPECT_EQ(31130u, q15(0.95f));
  EXPECT_EQ(32767u, q15(0.99998f));
  EXPECT_EQ(SWY_TOP_P_OFF, q15(0.99999f)) << "rounds to 1, which is off";
}

// The least sum with sum * 2^15 >= q15 * total, where 64 bits hold the products only in parts.
TEST(Parameters, TopPNeedIsThePrefixRule) {
  swy_sample_params p{};
  for (const uint32_t q15 : {1u, 2u, 16384u, 31130u, 32767u, 32768u}) {
    p.top_p_q15 = q15;
    for (const uint64_t total :
         {uint64_t{1} << 30, (uint64_t{1} << 30) + 1, uint64_t{16777216} << 30, uint64_t{12345678901}}) {
      const unsigned __int128 wanted = static_cast<unsigned __int128>(q15) * total;
      const uint64_t need = swy_top_p_need(&p, total);
      EXPECT_TRUE(static_cast<unsigned __int128>(need) << 15 >= wanted) << q15 << " of " << total;
      EXPECT_TRUE(static_cast<unsigned __int128>(need - 1) << 15 < wanted) << q15 << " of " << total;
    }
  }
}

TEST(Counts, StopAtTheLargestExactOne) {
  EXPECT_EQ(1u, swy_count_output(0));
  EXPECT_EQ(SWY_SEEN_IN_PROMPT | 1u, swy_count_output(SWY_SEEN_IN_PROMPT));
  EXPECT_EQ(SWY_MAX_COUNT, swy_count_output(SWY_MAX_COUNT - 1));
  EXPECT_EQ(SWY_MAX_COUNT, swy_count_output(SWY_MAX_COUNT));
  EXPECT_EQ(0xffffffffu, swy_count_output(0xffffffffu));
}

}  // namespace
}  // namespace switchyard
