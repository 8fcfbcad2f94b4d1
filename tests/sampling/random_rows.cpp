// SPDX-License-Identifier: Apache-2.0
#include "tests/sampling/random_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace switchyard::testing {
namespace {

class Dice {
 public:
  explicit Dice(std::mt19937_64& random) : random_(random) {}
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  bool chance(double p) { return static_cast<double>(random_() >> 11) * 0x1p-53 < p; }
  float normal() { return normal_(random_); }
  template <class T>
  T of(std::initializer_list<T> values) {
    return values.begin()[below(static_cast<uint32_t>(values.size()))];
  }

 private:
  std::mt19937_64& random_;
  std::normal_distribution<float> normal_;
};

std::vector<float> random_logits(Dice& dice, uint32_t vocab) {
  const uint32_t kind = dice.below(9);
  const float spread = dice.of({0.3f, 1.0f, 3.0f, 10.0f});
  std::vector<float> x(vocab);
  for (float& v : x) {
    v = dice.normal() * spread;
    if (kind == 1) v = std::round(v);
    if (kind == 2) v = 0.25f;
    if (kind == 3 && dice.below(vocab) < 3) v += 18;
    if (kind == 4) v = 1.0f + static_cast<float>(dice.below(6)) * 0x1p-23f;
    if (kind == 5) v *= dice.of({1e30f, 1e20f, 1e37f});
    if (kind == 6) v *= dice.of({1e-30f, 1e-44f, 1e-20f});
    if (kind == 7 && dice.chance(0.5)) v = -std::numeric_limits<float>::infinity();
    if (kind == 8 && dice.chance(0.5)) v = dice.of({0.0f, -0.0f});
  }
  if (dice.chance(0.02)) {
    x[dice.below(vocab)] = dice.of({std::nanf(""), -std::nanf(""), std::numeric_limits<float>::infinity()});
  }
  if (dice.chance(0.01)) std::fill(x.begin(), x.end(), -std::numeric_limits<float>::infinity());
  return x;
}

void random_params(Dice& dice, swy_sample_params& p, uint64_t seed) {
  swy_sample_params_init(&p);
  p.seed = seed;
  p.temperature = dice.of({0.0f, 1.0f, 1.0f, 0.7f, 1.3f, 2.5f, 0.05f, 1e-4f, 1e20f});
  if (dice.chance(0.5)) p.top_k = dice.of({1, 2, 5, 40, 64, 1000, 5000, INT32_MAX});
  if (dice.chance(0.5)) p.top_p = dice.of({1e-6f, 0.1f, 0.5f, 0.9f, 0.95f, 0.999f, 0.99999f});
  if (dice.chance(0.3)) p.min_p = dice.of({1e-12f, 1e-4f, 0.01f, 0.05f, 0.3f, 1.0f});
  if (dice.chance(0.3)) p.repetition_penalty = dice.of({0.5f, 1.1f, 1.3f, 1e-9f, 1e9f});
  if (dice.chance(0.3)) p.presence_penalty = dice.of({-2.0f, -0.3f, 0.6f, 2.0f, 1e-38f});
  if (dice.chance(0.3)) p.frequency_penalty = dice.of({-1.5f, 0.1f, 0.7f, 2.0f});
  if (dice.chance(0.5)) p.flags = SWY_SAMPLE_LOGPROB;
  if (swy_sample_params_normalise(&p, nullptr) == 0) throw std::logic_error("parameters out of range");
}

}  // namespace

RandomRow::RandomRow(std::mt19937_64& random, uint32_t vocab) {
  Dice dice(random);
  logits = random_logits(dice, vocab);
  random_params(dice, params, random());
  if (dice.chance(0.3)) {
    const double density = dice.of({0.0, 0.02, 0.5, 1.0});
    mask.resize((vocab + 31) / 32);
    for (uint32_t id = 0; id < vocab; ++id) mask[id / 32] |= (dice.chance(density) ? 1u : 0u) << (id % 32);
  }
  if (dice.chance(0.5)) {
    const double density = dice.of({0.001, 0.05, 0.6});
    counts.resize(vocab);
    for (uint32_t& word : counts) {
      if (dice.chance(density)) word = dice.of({0u, SWY_SEEN_IN_PROMPT}) | dice.of({0u, 1u, 7u, 0x7fffffffu});
    }
  }
  if (dice.chance(0.3)) {
    for (uint32_t id = dice.below(vocab); id < vocab + 3; id += 1 + dice.below(1 + vocab / 4)) {
      biases.push_back({id, dice.of({dice.normal() * 5, 100.0f, -100.0f, 3e38f, -3e38f})});
    }
  }
  in.logits = logits.data();
  in.vocab = vocab;
  in.bias_count = static_cast<uint32_t>(biases.size());
  in.biases = biases.data();
  in.mask = mask.empty() ? nullptr : mask.data();
  in.counts = counts.empty() ? nullptr : counts.data();
  in.position = dice.chance(0.2) ? random() : dice.below(5000);
}

int32_t RandomRow::expected(swy_sample_row_out& out) const {
  std::vector<uint64_t> workspace(in.vocab);
  return swy_sample_row(&params, &in, workspace.data(), &out);
}

uint32_t random_vocab(std::mt19937_64& random, uint32_t largest) {
  Dice dice(random);
  if (dice.chance(0.4)) return dice.of({1u, 2u, 31u, 32u, 33u, 63u, 64u, 65u, 95u, 127u, 128u, 129u, 257u});
  return 1 + dice.below(largest);
}

}  // namespace switchyard::testing
