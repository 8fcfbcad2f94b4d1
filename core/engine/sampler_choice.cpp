// SPDX-License-Identifier: Apache-2.0
#include "core/engine/sampler_choice.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "core/plan/cover.h"
#include "core/plan/pieces.h"

namespace switchyard {
namespace {

// The operation that makes the logits, in a graph of its own.
Graph head_alone(const Graph& graph, uint32_t logits) {
  Graph alone;
  const auto makes = [&](const GraphOp& op) {
    return std::find(op.outputs.begin(), op.outputs.end(), logits) != op.outputs.end();
  };
  const auto op = std::find_if(graph.ops.rbegin(), graph.ops.rend(), makes);
  if (op == graph.ops.rend()) return alone;
  GraphOp& copy = alone.ops.emplace_back(*op);
  const auto take = [](std::vector<uint32_t>& indices, const auto& from, auto& to) {
    for (uint32_t& i : indices) {
      to.push_back(from[i]);
      i = static_cast<uint32_t>(to.size() - 1);
    }
  };
  take(copy.inputs, graph.values, alone.values);
  take(copy.outputs, graph.values, alone.values);
  take(copy.weights, graph.weights, alone.weights);
  take(copy.states, graph.states, alone.states);
  const auto at = std::find(op->outputs.begin(), op->outputs.end(), logits) - op->outputs.begin();
  alone.results = {copy.outputs[static_cast<size_t>(at)]};
  return alone;
}

// The device's kernel that draws tokens, from logits or together with the head.
std::optional<Match> sampler_of(const Graph& head, uint32_t device, const DeviceSampling& abilities,
                                const Matcher& matcher, std::vector<Considered>& considered) {
  Graph graph = head;
  add_head(graph, abilities);
  if (graph.ops.size() <= head.ops.size()) return std::nullopt;
  if (auto match = matcher.best(graph, graph.ops[head.ops.size()], device, "sampler", considered)) return match;
  graph.ops.resize(head.ops.size() + 1);
  graph.results = {graph.ops.back().outputs[0]};
  const auto fused = fuse(graph, reads_of(graph), head.ops.size() - 1);
  return fused ? matcher.best(graph, *fused, device, "sampler", considered) : std::nullopt;
}

}  // namespace

DeviceSampling device_sampling_of(const PlanDevice& device) {
  DeviceSampling s;
  s.device = device.name;
  s.token = (device.info.sampling & SWY_SAMPLING_TOKEN) != 0;
  s.candidates = (device.info.sampling & SWY_SAMPLING_TOPK_CANDIDATES) != 0;
  s.steps = device.info.sampling_steps;
  const void* limits =
      device.api->get_extension == nullptr ? nullptr : device.api->get_extension(device.handle, SWY_EXT_SAMPLING);
  if (limits != nullptr) {
    const auto& theirs = *static_cast<const swy_sampling*>(limits);
    std::memcpy(&s.limits, limits, std::min<size_t>(theirs.struct_size, sizeof s.limits));
  }
  return s;
}

SamplerChoice choose_sampler(const Graph& graph, const Head& head, const std::vector<PlanDevice>& devices,
                             uint32_t home, const PlanPolicy& policy, const std::vector<VariantRule>& variants,
                             const swy_bucket& bucket) {
  SamplerChoice choice;
  const Graph alone = head_alone(graph, head.logits);
  const Matcher matcher(devices, variants, bucket, policy.tuning.get());
  const double copy_us = copy_cost_us(static_cast<double>(value_bytes(graph.values[head.logits], bucket)));
  const auto say = [&](uint32_t d, std::string reason) {
    choice.answers.push_back({devices[d].name, "", "sampler", false, 0, std::move(reason)});
  };
  for (uint32_t d = 0; d < devices.size(); ++d) {
    const DeviceSampling abilities = device_sampling_of(devices[d]);
    if (!abilities.token && (d != home || !abilities.candidates)) {
      say(d, abilities.candidates ? "gives candidates only, of logits that it makes itself" : "offers no sampler");
      continue;
    }
    if (d != home && devices[d].backend == policy.last_resort) {
      say(d, "samples for no other device: the host is faster");
      continue;
    }
    std::vector<Considered> considered;
    const auto match = sampler_of(alone, d, abilities, matcher, considered);
    if (!match && d != home) {
      std::string why;
      for (const Considered& c : considered) {
        why += (why.empty() ? "" : "; ") + (c.kernel.empty() ? "" : c.kernel + ": ") + c.reason;
      }
      say(d, why.empty() ? "has no kernel for it" : why);
      continue;
    }
    // Without a kernel for it alone, the home may sample in a range.
    const double cost = (match ? match->cost_us : 0) + (d == home ? 0 : copy_us);
    const std::string copied =
        fmt::format("copies the logits from {}, which takes {:.1f} us of these", devices[home].name, copy_us);
    choice.offers.push_back({d, abilities, choice.answers.size()});
    choice.answers.push_back(
        {devices[d].name, match ? match->kernel->name : "", "sampler", true, cost, d == home ? "" : copied});
  }
  if (!policy.ordered) {
    std::stable_sort(choice.offers.begin(), choice.offers.end(), [&](const SamplerOffer& a, const SamplerOffer& b) {
      return choice.answers[a.answer].cost_us < choice.answers[b.answer].cost_us;
    });
  }
  return choice;
}

}  // namespace switchyard
