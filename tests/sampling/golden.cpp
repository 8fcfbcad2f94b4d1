// SPDX-License-Identifier: Apache-2.0
#include "tests/sampling/golden.h"

#include <charconv>
#include <fstream>
#include <stdexcept>

namespace switchyard::testing {

std::vector<nlohmann::json> golden(const std::string& kind) {
  std::ifstream file(SWITCHYARD_TEST_DATA "/sampling/golden.jsonl");
  std::vector<nlohmann::json> found;
  for (std::string line; std::getline(file, line);) {
    nlohmann::json record = nlohmann::json::parse(line);
    if (record.at("kind") == kind) found.push_back(std::move(record));
  }
  if (found.empty()) throw std::runtime_error("no golden records of kind " + kind);
  return found;
}

namespace {

// Eight hexadecimal digits per value, the bytes of little-endian floats.
std::vector<float> floats(const std::string& hex) {
  std::vector<float> values;
  for (size_t i = 0; i + 8 <= hex.size(); i += 8) {
    uint32_t bits = 0;
    std::from_chars(hex.data() + i, hex.data() + i + 8, bits, 16);
    values.push_back(swy_bits_float(__builtin_bswap32(bits)));
  }
  return values;
}

}  // namespace

GoldenRow::GoldenRow(const nlohmann::json& record) {
  const nlohmann::json &p = record.at("params"), &row = record.at("row");
  swy_sample_params_init(&params);
  params.temperature = p.at("temperature");
  params.seed = p.at("seed");
  params.top_k = p.value("top_k", 0);
  params.top_p = p.value("top_p", 1.0f);
  params.min_p = p.value("min_p", 0.0f);
  params.repetition_penalty = p.value("repetition_penalty", 1.0f);
  params.presence_penalty = p.value("presence_penalty", 0.0f);
  params.frequency_penalty = p.value("frequency_penalty", 0.0f);
  params.flags = SWY_SAMPLE_LOGPROB;
  if (swy_sample_params_normalise(&params, nullptr) == 0) throw std::runtime_error("golden parameters out of range");

  logits = floats(row.at("logits"));
  counts.resize(logits.size());
  for (const uint32_t id : row.at("prompt")) counts.at(id) |= SWY_SEEN_IN_PROMPT;
  for (const uint32_t id : row.at("output")) counts.at(id) = swy_count_output(counts.at(id));
  for (const auto& b : row.at("bias")) biases.push_back({b.at(0), b.at(1)});
  if (!row.at("allowed").is_null()) {
    mask.resize((logits.size() + 31) / 32);
    for (const uint32_t id : row.at("allowed")) mask.at(id / 32) |= 1u << (id % 32);
  }
  in = {logits.data(),     static_cast<uint32_t>(logits.size()), static_cast<uint32_t>(biases.size()),
        biases.data(),     mask.empty() ? nullptr : mask.data(), counts.data(),
        row.at("position")};
  status = record.at("status");
  out = {record.at("token"), record.at("id"), swy_bits_float(record.at("logprob_bits"))};
  likely = record.at("likely").get<std::vector<int32_t>>();
}

}  // namespace switchyard::testing
