// SPDX-License-Identifier: Apache-2.0
// Random rows and settings for differential tests: every kind of logits, every combination of the chain's steps.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "switchyard/sampling_row.h"

namespace switchyard::testing {

struct RandomRow {
  swy_sample_params params{};
  std::vector<float> logits;
  std::vector<uint32_t> mask, counts;
  std::vector<swy_logit_bias> biases;
  swy_sample_row_in in{};

  // A row of `vocab` ids; everything follows from `random`.
  RandomRow(std::mt19937_64& random, uint32_t vocab);
  RandomRow(const RandomRow&) = delete;
  RandomRow& operator=(const RandomRow&) = delete;

  // The reference's result.
  int32_t expected(swy_sample_row_out& out) const;
};

// A vocabulary: mostly small, often next to a multiple of 64.
uint32_t random_vocab(std::mt19937_64& random, uint32_t largest);

}  // namespace switchyard::testing
