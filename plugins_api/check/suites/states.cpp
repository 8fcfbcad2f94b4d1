// SPDX-License-Identifier: Apache-2.0
// states: a device may keep them in fewer bytes than fp32. They come back as they went in but for one rounding.
#include <cmath>

#include "plugins_api/check/kit.h"
#include "plugins_api/check/suites.h"
#include "switchyard/weights.h"

namespace switchyard::check {
namespace {

// Every state of the table that is not the backend's own, there and back: a device that keeps it in fewer bytes may
// lose as much as rounding to bf16, or to integers with a scale.
std::string come_back(const Kit& kit) {
  const Plugin& p = kit.plugin();
  const Claims claims = kit.claims();
  bool any = false;
  for (const Check& check : sample_of(claims, kit.request().seed, {{1, 200}})) {
    Case c = kit.build(check);
    for (State& s : c.states) {
      if (s.desc.dtype == SWY_I32 || s.own) continue;
      any = true;
      for (float& x : s.content) x = swy_bf16_to_f32(swy_f32_to_bf16(x == x ? x : 1.0f));
    }
    if (c.states.empty()) continue;
    Case none = c;
    none.steps.clear();
    Execution e(p, *check.kernel, c);
    const Outcome got = e.run(none);
    for (uint32_t i = 0; i < c.states.size(); ++i) {
      if (c.states[i].own) continue;
      for (size_t j = 0; j < got.states[i].size(); ++j) {
        const auto wanted = static_cast<double>(c.states[i].content[j]);
        const double step = half_step(c.states[i], j / c.states[i].row, got.before[i].unit_bytes);
        if (c.states[i].desc.dtype != SWY_I32 && !(std::abs(got.states[i][j] - wanted) <= step)) {
          return kit.line(
              check, text("state ", i, " element ", j, " went in as ", wanted, " and came back as ", got.states[i][j]));
        }
      }
    }
  }
  if (!any) throw Unsupported("no kernel has a state");
  return "";
}

std::vector<Task> list(Session& session, std::vector<Refusal>*) {
  Kit& kit = session.kit();
  std::vector<Task> tasks = {{"come_back", [&kit] { return come_back(kit); }, {}}};
  return tasks;
}

}  // namespace

const Suite kStatesSuite = {"states", "states come back as they went in", true, false, {}, list};

}  // namespace switchyard::check
