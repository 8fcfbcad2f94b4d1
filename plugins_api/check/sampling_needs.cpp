// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/sampling_needs.h"

namespace switchyard::check {

uint32_t sampling_needs(const Case& c) {
  uint32_t needs = 0;
  const auto need = [&](bool that, uint32_t flag) { needs |= that ? flag : 0; };
  for (const Step& s : c.steps) {
    for (const Draw& d : s.draws) {
      need(d.params.inv_temperature == 0, SWY_SAMPLES_GREEDY);
      need(d.params.inv_temperature != 0, SWY_SAMPLES_SEEDED);
      need(d.params.inv_temperature != 0 && d.params.inv_temperature != 1, SWY_SAMPLES_TEMPERATURE);
      need(d.params.top_k > 0, SWY_SAMPLES_TOP_K);
      need(d.params.top_p < 1, SWY_SAMPLES_TOP_P);
      need(d.params.min_p > 0, SWY_SAMPLES_MIN_P);
      need(!c.states.empty(), SWY_SAMPLES_PENALTIES);
      need(!d.mask.empty(), SWY_SAMPLES_MASK);
      need(!d.biases.empty(), SWY_SAMPLES_BIAS);
      need(!d.stops.empty(), SWY_SAMPLES_STOP_IDS);
      need((d.params.flags & SWY_SAMPLE_LOGPROB) != 0, SWY_SAMPLES_LOGPROBS);
      need(c.op != SWY_OP_TOP_CANDIDATES && c.outputs.size() == 3, SWY_SAMPLES_LOGPROBS);
    }
  }
  return needs;
}

}  // namespace switchyard::check
