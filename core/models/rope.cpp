// SPDX-License-Identifier: Apache-2.0
#include "core/models/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/base/printable.h"

namespace switchyard {
namespace {

// How much larger cosines and sines become when the context grows by `factor`.
double magnitude(double factor, double weight = 1) { return factor <= 1 ? 1 : 0.1 * weight * std::log(factor) + 1; }

}  // namespace

Rope::Rope(const Config& c, uint32_t head_dim, double theta_or) {
  constexpr uint32_t kMostElements = 65536;
  const Config rope = c.inner(c.find("rope_parameters") != nullptr ? "rope_parameters" : "rope_scaling");
  const std::string type = rope.text_or("rope_type", rope.text_or("type", c.text_or("rope_type", "default")));
  c.require(type == "default" || type == "yarn",
            fmt::format("rope_type '{}' is not supported; default and yarn are", printable(type)), Code::unsupported);
  const double theta = rope.number_or("rope_theta", c.number_or("rope_theta", theta_or));
  c.require(theta > 1, fmt::format("rope_theta is {}; it must be more than 1", theta));
  c.require(rope.number_or("partial_rotary_factor", c.number_or("partial_rotary_factor", 1)) == 1,
            "partial_rotary_factor must be 1; all of a head turns in this architecture", Code::unsupported);
  c.require(c.count_or("rotary_dim", head_dim) == head_dim,
            fmt::format("rotary_dim must be head_dim, {}, in this architecture", head_dim), Code::unsupported);
  c.require(head_dim % 2 == 0 && head_dim <= kMostElements,
            fmt::format("head_dim is {}; it must be an even number of at most {}", head_dim, kMostElements));
  if (!c.ok()) return;
  std::vector<double> speeds;
  for (uint32_t i = 0; i < head_dim / 2; ++i) speeds.push_back(std::pow(theta, -2.0 * i / head_dim));
  if (type == "yarn") stretch(c, rope, theta, speeds);
  for (const double speed : speeds) inv_freq.push_back(static_cast<float>(speed));
  c.require(std::all_of(inv_freq.begin(), inv_freq.end(), [](float f) { return std::isfinite(f); }) && scale > 0 &&
                std::isfinite(scale),
            "the settings of the rotary embedding give angles that are no numbers");
}

// Pairs that make more than beta_fast turns in the original context keep their speed; those that make fewer than
// beta_slow are slowed down by `factor`; between them, a ramp.
void Rope::stretch(const Config& c, const Config& rope, double theta, std::vector<double>& speeds) {
  const double original = rope.count("original_max_position_embeddings");
  const bool has_factor = rope.find("factor") != nullptr;
  const double factor =
      has_factor ? rope.number_or("factor", 1) : c.number_or("max_position_embeddings", original) / original;
  const double fast = rope.number_or("beta_fast", 32), slow = rope.number_or("beta_slow", 1);
  const bool weighted = rope.find("mscale") != nullptr && rope.find("mscale_all_dim") != nullptr;
  const double plain =
      weighted ? magnitude(factor, rope.number_or("mscale", 1)) / magnitude(factor, rope.number_or("mscale_all_dim", 1))
               : magnitude(factor);
  scale = static_cast<float>(rope.number_or("attention_factor", plain));

  const double dim = 2.0 * static_cast<double>(speeds.size());
  const auto pair_with = [&](double turns) {
    return dim * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
  };
  const bool whole = rope.flag_or("truncate", true);
  const double first = std::max(whole ? std::floor(pair_with(fast)) : pair_with(fast), 0.0);
  double last = std::min(whole ? std::ceil(pair_with(slow)) : pair_with(slow), dim - 1);
  if (first == last) last += 0.001;
  for (size_t i = 0; i < speeds.size(); ++i) {
    const double slowed = std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
    speeds[i] *= slowed / factor + (1 - slowed);
  }
}

}  // namespace switchyard
