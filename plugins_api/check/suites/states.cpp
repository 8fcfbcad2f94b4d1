// SPDX-License-Identifier: Apache-2.0
// states: a device may keep them in fewer bytes than fp32. They come back as they went in but for one rounding, and a
// step rounds what it writes only once.
#include <algorithm>
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
      const State& s = c.states[i];
      if (s.own || s.desc.dtype == SWY_I32) continue;
      for (uint64_t r = 0; r < got.states[i].size() / s.row; ++r) {
        const double step = half_step(s, r, got.before[i].unit_bytes);
        for (uint64_t j = r * s.row; j < (r + 1) * s.row; ++j) {
          const auto wanted = static_cast<double>(s.content[j]);
          if (std::abs(got.states[i][j] - wanted) <= step) continue;
          return kit.line(
              check, text("state ", i, " element ", j, " went in as ", wanted, " and came back as ", got.states[i][j]));
        }
      }
    }
  }
  if (!any) throw Unsupported("no kernel has a state");
  return "";
}

bool has_slots(const State& s) { return s.desc.state == SWY_STATE_SLOTTED && s.desc.dtype == SWY_F32 && !s.own; }

// Whether a kernel that computes in fp32 writes slots of states, and rounds each of them once: kernels may round after
// each row.
bool rounds_once(const Check& check, const Case& c) {
  const swy_dtype a = activations_of(*check.kernel, check.types);
  if ((a != SWY_F32 && a != SWY_F16) || c.steps.size() != 1) return false;
  const auto one_row = [](const Sequence& q) { return q.rows == 1 && !q.pending && q.kept == 0; };
  const auto written = [](const Sequence& q) { return q.active; };
  const std::vector<Sequence>& seqs = c.steps[0].seqs;
  return std::all_of(seqs.begin(), seqs.end(), one_row) && std::any_of(seqs.begin(), seqs.end(), written) &&
         std::any_of(c.states.begin(), c.states.end(), has_slots);
}

void set_states(Case& c, const Outcome& from) {
  for (size_t i = 0; i < c.states.size(); ++i) {
    if (has_slots(c.states[i])) c.states[i].content.assign(from.states[i].begin(), from.states[i].end());
  }
}

// The Euclidean distance of two slots.
double distance(const std::vector<double>& a, const std::vector<double>& b, uint64_t first, uint64_t count) {
  double sum = 0;
  for (uint64_t i = first; i < first + count; ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

// What a step writes is as near to the exact result as what the device makes of that result when it comes in: one bit
// less, or cut off instead of rounded, is twice as far. The step begins with what the device keeps already. `computing`
// is for a whole slot, so it is the mean of rows that the budget allows: their worst would hide a bit. A kernel that
// names SWY_F16 rounds only its states, if the device keeps them in fewer bytes; else it may round products.
std::string rounded_once(const Kit& kit, const Check& check) {
  Case c = kit.build(check), none = c;
  none.steps.clear();
  Execution e(kit.plugin(), *check.kernel, c);
  set_states(c, e.run(none));
  const Outcome wanted = kit.expected(check, c), got = e.run(c);
  set_states(none, wanted);
  const Outcome nearest = e.run(none);
  const double computing = budget(c.op, SWY_F32, SWY_F32, SWY_F32).mean;
  const bool exact = activations_of(*check.kernel, check.types) == SWY_F32;
  for (uint32_t i = 0; i < c.states.size(); ++i) {
    const uint64_t unit = c.states[i].unit;
    if (!has_slots(c.states[i]) || (!exact && got.before[i].unit_bytes >= unit * sizeof(float))) continue;
    const std::vector<double>& right = wanted.states[i];
    const std::vector<double> zeros(right.size(), 0.0);
    for (const Sequence& q : c.steps[0].seqs) {
      if (!q.active) continue;
      const uint64_t first = q.write_slot * unit;
      const double size = distance(right, zeros, first, unit), error = distance(right, got.states[i], first, unit);
      const double rounding = distance(right, nearest.states[i], first, unit);
      if (error <= 1.25 * rounding + computing * size) continue;
      return kit.line(check, text("state ", i, " slot ", q.write_slot, ": relative error ", error / size,
                                  ", but a rounding to what the device keeps is ", rounding / size));
    }
  }
  return "";
}

std::vector<Task> list(Session& session, std::vector<Refusal>*) {
  Kit& kit = session.kit();
  std::vector<Task> tasks = {{"come_back", [&kit] { return come_back(kit); }, {}}};
  Claims fitting;
  const Claims claims = kit.claims();
  for (const Check& c : claims.checks) {
    Random random = Random::shapes_only();
    if (rounds_once(c, c.spec->build(random))) fitting.checks.push_back(c);
  }
  for (const Check& c : sample_of(fitting, kit.request().seed, {{1, 1}, {2, 300}})) {
    tasks.push_back({c.name() + ".rounded_once", [&kit, c] { return rounded_once(kit, c); }, {}});
  }
  return tasks;
}

}  // namespace

const Suite kStatesSuite = {"states", "states come back as they went in, and a step rounds them once", true, false, {},
                            list};

}  // namespace switchyard::check
