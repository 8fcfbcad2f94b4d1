// SPDX-License-Identifier: Apache-2.0
// The plugin: the reference backend's kernels through the SDK, and the fault that SWITCHYARD_WRONG names.
#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "kernels.h"
#include "tests/plugin/wrong/wrong.h"

namespace {

using swy::HostKernel;

const std::vector<HostKernel>& right_kernels() {
  static const std::vector<HostKernel> kernels = [] {
    std::vector<HostKernel> all;
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

const wrong::Fault* fault = nullptr;

void run_wrong(const swy::Call& call) {
  static const auto kernel = std::find_if(right_kernels().begin(), right_kernels().end(),
                                          [](const HostKernel& k) { return k.op == fault->op; });
  fault->run(call, kernel->run);
}

std::vector<HostKernel> kernels() {
  std::vector<HostKernel> all = right_kernels();
  for (HostKernel& k : all) {
    if (fault != nullptr && fault->run != nullptr && k.op == fault->op) k.run = run_wrong;
  }
  return all;
}

swy_status negotiate(const swy_negotiate_in* in, swy_negotiate_out* out) {
  static const char* const name = std::getenv("SWITCHYARD_WRONG");
  static const std::vector<wrong::Fault> all = wrong::all_faults();
  for (const wrong::Fault& f : all) {
    if (name != nullptr && std::string(name) == f.name) fault = &f;
  }
  if (name != nullptr && *name != '\0' && fault == nullptr) {
    return swy::fail(out->error, SWY_UNSUPPORTED, SWY_REASON_NONE, "there is no fault '%s'", name);
  }
  static const std::vector<HostKernel> list = kernels();
  static swy::HostBackend backend{.id = "wrong",
                                  .version = "1",
                                  .kernels = list.data(),
                                  .kernel_count = list.size(),
                                  .sampling = SWY_SAMPLING_LOGITS | SWY_SAMPLING_TOPK_CANDIDATES | SWY_SAMPLING_TOKEN,
                                  .sampling_steps = SWY_SAMPLES_GREEDY | SWY_SAMPLES_SEEDED | SWY_SAMPLES_TEMPERATURE |
                                                    SWY_SAMPLES_TOP_K | SWY_SAMPLES_TOP_P | SWY_SAMPLES_MIN_P |
                                                    SWY_SAMPLES_MASK | SWY_SAMPLES_PENALTIES | SWY_SAMPLES_BIAS |
                                                    SWY_SAMPLES_LOGPROBS | SWY_SAMPLES_STOP_IDS};
  if (fault != nullptr && fault->backend != nullptr) fault->backend(backend);
  const swy_status s = swy::negotiate(backend, in, out);
  if (s != SWY_OK || fault == nullptr || fault->table == nullptr) return s;
  static swy_plugin table;
  table = *out->plugin;
  fault->table(table);
  out->plugin = &table;
  return SWY_OK;
}

}  // namespace

SWY_PLUGIN_NOTE("wrong", "1", "");
extern "C" SWY_EXPORT swy_status switchyard_plugin_negotiate(const swy_negotiate_in* in, swy_negotiate_out* out) {
  return negotiate(in, out);
}
