// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_run_impl.h"

#include <algorithm>
#include <set>

#include "bench/machine.h"
#include "cli/bench_report.h"
#include "cli/bench_worker.h"
#include "cli/runtime.h"
#include "cli/say.h"

namespace switchyard::cli {

using bench::Reply;
using bench::State;
using nlohmann::json;

namespace {

constexpr double kComparedSeconds = 4;                       // per configuration and cell
constexpr uint32_t kStartsOfSmall = 12, kStartsOfLarge = 3;  // of --ab
constexpr uint64_t kSmallModel = 256'000'000;                // bytes, that load in no time
constexpr double kAbSeconds = 12;                            // the same of --ab, which is after small differences

// An estimate of the memory of the largest step: values alive at the same time, and the kernels' workspace.
uint64_t step_bytes(const Program& program, const Settings& s, uint32_t chunk) {
  constexpr uint64_t kOfTheWidest = 6;
  uint64_t widest = 0;
  for (const Value& v : program.main().values) {
    if (v.rows == SWY_ROWS_STEP) widest = std::max(widest, v.width);
  }
  const uint64_t rows = std::min(s.chunk != 0 ? s.chunk : chunk, std::max(s.context, 1u));
  return rows * widest * sizeof(float) * kOfTheWidest;
}

}  // namespace

void BenchRun::set_state(BenchProcess& p, State state, const std::string& reason) {
  p.state = state;
  p.reason = reason;
  p.worker.reset();
}

Reply BenchRun::call(BenchProcess& p, const json& request, double seconds, const std::string& what) {
  if (p.state != State::measured) return {p.state, p.reason, {}};
  Reply r = p.worker->call(request, seconds, what, nobody_interrupts);
  if (!r.ok() && !p.worker->alive()) set_state(p, r.state, r.reason);
  return r;
}

Status BenchRun::open(BenchProcess& p) {
  if (p.state != State::measured) return {};
  auto worker = bench::WorkerProcess::start("/proc/self/exe", {"switchyard", kBenchWorker});
  if (!worker.ok()) return worker.status();
  p.worker = std::move(*worker);
  p.loaded = false;
  const Reply r = call(p, {{"do", "open"}, {"settings", to_json(p.plan->worker)}}, kOpenSeconds, "opening");
  if (r.ok()) {
    p.opened = r.value;
    return {};
  }
  if (r.value.is_object() && r.value.value("code", 0) == static_cast<int>(Code::usage)) {
    return error(Code::usage, "{}", r.reason);
  }
  set_state(p, r.state, r.reason);
  return {};
}

void BenchRun::ready(BenchProcess& p) {
  if (p.state != State::measured || p.loaded) return;
  if (!p.alive()) {
    if (const Status s = open(p); !s.ok()) set_state(p, State::failed, s.message());
  }
  if (p.state != State::measured) return;
  const Reply r = call(p, {{"do", "load"}}, std::max(o_.time_limit, kOpenSeconds), "loading");
  if (!r.ok()) return set_state(p, r.state, r.reason);
  if (p.described.is_null()) p.described = r.value;
  p.loaded = true;
}

void BenchRun::revive(BenchProcess& p) {
  if (p.state != State::time_limit || p.described.is_null() || !nobody_interrupts()) return;
  p.state = State::measured;
  p.reason.clear();
  p.loaded = false;
  ready(p);
}

void BenchRun::leave(BenchProcess& p) {
  if (p.alive() && p.loaded) {
    // Also after an interrupt: the memory belongs to what was measured.
    const Reply r = p.worker->call({{"do", "usage"}}, 2, "its end", [] { return true; });
    if (r.ok()) {
      p.peak_host = std::max(p.peak_host, r.value.at("peak_host_bytes").get<uint64_t>());
      p.peak_device = std::max(p.peak_device, r.value.at("peak_device_bytes").get<uint64_t>());
    }
  }
}

Status BenchRun::look_at_model() {
  for (BenchProcess& p : processes_) {
    ProcessNeed& need = needs_.emplace_back();
    if (p.state != State::measured) continue;
    SWY_LET(const auto program, load_program(p.plan->worker.settings));
    need.weight_bytes = 0;
    for (const Tensor& t : program->tensors) need.weight_bytes += t.segments[0].bytes;
    const Settings& s = p.plan->worker.settings;
    for (const auto& state : program->states) {
      uint64_t bytes = sizeof(float);
      for (uint32_t d = 0; d < state.rank; ++d) bytes *= state.dims[d];
      if (state.kind == SWY_STATE_PAGED) bytes *= s.context;
      need.state_bytes += bytes * s.sessions;
    }
    need.host_step_bytes = step_bytes(*program, s, Model::kChunk);
    need.device_step_bytes = step_bytes(*program, s, Model::kDeviceChunk);
  }
  return {};
}

std::vector<DeviceRoom> BenchRun::room() const {
  std::vector<DeviceRoom> all = {{"", bench::describe_machine().memory_free_bytes}};
  for (const BenchProcess& p : processes_) {
    if (!p.opened.contains("devices")) continue;
    for (const json& d : p.opened["devices"]) {
      const std::string name = d.at("name");
      const bool known = std::any_of(all.begin(), all.end(), [&](const auto& r) { return r.device == name; });
      if (!known && !d.at("host")) all.push_back({name, d.at("memory_free_bytes")});
    }
  }
  return all;
}

void BenchRun::probe_machine() {
  if (!nobody_interrupts()) return;
  uint32_t threads = 1;
  for (const BenchProcess& p : processes_) threads = std::max(threads, thread_count(p.plan->worker.settings));
  if (!o_.no_probes) report_.probes = probe(Host(threads));
  std::set<std::string> seen;
  for (size_t i = 0; i < processes_.size(); ++i) {
    BenchProcess& p = processes_[i];
    if (p.state != State::measured) continue;
    needs_[i].host = true;
    bool wanted = false;
    for (const json& d : p.opened["devices"]) {
      if (d.at("host")) continue;
      needs_[i].host = false;
      needs_[i].device = d.at("name");
      wanted |= seen.insert(d.at("name")).second;
    }
    if (!wanted || o_.no_probes) continue;
    const Reply r = call(p, {{"do", "ceiling"}}, kOpenSeconds, "measuring its device");
    if (!r.ok()) continue;
    for (const json& c : r.value.at("ceilings")) {
      report_.ceilings.push_back({c.at("device"), c.at("gbs"), 0, ""});
    }
  }
}

uint32_t BenchRun::starts() const {
  if (o_.starts != 0) return o_.starts;
  if (o_.ab.empty()) return 1;
  const bool small =
      std::all_of(needs_.begin(), needs_.end(), [](const ProcessNeed& n) { return n.weight_bytes < kSmallModel; });
  return small ? kStartsOfSmall : kStartsOfLarge;
}

double BenchRun::seconds_per_cell() const {
  if (o_.seconds > 0) return o_.seconds;
  if (plan_.configurations.size() == 1) return 0;
  return o_.ab.empty() ? kComparedSeconds : kAbSeconds;
}

void BenchRun::tell_estimate(const std::vector<Sitting>& sittings) const {
  if (!o_.compares()) return;
  uint64_t bytes = 0;
  for (const ProcessNeed& n : needs_) bytes += n.host_bytes() + n.device_bytes();
  const double seconds = std::max(seconds_per_cell(), 1.0) * static_cast<double>(plan_.configurations.size()) *
                         static_cast<double>(plan_.cells.size());
  say("switchyard: {} configurations, {} cells each: about {:.1f} minutes if steps are fast, "
      "at most {:.0f} s per cell of each; about {:.1f} GiB of memory in all, states counted as fp32{}\n",
      plan_.configurations.size(), plan_.cells.size(), seconds / 60, o_.time_limit,
      static_cast<double>(bytes) / 1073741824,
      together(sittings) ? "" : ", more than is free: they are loaded in turns");
}

bool BenchRun::together(const std::vector<Sitting>& sittings) const {
  return sittings[0].processes.size() == processes_.size();
}

}  // namespace switchyard::cli
