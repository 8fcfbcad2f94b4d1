// SPDX-License-Identifier: Apache-2.0
// Which device draws the tokens: the one that makes the logits, or another one that they are copied to.
#pragma once

#include <vector>

#include "core/engine/head.h"
#include "core/engine/sampling_path.h"
#include "core/plan/plan.h"

namespace switchyard {

// A device that can sample.
struct SamplerOffer {
  uint32_t device = 0;
  DeviceSampling abilities;
  size_t answer = 0;  // index into SamplerChoice::answers
};

struct SamplerChoice {
  std::vector<SamplerOffer> offers;  // best first: in the policy's order, or by cost, the copy of the logits included
  std::vector<Considered> answers;   // of all devices
};

// What the device says that it can sample.
DeviceSampling device_sampling_of(const PlanDevice& device);

// The offers for a graph whose logits are made on device `home`, in steps of this bucket.
SamplerChoice choose_sampler(const Graph& graph, const Head& head, const std::vector<PlanDevice>& devices,
                             uint32_t home, const PlanPolicy& policy, const std::vector<VariantRule>& variants,
                             const swy_bucket& bucket);

}  // namespace switchyard
