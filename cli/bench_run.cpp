// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_run.h"
#include "cli/bench_run_impl.h"
#include "cli/signals.h"
#include "core/base/status.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "cli/output.h"

namespace switchyard::cli {

using bench::Metric;
using bench::Reply;
using bench::State;
using nlohmann::json;

namespace {

constexpr double kTurnSeconds = 0.05;  // of timed steps, about
constexpr uint32_t kLeastRounds = 3;   // of configurations that are compared
constexpr double kOpenShare = 0.4;     // of the time limit, that a context or a prompt may take: it is read twice
constexpr double kSlowStep = 0.02;     // steps from which on one is enough to warm up

}  // namespace

BenchRun::BenchRun(const BenchOptions& o, const BenchPlan& plan)
    : o_(o), plan_(plan), processes_(plan.processes.size()) {
  for (size_t i = 0; i < processes_.size(); ++i) {
    processes_[i].plan = &plan.processes[i];
    if (!plan.processes[i].unsupported.empty()) {
      set_state(processes_[i], State::unsupported, plan.processes[i].unsupported);
    }
  }
  measured_.assign(plan.configurations.size(), std::vector<BenchCell>(plan.cells.size()));
  for (auto& cells : measured_) {
    for (size_t k = 0; k < cells.size(); ++k) {
      cells[k].cell.metric = plan.cells[k].metric;
      cells[k].cell.at = plan.cells[k].at;
      cells[k].cell.state = State::interrupted;
      cells[k].cell.reason = "not reached";
    }
  }
}

Result<bench::Report> BenchRun::run() {
  SWY_TRY(look_at_model());
  for (BenchProcess& p : processes_) SWY_TRY(open(p));
  probe_machine();
  const std::vector<Sitting> sittings = sittings_of(needs_, room(), starts());
  tell_estimate(sittings);
  if (o_.checks()) SWY_TRY(ask_reference(sittings));
  for (size_t s = 0; s < sittings.size() && nobody_interrupts(); ++s) sit(sittings, s);
  return report();
}

std::vector<size_t> BenchRun::live(const Sitting& sitting, Metric metric) const {
  std::vector<size_t> all;
  std::set<size_t> seen;
  for (size_t c = 0; c < plan_.configurations.size(); ++c) {
    const size_t p = plan_.configurations[c].process;
    if (std::find(sitting.processes.begin(), sitting.processes.end(), p) == sitting.processes.end()) continue;
    if (metric != Metric::decode && !seen.insert(p).second) continue;
    all.push_back(c);
  }
  return all;
}

void BenchRun::sit(const std::vector<Sitting>& sittings, size_t s) {
  const Sitting& sitting = sittings[s];
  for (const size_t i : sitting.processes) {
    if (nobody_interrupts()) ready(processes_[i]);
  }
  for (size_t k = 0; k < plan_.cells.size() && nobody_interrupts(); ++k) {
    if (bar_ == nullptr) bar_ = std::make_unique<Progress>("measuring");
    bar_->update(s * plan_.cells.size() + k, sittings.size() * plan_.cells.size());
    for (const size_t i : sitting.processes) revive(processes_[i]);
    if (plan_.cells[k].metric == Metric::serving) {
      if (sitting.first) serve(sitting, k);
    } else {
      measure(sitting, k, sitting.first);
    }
  }
  for (const size_t i : sitting.processes) {
    leave(processes_[i]);
    if (sitting.last && processes_[i].alive() && processes_[i].loaded) check(processes_[i]);
    if (sitting.stays) continue;
    processes_[i].worker.reset();
    processes_[i].loaded = false;
  }
}

void BenchRun::cell_failed(size_t c, size_t k, const Reply& r) {
  BenchCell& m = measured_[c][k];
  if (m.turns.empty()) {
    m.cell.state = r.state;
    m.cell.reason = r.reason;
  } else if (r.state != State::interrupted && m.cell.reason.empty()) {
    m.cell.reason = "afterwards: " + r.reason;
  }
}

bool BenchRun::open_cell(size_t c, size_t k) {
  const ConfigurationPlan& plan = plan_.configurations[c];
  BenchProcess& p = processes_[plan.process];
  BenchCell& m = measured_[c][k];
  const json request = {{"do", "cell"},
                        {"id", c},
                        {"metric", bench::metric_name(plan_.cells[k].metric)},
                        {"at", plan_.cells[k].at},
                        {"batch", plan.batch},
                        {"sampling", plan.sampling},
                        {"decode", o_.decode},
                        {"tokens", o_.most_tokens()},
                        {"most", o_.most_steps()},
                        {"text", o_.text_tokens()},
                        {"seconds", kOpenShare * o_.time_limit}};
  const Reply r = call(p, request, o_.time_limit, plan_.cells[k].name());
  if (!r.ok()) {
    cell_failed(c, k, r);
    return false;
  }
  m.opened = r.value;
  m.cell.tokens = r.value.at("tokens");
  if (m.turns.empty()) m.cell.state = State::measured;
  if (m.turns.empty()) m.cell.reason.clear();
  return true;
}

BenchRun::Pace BenchRun::pace_of(size_t c, size_t k, uint32_t sittings) const {
  const bool decode = plan_.cells[k].metric == Metric::decode;
  const double step = std::max(measured_[c][k].opened.at("step_seconds").get<double>(), 1e-7);
  const uint32_t wanted = decode ? o_.decode_steps() : o_.repeat;
  Pace p;
  p.warm = !decode ? 0 : step > kSlowStep ? 1 : 2;
  // What drafts pay shows in a whole text.
  const double fit =
      decode && o_.speculates() ? wanted : std::clamp(kTurnSeconds / step, 1.0, decode ? o_.decode : 1000.0);
  p.steps = static_cast<uint32_t>(std::lround(fit));
  const double turn = step * (p.steps + p.warm);
  p.rounds = (wanted + p.steps - 1) / p.steps;
  const double seconds = seconds_per_cell();
  if (seconds > 0) {
    p.rounds = std::max({p.rounds, kLeastRounds * sittings, static_cast<uint32_t>(std::ceil(seconds / turn))});
  } else {
    p.left = wanted;
  }
  p.rounds = std::max(1u, std::min(p.rounds, static_cast<uint32_t>(0.8 * o_.time_limit / turn)));
  p.rounds = (p.rounds + sittings - 1) / sittings;
  return p;
}

void BenchRun::measure(const Sitting& sitting, size_t k, bool watch) {
  std::vector<size_t> at;
  std::map<size_t, Pace> pace;
  uint32_t rounds = 0;
  for (const size_t c : live(sitting, plan_.cells[k].metric)) {
    if (!open_cell(c, k)) continue;
    at.push_back(c);
    pace[c] = pace_of(c, k, sitting.shares);
    rounds = std::max(rounds, pace[c].rounds);
  }
  match(at, k, pace);
  for (const size_t c : at) rounds = std::max(rounds, pace[c].rounds);
  // A machine that others use, too, takes longer for the same rounds: then there are fewer of them.
  const double budget = 1.3 * seconds_per_cell() * static_cast<double>(at.size()) / sitting.shares;
  const uint64_t begin = Os::real().now_ns();
  for (uint32_t round = 0; round < rounds && nobody_interrupts(); ++round) {
    if (budget > 0 && round >= kLeastRounds && seconds_since(begin) > budget) break;
    for (size_t i = 0; i < at.size(); ++i) {
      const size_t c = at[round % 2 == 0 ? i : at.size() - 1 - i];
      if (round < pace[c].rounds) take_turn(c, k, sitting.index, round, pace[c]);
    }
  }
  for (const size_t c : at) {
    if (watch) watch_cell(c, k, pace[c]);
    call(processes_[plan_.configurations[c].process], {{"do", "close"}, {"id", c}}, kOpenSeconds, "closing a cell");
  }
}

void BenchRun::match(const std::vector<size_t>& at, size_t k, std::map<size_t, Pace>& pace) const {
  for (size_t i = 1; i < at.size(); ++i) {
    const double own = measured_[at[i]][k].opened.at("step_seconds");
    const double first = measured_[at[0]][k].opened.at("step_seconds");
    if (own < 2 * first && first < 2 * own) pace[at[i]] = pace[at[0]];
  }
}

void BenchRun::take_turn(size_t c, size_t k, uint32_t sitting, uint32_t round, Pace& pace) {
  BenchCell& m = measured_[c][k];
  if (m.cell.state != State::measured || pace.left == 0) return;
  const uint32_t steps = std::min(pace.steps, pace.left);
  const Reply r =
      call(processes_[plan_.configurations[c].process],
           {{"do", "turn"}, {"id", c}, {"warm", pace.warm}, {"steps", steps}}, o_.time_limit, plan_.cells[k].name());
  if (!r.ok()) {
    pace.left = 0;
    const auto of_this = [&](const bench::Turn& t) { return t.sitting == sitting; };
    if (r.state != State::interrupted) std::erase_if(m.turns, of_this);  // half a cell is none
    return cell_failed(c, k, r);
  }
  if (pace.left != UINT32_MAX) pace.left -= steps;
  m.turns.push_back({sitting, round, r.value.at("seconds").get<std::vector<double>>()});
}

void BenchRun::watch_cell(size_t c, size_t k, const Pace& pace) {
  BenchCell& m = measured_[c][k];
  if (m.cell.state != State::measured || !nobody_interrupts()) return;
  const Reply r = call(processes_[plan_.configurations[c].process],
                       {{"do", "watch"}, {"id", c}, {"warm", pace.warm}, {"kernels", o_.ops}}, o_.time_limit,
                       plan_.cells[k].name());
  if (!r.ok()) return cell_failed(c, k, r);
  std::string reason;
  const State state = take_part(r, reason, [&](const bench::Configuration& part) {
    m.cell.overhead = part.cells[0].overhead;
    m.cell.kernels = part.cells[0].kernels;
    m.cell.read_bytes = part.cells[0].read_bytes;
    m.cell.drawn = part.cells[0].drawn;
    m.cell.drafts = part.cells[0].drafts;
  });
  if (state != State::measured) cell_failed(c, k, {state, reason, {}});
}

void BenchRun::serve(const Sitting& sitting, size_t k) {
  for (const size_t c : live(sitting, Metric::serving)) {
    const json request = {{"do", "serving"},
                          {"at", plan_.cells[k].at},
                          {"seconds", std::min(o_.time_limit, 60.0)},
                          {"text", o_.text_tokens()}};
    const Reply r =
        call(processes_[plan_.configurations[c].process], request, 1.5 * o_.time_limit + 1, plan_.cells[k].name());
    BenchCell& m = measured_[c][k];
    if (!r.ok()) {
      cell_failed(c, k, r);
      continue;
    }
    std::string reason;
    const State state = take_part(r, reason, [&](const bench::Configuration& part) { m.cell = part.cells[0]; });
    if (state != State::measured) cell_failed(c, k, {state, reason, {}});
    uint32_t round = 0;
    for (const double s : m.cell.samples) m.turns.push_back({0, round++, {s}});
  }
}

Result<bench::Report> run_bench(const BenchOptions& options, const BenchPlan& plan) {
  return BenchRun(options, plan).run();
}

}  // namespace switchyard::cli
