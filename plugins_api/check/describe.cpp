// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/describe.h"

#include "plugins_api/check/cases.h"
#include "switchyard/extensions.h"
#include "switchyard/extensions_ahead.h"

namespace switchyard::check {
namespace {

using nlohmann::json;

struct Bit {
  uint32_t bit;
  const char* name;
};

constexpr Bit kKernelFlags[] = {{SWY_KERNEL_CAPTURE_SAFE, "CAPTURE_SAFE"},
                                {SWY_KERNEL_DETERMINISTIC, "DETERMINISTIC"},
                                {SWY_KERNEL_BATCH_INVARIANT, "BATCH_INVARIANT"},
                                {SWY_KERNEL_IN_PLACE, "IN_PLACE"}};
constexpr Bit kDeviceFlags[] = {{SWY_DEVICE_SYNCHRONOUS, "SYNCHRONOUS"},
                                {SWY_DEVICE_HOST_MEMORY, "HOST_MEMORY"},
                                {SWY_DEVICE_NATIVE_REPLAY, "NATIVE_REPLAY"}};
constexpr Bit kSampling[] = {
    {SWY_SAMPLING_LOGITS, "LOGITS"}, {SWY_SAMPLING_TOPK_CANDIDATES, "TOPK_CANDIDATES"}, {SWY_SAMPLING_TOKEN, "TOKEN"}};
constexpr Bit kSteps[] = {{SWY_SAMPLES_GREEDY, "greedy"},
                          {SWY_SAMPLES_SEEDED, "seeded"},
                          {SWY_SAMPLES_TEMPERATURE, "temperature"},
                          {SWY_SAMPLES_TOP_K, "top-k"},
                          {SWY_SAMPLES_TOP_P, "top-p"},
                          {SWY_SAMPLES_MIN_P, "min-p"},
                          {SWY_SAMPLES_MASK, "mask"},
                          {SWY_SAMPLES_PENALTIES, "penalties"},
                          {SWY_SAMPLES_BIAS, "bias"},
                          {SWY_SAMPLES_LOGPROBS, "log-probabilities"},
                          {SWY_SAMPLES_STOP_IDS, "stop ids"}};

template <size_t N>
json names(const Bit (&table)[N], uint32_t mask) {
  json out = json::array();
  for (const Bit& b : table) {
    if ((mask & b.bit) != 0) out.push_back(b.name);
  }
  return out;
}

json types(uint32_t mask) {
  json out = json::array();
  for (const swy_dtype d : {SWY_F32, SWY_F16, SWY_BF16, SWY_I8, SWY_I4, SWY_I4A, SWY_MXFP4}) {
    const std::string name = encoding_name(d, 0);
    if ((mask & SWY_DTYPE_BIT(d)) != 0) out.push_back(name.substr(0, name.find('.')));
  }
  return out;
}

json about_kernel(const swy_kernel& k) {
  const swy_dtype activations = k.activations == 0 ? swy_dtype{SWY_F32} : k.activations;
  return {{"name", k.name},
          {"op", op_name(k.op)},
          {"flags", names(kKernelFlags, k.flags)},
          {"inputs", types(k.input_dtypes)},
          {"outputs", types(k.output_dtypes)},
          {"weights", types(k.weight_dtypes)},
          {"activations", types(SWY_DTYPE_BIT(activations))[0]}};
}

}  // namespace

json describe(const Library& library) {
  json options = json::array();
  const swy_plugin& api = library.api();
  for (uint32_t i = 0; i < api.option_count; ++i) {
    const swy_option& o = *api.options[i];
    options.push_back({{"name", o.name}, {"type", o.type}, {"default", o.default_value}, {"help", o.help}});
  }
  return {{"id", library.id()}, {"version", library.version()}, {"abi", library.abi()}, {"options", options}};
}

void describe_device(const Plugin& plugin, json& about) {
  swy_device_info info{};
  info.struct_size = sizeof info;
  PluginError e;
  e.expect_ok(plugin.api().device_info(0, &info, e.get()), "device_info");
  about["device"] = {{"name", info.name},
                     {"arch", info.arch},
                     {"flags", names(kDeviceFlags, info.flags)},
                     {"sampling", names(kSampling, info.sampling)},
                     {"sampling_steps", names(kSteps, info.sampling_steps)}};
  about["kernels"] = json::array();
  for (const swy_kernel* k : plugin.kernels()) about["kernels"].push_back(about_kernel(*k));
  about["extensions"] = json::array();
  for (const char* name : {SWY_EXT_RANGE, SWY_EXT_RANGE_2, SWY_EXT_SAMPLING, SWY_EXT_PROFILE, SWY_EXT_CANCEL,
                           SWY_EXT_AHEAD, SWY_EXT_GROUP}) {
    if (plugin.extension(name) != nullptr) about["extensions"].push_back(name);
  }
}

}  // namespace switchyard::check
