// SPDX-License-Identifier: Apache-2.0
// The records of tests/data/sampling/golden.jsonl, which tools/make_sampling_golden.py computed independently.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "switchyard/sampling_row.h"

namespace switchyard::testing {

// All records of one kind.
std::vector<nlohmann::json> golden(const std::string& kind);

// One recorded row, ready to be sampled.
struct GoldenRow {
  swy_sample_params params{};
  std::vector<float> logits;
  std::vector<uint32_t> mask, counts;
  std::vector<swy_logit_bias> biases;
  swy_sample_row_in in{};
  swy_sample_row_out out{};
  int32_t status = 0;
  std::vector<int32_t> likely;  // the most likely ids, at most three

  explicit GoldenRow(const nlohmann::json& record);
  GoldenRow(const GoldenRow&) = delete;
  GoldenRow& operator=(const GoldenRow&) = delete;
};

}  // namespace switchyard::testing
