// SPDX-License-Identifier: Apache-2.0
// How fast each pair of a head's elements turns, as a table: plain rotation (Su et al. 2021) and YaRN (Peng et al.
// 2023, arXiv:2309.00071), which turns slow pairs slower still, for a context longer than the model was first made for.
#pragma once

#include <cstdint>
#include <vector>

#include "core/models/config.h"

namespace switchyard {

struct Rope {
  // Of rope_parameters (or rope_scaling); `theta` is what the family has where they do not say. Refuses types that are
  // neither default nor yarn, and numbers that give no finite speed.
  Rope(const Config& config, uint32_t head_dim, double theta);

  std::vector<float> inv_freq;  // radians a position, of pair i
  float scale = 1;              // of cosines and sines

 private:
  void stretch(const Config& config, const Config& rope, double theta, std::vector<double>& speeds);
};

}  // namespace switchyard
