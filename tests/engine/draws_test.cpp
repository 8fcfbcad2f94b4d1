// SPDX-License-Identifier: Apache-2.0
// Sampled tokens, on every path, have the distribution given by the model's logits and the request's settings:
// chi-square over small sets of tokens, against probabilities that are computed here in fp64.
#include <algorithm>
#include <map>

#include "tests/engine/fixture.h"
#include "tests/support/batches.h"
#include "tests/support/statistics.h"

namespace switchyard {
namespace {

constexpr uint32_t kTogether = 32;
constexpr int32_t kFed = 300;  // every sequence has seen this token alone

struct Setting {
  const char* name;
  void (*change)(SamplingParams& p);
  uint32_t mask_step = 1;  // ids that are multiples of it are allowed
};

const Setting kSettings[] = {{"top-k 12", [](SamplingParams& p) { p.top_k = 12; }},
                             {"top-p 0.5 at 0.7",
                              [](SamplingParams& p) {
                                p.temperature = 0.7f;
                                p.top_p = 0.5f;
                              }},
                             {"min-p 0.05 of 128 tokens at 1.5",
                              [](SamplingParams& p) {
                                p.temperature = 1.5f;
                                p.min_p = 0.05f;
                              },
                              32},
                             {"biases, top-k 30", [](SamplingParams& p) {
                                p.top_k = 30;
                                p.biases = {{7, 12.0f}, {8, 11.0f}, {9, -4.0f}};
                              }}};

// Probabilities by id, without a line of the sampler.
std::vector<double> wanted(std::span<const float> logits, const SamplingParams& p, uint32_t mask_step) {
  std::vector<std::pair<double, uint32_t>> best;
  for (uint32_t i = 0; i < logits.size(); i += mask_step) {
    double logit = logits[i];
    for (const swy_logit_bias& b : p.biases) logit += b.id == i ? b.bias : 0;
    best.emplace_back(logit / p.temperature, i);
  }
  std::stable_sort(best.begin(), best.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  if (p.top_k > 0) best.resize(std::min(best.size(), static_cast<size_t>(p.top_k)));
  const double highest = best[0].first;
  double total = 0, sum = 0;
  for (auto& b : best) total += b.first = std::exp(b.first - highest);
  size_t n = 0;
  while (n < best.size() && sum < p.top_p * total) sum += best[n++].first;
  while (n > 1 && best[n - 1].first < p.min_p) sum -= best[--n].first;
  std::vector<double> probability(logits.size());
  for (size_t i = 0; i < n; ++i) probability[best[i].second] = best[i].first / sum;
  return probability;
}

struct Drawing {
  const char* backend;
  uint32_t draws;
};

class Draws : public ::testing::TestWithParam<Drawing> {};

TEST_P(Draws, FitTheModelsDistribution) {
  const TestModel t = make_model(SWITCHYARD_DEMO_MODEL, GetParam().backend, options_for(kTogether));
  ASSERT_NE(t.model, nullptr);
  std::vector<std::unique_ptr<Session>> sessions;
  while (sessions.size() < kTogether) sessions.push_back(*t.model->session());
  const auto fed = sessions[0]->feed({&kFed, 1});
  ASSERT_TRUE(fed.ok());
  const std::vector<float> logits(fed->begin(), fed->end());
  std::vector<SamplingPath> paths = {SamplingPath::logits};
  if (t.model->device_sampling().candidates) paths.push_back(SamplingPath::candidates);
  if (t.model->device_sampling().token) paths.push_back(SamplingPath::fused);
  for (size_t s = 0; s < std::size(kSettings); ++s) {
    const Setting& setting = kSettings[s];
    SamplingParams params{.temperature = 1.0f, .top_p = 1.0f};
    setting.change(params);
    const std::vector<double> probability = wanted(logits, params, setting.mask_step);
    std::vector<uint64_t> counts(logits.size());
    for (uint32_t drawn = 0; drawn < GetParam().draws;) {
      Batch batch(*t.model);
      std::vector<Batch::Id> ids;
      for (const auto& session : sessions) {
        session->reset();
        params.seed = drawn++;
        Request r = request_of({kFed}, params, 1);
        r.path = paths[(drawn / kTogether + s) % paths.size()];
        if (setting.mask_step > 1) {
          r.mask = [](std::span<const int32_t>, std::span<uint32_t> mask) { std::fill(mask.begin(), mask.end(), 1u); };
        }
        const auto id = batch.add(*session, std::move(r));
        ASSERT_TRUE(id.ok()) << id.status().message();
        ids.push_back(*id);
      }
      ASSERT_NO_FATAL_FAILURE(run_all(batch));
      for (const Batch::Id id : ids) ++counts[static_cast<size_t>(batch.outcome(id)->ids.at(0))];
    }
    for (size_t i = 0; i < counts.size(); ++i) EXPECT_TRUE(counts[i] == 0 || probability[i] > 0) << "token " << i;
    const double away = fit(counts, probability);
    std::printf(
        "%s, %s: %u draws over %ld tokens, chi-square %.2f deviations from its mean\n", GetParam().backend,
        setting.name, GetParam().draws,
        static_cast<long>(std::count_if(probability.begin(), probability.end(), [](double p) { return p > 0; })), away);
    EXPECT_LT(std::abs(away), 4) << setting.name;
  }
}

#ifdef SWITCHYARD_TEST_CPU
INSTANTIATE_TEST_SUITE_P(Backends, Draws, ::testing::Values(Drawing{"reference", 3200}, Drawing{"cpu", 32000}));
#else
INSTANTIATE_TEST_SUITE_P(Backends, Draws, ::testing::Values(Drawing{"reference", 3200}));
#endif

}  // namespace
}  // namespace switchyard
