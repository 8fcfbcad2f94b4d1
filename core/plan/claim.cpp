// SPDX-License-Identifier: Apache-2.0
#include "core/plan/claim.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/plan/range_view.h"

namespace switchyard {
namespace {

constexpr int kMaxOffers = 8;  // of one stretch of operations, each smaller than the last

// A buffer for a plugin's message.
struct Answer {
  std::array<char, 512> text{};
  swy_error error{sizeof(swy_error), static_cast<uint32_t>(text.size()), text.data(), 0, 0};
  std::string why_not() const { return text[0] != '\0' ? text.data() : "declined without a reason"; }
};

// Why a claim of `accepted` of `count` operations is none; empty: it is one.
std::string flaw(swy_status status, uint32_t accepted, size_t count, double cost_us, const Answer& answer) {
  if (status == SWY_OK && accepted > count) {
    return fmt::format("takes {} operations where {} were offered", accepted, count);
  }
  if (status == SWY_OK && accepted == 1) return "takes one operation; a range has at least two";
  if (status != SWY_OK || accepted == 0) return answer.why_not();
  if (!(std::isfinite(cost_us) && cost_us >= 0)) return fmt::format("cannot estimate its cost: {} us", cost_us);
  return {};
}

}  // namespace

Claim claim_range(const Graph& graph, const std::vector<ValueReads>& reads, size_t begin,
                  std::span<const swy_op* const> offered, uint32_t device, const RangeBackend& backend,
                  const Matcher& matcher, std::vector<Considered>& said) {
  const swy_bucket& bucket = matcher.bucket();
  for (int offer = 0; offer < kMaxOffers && offered.size() >= 2; ++offer) {
    Considered c{matcher.device_name(device), backend.name(), "range", false, 0, ""};
    Answer answer;
    uint32_t accepted = 0, next = 0;
    const swy_status claimed = backend.claim(offered, bucket, &accepted, &c.cost_us, &answer.error);
    c.reason = flaw(claimed, accepted, offered.size(), c.cost_us, answer);
    if (!c.reason.empty()) {
      if (offer == 0) said.push_back(std::move(c));  // that it takes no less is no news
      return {};
    }
    const auto ops = std::span(graph.ops).subspan(begin, accepted);
    const RangeView view(graph, ops, bucket, kept_values(graph, reads, begin, accepted));
    Answer refusal;
    c.accepted = backend.accept(view, bucket, &next, &refusal.error) == SWY_OK;
    c.reason = c.accepted ? answer.text.data() : refusal.why_not();
    c.as = offer == 0 && !c.accepted ? "range" : fmt::format("range of {}", accepted);
    const Claim claim{c.accepted ? accepted : 0, c.cost_us};
    said.push_back(std::move(c));
    if (claim.count != 0) return claim;
    offered = offered.first(std::min({offered.size() - 1, size_t{accepted} - 1, size_t{next}}));
  }
  return {};
}

}  // namespace switchyard
