// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/describe.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/plugin/kernel_names.h"
#include "core/program/op_names.h"

namespace switchyard {
namespace {

std::vector<std::string> flag_names(uint32_t flags, const std::vector<std::pair<uint32_t, const char*>>& names) {
  std::vector<std::string> out;
  for (const auto& [bit, name] : names) {
    if ((flags & bit) != 0) out.emplace_back(name);
  }
  return out;
}

std::vector<std::string> dtype_names(uint32_t mask) {
  std::vector<std::string> out;
  for (swy_dtype d = SWY_F32; d <= SWY_NVFP4; ++d) {
    if ((mask == 0 && d <= SWY_I4A) || (mask & SWY_DTYPE_BIT(d)) != 0) out.push_back(dtype_name(d));
  }
  return out;
}

nlohmann::ordered_json describe_kernels(const Device& device) {
  nlohmann::ordered_json ops = nlohmann::ordered_json::object();
  for (const swy_kernel* k : device.kernels()) {
    nlohmann::ordered_json weights = dtype_names(k->weight_dtypes);
    for (const std::string_view encoding : encodings_of(*k)) weights.push_back(encoding);
    ops[op_kind(*k)].push_back(
        {{"kernel", k->name},
         {"revision", k->op_revision},
         {"weights", k->weight_dtypes == 0 && encodings_of(*k).empty() ? nlohmann::ordered_json("any") : weights},
         {"flags", flag_names(k->flags, {{SWY_KERNEL_CAPTURE_SAFE, "capture_safe"},
                                         {SWY_KERNEL_DETERMINISTIC, "deterministic"},
                                         {SWY_KERNEL_BATCH_INVARIANT, "batch_invariant"},
                                         {SWY_KERNEL_IN_PLACE, "in_place"}})}});
  }
  return ops;
}

nlohmann::ordered_json describe_device(const Device& device) {
  const swy_device_info& info = device.plan().info;
  return {{"name", device.plan().name},
          {"description", info.name == nullptr ? "" : info.name},
          {"arch", info.arch == nullptr ? "" : info.arch},
          {"memory_bytes", info.memory_bytes},
          {"replay", (info.flags & SWY_DEVICE_NATIVE_REPLAY) != 0 ? "native" : "emulated"},
          {"sampling", flag_names(info.sampling, {{SWY_SAMPLING_LOGITS, "logits"},
                                                  {SWY_SAMPLING_TOPK_CANDIDATES, "candidates"},
                                                  {SWY_SAMPLING_TOKEN, "token"}})},
          {"sampling_steps", flag_names(info.sampling_steps, {{SWY_SAMPLES_GREEDY, "greedy"},
                                                              {SWY_SAMPLES_SEEDED, "seeded"},
                                                              {SWY_SAMPLES_TEMPERATURE, "temperature"},
                                                              {SWY_SAMPLES_TOP_K, "top_k"},
                                                              {SWY_SAMPLES_TOP_P, "top_p"},
                                                              {SWY_SAMPLES_MIN_P, "min_p"},
                                                              {SWY_SAMPLES_MASK, "mask"},
                                                              {SWY_SAMPLES_PENALTIES, "penalties"},
                                                              {SWY_SAMPLES_BIAS, "bias"},
                                                              {SWY_SAMPLES_LOGPROBS, "logprobs"},
                                                              {SWY_SAMPLES_STOP_IDS, "stop_ids"}})},
          {"kernels", describe_kernels(device)}};
}

}  // namespace

nlohmann::ordered_json describe_json(const Registry& registry) {
  nlohmann::ordered_json out = {{"backends", nlohmann::ordered_json::array()},
                                {"candidates", nlohmann::ordered_json::array()}};
  for (const Candidate& c : registry.candidates()) {
    out["candidates"].push_back({{"path", c.path},
                                 {"id", c.id},
                                 {"accepted", c.plugin != nullptr},
                                 {"tried", c.tried == Verdict::Tried::now       ? "now"
                                           : c.tried == Verdict::Tried::earlier ? "earlier"
                                                                                : "no"},
                                 {"reason", c.reason}});
    if (c.plugin == nullptr) continue;
    nlohmann::ordered_json backend = {{"id", c.id}, {"version", c.plugin->version()}, {"path", c.path}};
    backend["options"] = nlohmann::ordered_json::array();
    const swy_plugin* api = c.plugin->table();
    for (uint32_t i = 0; i < api->option_count; ++i) {
      const swy_option* o = api->options[i];
      backend["options"].push_back({{"name", o->name}, {"default", o->default_value}, {"help", o->help}});
    }
    backend["devices"] = nlohmann::ordered_json::array();
    for (uint32_t i = 0;; ++i) {
      const auto device = Device::open(*c.plugin, i, {});
      if (!device.ok()) {
        if (i == 0) backend["unavailable"] = device.status().message();
        break;
      }
      backend["devices"].push_back(describe_device(**device));
    }
    out["backends"].push_back(std::move(backend));
  }
  return out;
}

namespace {

std::string in_words(const nlohmann::ordered_json& list) {
  std::string text;
  for (const auto& item : list) text += fmt::format("{}{}", text.empty() ? "" : " ", item.get<std::string>());
  return text.empty() ? "none" : text;
}

// "cpu:0 its description; cpu:1 ...", or why there is no device.
std::string devices_line(const nlohmann::ordered_json& backend) {
  if (backend.contains("unavailable")) return "no device: " + backend["unavailable"].get<std::string>();
  std::string text;
  for (const auto& d : backend["devices"]) {
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", d["name"].get<std::string>(),
                        d["description"].get<std::string>());
  }
  return text;
}

std::string details_of(const nlohmann::ordered_json& backend) {
  std::string out;
  for (const auto& d : backend["devices"]) {
    out += fmt::format("  {}  sampling: {}\n", d["name"].get<std::string>(), in_words(d["sampling"]));
    for (const auto& [op, kernels] : d["kernels"].items()) {
      for (const auto& k : kernels) {
        out += fmt::format("    {:<18} {:<26} weights: {}; {}\n", op, k["kernel"].get<std::string>(),
                           k["weights"].is_string() ? "any" : in_words(k["weights"]), in_words(k["flags"]));
      }
    }
  }
  for (const auto& o : backend["options"]) {
    out += fmt::format("  --set {}.{}={}  {}\n", backend["id"].get<std::string>(), o["name"].get<std::string>(),
                       o["default"].get<std::string>(), o["help"].get<std::string>());
  }
  return out;
}

}  // namespace

std::string describe_text(const Registry& registry, bool details, bool explain) {
  const nlohmann::ordered_json all = describe_json(registry);
  size_t width = 0;
  for (const auto& b : all["backends"]) width = std::max(width, b["id"].get_ref<const std::string&>().size());
  std::string out;
  for (const auto& b : all["backends"]) {
    out += fmt::format("{:<{}}  {}  {}\n", b["id"].get<std::string>(), width, b["version"].get<std::string>(),
                       devices_line(b));
    if (details) out += details_of(b);
  }
  if (out.empty()) out = "no backend was found\n";
  if (!explain) return out;
  out += "\nfiles considered:\n";
  for (const Candidate& c : registry.candidates()) {
    out += fmt::format("  {}: {}\n", c.path, c.plugin != nullptr ? "accepted as " + c.id : c.reason);
  }
  return out;
}

}  // namespace switchyard
