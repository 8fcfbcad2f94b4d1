// SPDX-License-Identifier: Apache-2.0
#include "core/plan/claim.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/plan/range_view.h"

namespace switchyard {
namespace {

// A buffer for a plugin's message.
struct Answer {
  std::array<char, 512> text{};
  swy_error error{sizeof(swy_error), static_cast<uint32_t>(text.size()), text.data(), 0, 0};
};

// Why a claim of `accepted` of `count` operations is none; empty: it is one.
std::string flaw(swy_status status, uint32_t accepted, size_t count, double cost_us, const std::string& reason) {
  if (status == SWY_OK && accepted > count) {
    return fmt::format("takes {} operations where {} were offered", accepted, count);
  }
  if (status == SWY_OK && accepted == 1) return "takes one operation; a range has at least two";
  if (status != SWY_OK || accepted == 0) return reason.empty() ? "declined without a reason" : reason;
  if (!(std::isfinite(cost_us) && cost_us >= 0)) return fmt::format("cannot estimate its cost: {} us", cost_us);
  return {};
}

// The first kept value that an operation before the last produces; null if there is none.
const GraphValue* kept_inside(const Graph& graph, std::span<const GraphOp> ops, const std::vector<uint32_t>& kept) {
  const std::vector<uint32_t>& last = ops.back().outputs;  // those that are kept come in the order of the operations
  if (kept.empty() || std::find(last.begin(), last.end(), kept.front()) != last.end()) return nullptr;
  return &graph.values[kept.front()];
}

// Why the device refuses the range that it claimed, now that it knows how values flow; empty if it accepts.
std::string refusal(const Graph& graph, std::span<const GraphOp> ops, const std::vector<uint32_t>& kept,
                    const swy_bucket& bucket, const PlanDevice& device) {
  const swy_range& range = *device.range();
  const bool asks = range.struct_size >= offsetof(swy_range, accept) + sizeof range.accept && range.accept != nullptr;
  if (!asks) {
    const GraphValue* inside = kept_inside(graph, ops, kept);
    return inside == nullptr ? ""
                             : fmt::format("{} is read outside, which the backend does not ask about", inside->name);
  }
  Answer answer;
  const RangeView view(graph, ops, bucket, kept);
  const swy_status status =
      range.accept(device.handle, view.ops(), view.count(), &bucket, view.values(), &answer.error);
  if (status == SWY_OK) return {};
  return answer.text[0] != '\0' ? answer.text.data() : "declined without a reason";
}

}  // namespace

uint32_t claim_range(const Graph& graph, const std::vector<ValueReads>& reads, size_t begin,
                     std::span<const swy_op* const> offered, const swy_bucket& bucket, const PlanDevice& device,
                     Considered& said) {
  Answer answer;
  uint32_t accepted = 0;
  const swy_status status = device.range()->claim(device.handle, offered.data(), static_cast<uint32_t>(offered.size()),
                                                  &bucket, &accepted, &said.cost_us, &answer.error);
  std::string why_not = flaw(status, accepted, offered.size(), said.cost_us, answer.text.data());
  if (why_not.empty()) {
    const auto ops = std::span(graph.ops).subspan(begin, accepted);
    why_not = refusal(graph, ops, kept_values(graph, reads, begin, accepted), bucket, device);
  }
  said.accepted = why_not.empty();
  said.reason = said.accepted ? answer.text.data() : why_not;
  if (said.accepted) said.as = fmt::format("range of {}", accepted);
  return said.accepted ? accepted : 0;
}

}  // namespace switchyard
