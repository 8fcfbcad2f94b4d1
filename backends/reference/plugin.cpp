// SPDX-License-Identifier: Apache-2.0
// The reference backend: every operation in plain loops, with fp32 values and fp64 sums. Other backends are tested
// against it. It is slow.
#include <vector>

#include "kernels.h"
#include "switchyard/sampling_math.h"
#include "switchyard/sdk/host_backend.hpp"

namespace {

const std::vector<swy::HostKernel>& all_kernels() {
  static const std::vector<swy::HostKernel> kernels = [] {
    std::vector<swy::HostKernel> all;
    for (const auto list : {reference::embedding_kernels(), reference::rms_norm_kernels(), reference::linear_kernels(),
                            reference::attention_kernels(), reference::gated_delta_kernels(), reference::moe_kernels(),
                            reference::mlp_kernels(), reference::add_kernels(), reference::lm_head_kernels(),
                            reference::cast_kernels(), reference::sample_kernels()}) {
      all.insert(all.end(), list.begin(), list.end());
    }
    return all;
  }();
  return kernels;
}

// Offered only if this build computes the bits that sampling_math.h requires.
constexpr uint32_t kSampling = SWY_SAMPLING_TOPK_CANDIDATES | SWY_SAMPLING_TOKEN;

swy::HostBackend backend{"reference",
                         "0.1.0",
                         all_kernels().data(),
                         all_kernels().size(),
                         "plain loops, fp64 sums",
                         SWY_SAMPLING_LOGITS | (swy_sampling_self_check() ? kSampling : 0u),
                         SWY_SAMPLES_GREEDY | SWY_SAMPLES_SEEDED | SWY_SAMPLES_TEMPERATURE | SWY_SAMPLES_TOP_K |
                             SWY_SAMPLES_TOP_P | SWY_SAMPLES_MIN_P | SWY_SAMPLES_MASK | SWY_SAMPLES_PENALTIES |
                             SWY_SAMPLES_BIAS | SWY_SAMPLES_LOGPROBS | SWY_SAMPLES_STOP_IDS};

}  // namespace

SWY_HOST_BACKEND("reference", "0.1.0", "", backend)
