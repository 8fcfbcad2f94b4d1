// SPDX-License-Identifier: Apache-2.0
// races: repeats the same submission while the team's members are delayed, each in its turn or at any instruction, on
// teams of several sizes. Results must stay right, and those of DETERMINISTIC kernels the same. Kernels that take no
// team run once: `replay` repeats those.
#include <algorithm>

#include "plugins_api/check/failure.h"
#include "plugins_api/check/kit.h"
#include "plugins_api/check/suites.h"
#include "plugins_api/check/team.h"

namespace switchyard::check {
namespace {

constexpr int kRunsInTurns = 5, kRunsInterrupted = 24, kMostInterrupted = 200;

// Whether another run may show what so many have not.
bool goes_on(Pace pace, int runs) {
  if (pace == Pace::kTurns) return runs < kRunsInTurns;
  return runs < kRunsInterrupted || (runs < kMostInterrupted && !halted_everywhere());
}

// Back to the machine's own pace, whatever happens.
struct Undisturbed {
  ~Undisturbed() { set_pace(Pace::kFree, 0); }
};

std::string race(const Kit& kit, const Check& check) {
  const Undisturbed after;
  const Case c = kit.build(check);
  const Outcome wanted = kit.expected(check, c);
  Execution e(kit.plugin(), *check.kernel, c);
  const uint64_t before = team_runs();
  const Outcome first = e.run(c);
  if (team_runs() == before) throw Unsupported("takes no team of the host, whose members could be held up");
  for (const Pace pace : {Pace::kTurns, Pace::kInterrupted}) {
    set_pace(pace, derive(kit.request().seed, check.name()));
    for (int i = 0; goes_on(pace, i); ++i) {
      const Outcome got = e.run(c);
      const std::string when = text("with the members of the team held up, submission ", i + 2, ": ");
      std::string problem = compare(c, wanted, got, activations_of(*check.kernel, check.types), nullptr);
      if (!problem.empty()) return kit.line(check, when + problem);
      if ((check.kernel->flags & SWY_KERNEL_DETERMINISTIC) == 0) continue;
      problem = differing_bits(c, first, got);
      if (!problem.empty()) return kit.line(check, text("DETERMINISTIC, but ", when, "other bits in ", problem));
    }
  }
  return "";
}

// Of every kernel one case with some rows, and in a full run one with few.
std::vector<Task> list(Session& session, std::vector<Refusal>*) {
  Kit& kit = session.kit();
  std::vector<Task> tasks;
  std::vector<std::pair<uint32_t, uint32_t>> rows = {{5, 70}};
  if (kit.request().slow) rows.emplace_back(1, 4);
  for (const Check& c : sample_of(kit.claims(), kit.request().seed, rows)) {
    tasks.push_back({c.name(), [&kit, c] { return race(kit, c); }, {}});
  }
  return tasks;
}

}  // namespace

const Suite kRacesSuite = {"races", "submissions while the members of the team are held up", true, false, {2, 4}, list};

}  // namespace switchyard::check
