// SPDX-License-Identifier: Apache-2.0
#include "core/engine/memory_need.h"

#include <fmt/format.h>

#include <algorithm>

namespace switchyard {
namespace {

constexpr uint64_t kStepShare = 32;  // share of the free memory beside the weights that advice leaves for steps

std::string gib(uint64_t bytes) { return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1u << 30)); }

std::string smaller_weights(const MemoryNeed& n) {
  if (n.host) return "a file that switchyard convert --pack makes is mapped, and not copied";
  for (const auto& [name, bytes] : {std::pair{"i8", n.weights_i8}, std::pair{"i4", n.weights_i4}}) {
    if (bytes < n.weights && saturating_add(bytes, n.states()) <= n.free) {
      return fmt::format("as {} in groups of 64 they would take about {}", name, gib(bytes));
    }
  }
  const uint64_t least = saturating_add(std::min(n.weights, n.weights_i4), n.states());
  return fmt::format("even as i4 they and the states would take about {}: use another device", gib(least));
}

// Beside the weights.
std::string smaller_states(const MemoryNeed& n) {
  const uint64_t rest = n.free - n.weights, room = rest - rest / kStepShare;
  if (n.budgeted) return room < n.slots + n.page ? "use another device" : gib(room) + " would fit";
  const uint64_t pages = n.page == 0 || room < n.slots ? 0 : (room - n.slots) / n.page;
  const uint64_t context = std::min<uint64_t>(pages / n.sessions * n.page_tokens, n.context);
  const uint64_t sessions = room / std::max<uint64_t>(n.states() / n.sessions, 1);
  std::string advice;
  if (context != 0) advice = fmt::format("--ctx {}", context);
  if (sessions != 0) {
    advice += fmt::format("{}{} session{}", advice.empty() ? "" : " or ", sessions, sessions == 1 ? "" : "s");
  }
  return advice.empty() ? "use another device" : advice + " would fit";
}

}  // namespace

Status check_memory(const MemoryNeed& n) {
  if (n.free == 0 || n.total() <= n.free) return {};
  if (n.weights > n.free) {
    return error(Code::out_of_device_memory, "the weights take {} on {}, and {} are free; {}", gib(n.weights), n.device,
                 gib(n.free), smaller_weights(n));
  }
  if (const uint64_t kept = saturating_add(n.weights, n.states()); kept <= n.free) {
    return error(
        Code::out_of_device_memory,
        "a step of {} rows takes {} on {}, and {} are free beside weights and states; free some memory, or use "
        "a smaller --ctx or --chunk",
        n.step_rows, gib(n.steps), n.device, gib(n.free - kept));
  }
  if (n.budgeted) {
    return error(Code::out_of_device_memory,
                 "the states' budget takes {} on {}, and {} are free beside the weights; {}", gib(n.states()), n.device,
                 gib(n.free - n.weights), smaller_states(n));
  }
  return error(Code::out_of_device_memory,
               "the states of {} session{} of {} tokens take {} on {}, and {} are free beside the weights; {}",
               n.sessions, n.sessions == 1 ? "" : "s", n.context, gib(n.states()), n.device, gib(n.free - n.weights),
               smaller_states(n));
}

}  // namespace switchyard
