// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/plan/plan.h"

namespace switchyard {
namespace {

std::string summary(const Plan& plan) {
  size_t kernels = 0, lists = 0;
  for (const PlanNode& n : plan.nodes) kernels += n.copy_from < 0 ? 1 : 0;
  for (const PlanSegment& s : plan.segments) lists += s.copy ? 0 : 1;
  uint64_t arena = 0;
  for (const uint64_t bytes : plan.arena_bytes) arena += bytes;
  const auto many = [](size_t n, const char* of, const char* ofs) {
    return fmt::format("{} {}", n, n == 1 ? of : ofs);
  };
  return fmt::format("{}, context {}: {} in {}, {}, {}, {:.1f} KiB of activations\n",
                     many(plan.bucket.rows, "row", "rows"), plan.bucket.context, many(kernels, "kernel", "kernels"),
                     many(lists, "list", "lists"), many(plan.casts(), "cast", "casts"),
                     many(plan.copies(), "copy", "copies"), static_cast<double>(arena) / 1024);
}

// "segment 3: copy of x from a:0 to b:0, waits for 2, signals"
std::string segment_text(const Plan& plan, size_t index) {
  const PlanSegment& s = plan.segments[index];
  const PlanNode& first = plan.nodes[s.begin];
  const std::string what =
      s.copy ? fmt::format("{} from {} to {}", first.op.name, plan.device_names[static_cast<size_t>(first.copy_from)],
                           plan.device_names[s.device])
             : fmt::format("{} kernels on {}", s.end - s.begin, plan.device_names[s.device]);
  return fmt::format("segment {}: {}{}{}\n", index, what,
                     s.waits.empty() ? "" : fmt::format(", waits for {}", fmt::join(s.waits, ", ")),
                     s.signals ? ", signals" : "");
}

}  // namespace

std::string explain_text(const Plan& plan, bool considered) {
  std::string out = summary(plan);
  for (const std::string& w : plan.warnings) out += "warning: " + w + "\n";
  for (const PlanDecision& d : plan.decisions) {
    out += fmt::format("{:<28} {:<12} {} ({}{})\n", d.op, d.op_kind, d.chosen, d.reason,
                       considered || d.source != "estimate" ? "; " + d.source : "");
    if (!considered) continue;
    for (const std::string& move : d.moves) out += "    " + move + "\n";
    for (const Considered& c : d.considered) {
      out +=
          fmt::format("    {} {} as {}: {}\n", c.device, c.kernel.empty() ? "-" : c.kernel, c.as,
                      c.accepted ? fmt::format("can, {:.1f} us{}{}{}", c.cost_us,
                                               c.tuned_us > 0 ? fmt::format(", {:.1f} us as measured", c.tuned_us) : "",
                                               c.reason.empty() ? "" : ": ", c.reason)
                                 : c.reason);
    }
  }
  if (considered && plan.segments.size() > 1) {
    for (size_t i = 0; i < plan.segments.size(); ++i) out += segment_text(plan, i);
  }
  return out;
}

}  // namespace switchyard
