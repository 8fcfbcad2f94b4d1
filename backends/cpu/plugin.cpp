// SPDX-License-Identifier: Apache-2.0
// The CPU backend: AVX2, AVX-512 and AMX kernels over one packed layout of weights.
#include <cpuid.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "attention.h"
#include "isa.h"
#include "kernels.h"
#include "switchyard/sampling_math.h"
#include "switchyard/sdk/host_backend.hpp"

namespace {

const std::vector<swy::HostKernel>& all_kernels() {
  static const std::vector<swy::HostKernel> kernels = [] {
    std::vector<swy::HostKernel> all;
    for (const auto list :
         {cpu::embedding_kernels(), cpu::rms_norm_kernels(), cpu::linear_kernels(), cpu::attention_kernels(),
          cpu::gated_delta_kernels(), cpu::moe_kernels(), cpu::add_kernels(), cpu::lm_head_kernels(),
          cpu::cast_kernels(), cpu::sample_kernels(), cpu::lm_head_sample_kernels(), cpu::head_split_kernels(),
          cpu::rope_kernels(), cpu::router_kernels(), cpu::mlp_kernels(), cpu::kv_append_kernels(),
          cpu::causal_conv_kernels(), cpu::delta_gates_kernels()}) {
      all.insert(all.end(), list.begin(), list.end());
    }
    return all;
  }();
  return kernels;
}

// "Intel(R) Xeon(R) Processor, amx"
const char* device_name() {
  static const std::string name = [] {
    std::string brand;
    uint32_t r[4] = {};
    for (uint32_t leaf = 0x80000002; leaf <= 0x80000004; ++leaf) {
      if (__get_cpuid(leaf, &r[0], &r[1], &r[2], &r[3]) == 0) break;
      brand.append(reinterpret_cast<const char*>(r), sizeof r);
    }
    brand.erase(std::min(brand.find('\0'), brand.size()));
    brand.erase(0, std::min(brand.find_first_not_of(' '), brand.size()));
    while (!brand.empty() && brand.back() == ' ') brand.pop_back();
    return (brand.empty() ? "x86-64" : brand) + ", " + cpu::isa_name(cpu::best_isa());
  }();
  return name.c_str();
}

constexpr swy_option kIsa = {sizeof(swy_option), SWY_OPTION_STRING, "isa", "auto",
                             "widest instructions to use: auto, baseline, avx2, avx512 or amx"};
constexpr swy_option kExact = {sizeof(swy_option), SWY_OPTION_BOOL, "exact", "0",
                               "keep activations in floating point instead of 8 bits: slower, no rounding error"};
constexpr const swy_option* kOptions[] = {&kIsa, &kExact};

swy_status set_level(std::string_view value, swy_error* error) {
  if (value == "auto") {
    cpu::set_isa(cpu::best_isa());
    return SWY_OK;
  }
  for (const cpu::Isa level : {cpu::Isa::baseline, cpu::Isa::avx2, cpu::Isa::avx512, cpu::Isa::amx}) {
    if (value != cpu::isa_name(level)) continue;
    if (level > cpu::best_isa()) {
      return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "isa=%s cannot be used here: %s; the best is %s",
                       cpu::isa_name(level), cpu::isa_missing(level).c_str(), cpu::isa_name(cpu::best_isa()));
    }
    cpu::set_isa(level);
    return SWY_OK;
  }
  return swy::fail(error, SWY_INVALID_ARGUMENT, SWY_REASON_NONE,
                   "isa is one of auto, baseline, avx2, avx512 and amx, not '%.*s'", static_cast<int>(value.size()),
                   value.data());
}

swy_status configure(const swy_setting* settings, uint32_t count, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    cpu::set_isa(cpu::best_isa());
    cpu::set_exact(false);
    for (uint32_t i = 0; i < count; ++i) {
      const std::string_view name = settings[i].name, value = settings[i].value;
      if (name == kExact.name) cpu::set_exact(value == "1" || value == "true");
      if (name != kIsa.name) continue;
      if (const swy_status s = set_level(value, error); s != SWY_OK) return s;
    }
    return SWY_OK;
  });
}

// Offered only if this build computes the bits that sampling_math.h requires.
constexpr uint32_t kSampling = SWY_SAMPLING_TOPK_CANDIDATES | SWY_SAMPLING_TOKEN;

swy::HostBackend backend{.id = "cpu",
                         .version = "0.1.0",
                         .kernels = all_kernels().data(),
                         .kernel_count = all_kernels().size(),
                         .device_name = device_name(),
                         .sampling = SWY_SAMPLING_LOGITS | (swy_sampling_self_check() ? kSampling : 0u),
                         .sampling_steps = SWY_SAMPLES_GREEDY | SWY_SAMPLES_SEEDED | SWY_SAMPLES_TEMPERATURE |
                                           SWY_SAMPLES_TOP_K | SWY_SAMPLES_TOP_P | SWY_SAMPLES_MIN_P |
                                           SWY_SAMPLES_MASK | SWY_SAMPLES_PENALTIES | SWY_SAMPLES_BIAS |
                                           SWY_SAMPLES_LOGPROBS | SWY_SAMPLES_STOP_IDS,
                         .options = kOptions,
                         .option_count = 2,
                         .configure = configure,
                         .packed_bytes = cpu::packed_bytes,
                         .pack = cpu::pack,
                         .layout_name = cpu::layout_name,
                         .state_layout = cpu::kv_layout,
                         .to_canonical = cpu::kv_to_canonical,
                         .from_canonical = cpu::kv_from_canonical};

}  // namespace

SWY_HOST_BACKEND("cpu", "0.1.0", "ssse3 sse4_1 sse4_2 popcnt", backend)
