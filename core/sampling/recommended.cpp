// SPDX-License-Identifier: Apache-2.0
#include "core/sampling/recommended.h"

#include <charconv>

namespace switchyard {
namespace {

template <class T>
void take_number(std::string_view text, T& target) {
  T value{};
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault == std::errc() && end == text.data() + text.size()) target = value;
}

}  // namespace

void take_recommended(std::span<const std::pair<std::string_view, std::string_view>> metadata, SamplingParams& p) {
  for (const auto& [key, value] : metadata) {
    if (key == "sampling.temperature") take_number(value, p.temperature);
    if (key == "sampling.top_p") take_number(value, p.top_p);
    if (key == "sampling.top_k") take_number(value, p.top_k);
    if (key == "sampling.min_p") take_number(value, p.min_p);
    if (key == "sampling.repetition_penalty") take_number(value, p.repetition_penalty);
    if (key == "sampling.presence_penalty") take_number(value, p.presence_penalty);
    if (key == "sampling.frequency_penalty") take_number(value, p.frequency_penalty);
  }
}

}  // namespace switchyard
