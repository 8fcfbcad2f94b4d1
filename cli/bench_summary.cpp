// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_run_impl.h"
#include "cli/signals.h"

#include <algorithm>
#include <ctime>

#include "bench/machine.h"
#include "cli/bench_report.h"
#include "cli/version.h"

namespace switchyard::cli {

using bench::Cell;
using bench::Metric;
using bench::State;
using nlohmann::json;

namespace {

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  char text[32] = "";
  if (::gmtime_r(&now, &utc) != nullptr) std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

}  // namespace

bench::Report BenchRun::report() {
  bar_.reset();
  report_.version = SWITCHYARD_VERSION;
  report_.commit = commit();
  report_.command = bench::command_line();
  report_.date = now_text();
  report_.machine = bench::describe_machine();
  report_.prompt = o_.random ? "random ids" : "text";
  for (const BenchProcess& p : processes_) {
    if (p.described.is_null()) continue;
    const json& d = p.described;
    report_.model = {d.at("name"),       d.at("quantization"), d.at("layers"),
                     d.at("parameters"), d.at("weight_bytes"), d.at("context")};
    report_.prompt = d.at("prompt");
    break;
  }
  if (report_.model.name.empty()) report_.model.name = model_name(o_.settings);
  for (size_t c = 0; c < plan_.configurations.size(); ++c) report_.configurations.push_back(configuration(c));
  for (size_t c = 0; c < plan_.configurations.size(); ++c) compare(c);
  return std::move(report_);
}

bench::Configuration BenchRun::configuration(size_t c) {
  const ConfigurationPlan& plan = plan_.configurations[c];
  const BenchProcess& p = processes_[plan.process];
  bench::Configuration out;
  out.name = plan.name;
  out.backend = p.opened.value("id", p.plan->worker.settings.backend);
  out.library = p.opened.value("library", p.plan->library);
  out.plugin_version = p.opened.value("version", "");
  out.threads = thread_count(p.plan->worker.settings);
  out.sampling = plan.sampling;
  out.quantization = p.plan->quant;
  out.batch = plan.batch;
  out.peak_host_bytes = p.peak_host;
  out.peak_device_bytes = p.peak_device;
  out.correctness = p.correctness;
  if (p.opened.contains("devices") && !p.opened["devices"].empty()) {
    out.replay = p.opened["devices"][0].at("native") ? "native" : "emulated";
  }
  if (p.described.is_null()) {
    out.state = p.state == State::measured ? State::interrupted : p.state;
    out.reason = p.state == State::measured ? "not reached" : p.reason;
    return out;
  }
  out.devices = p.described.at("devices").get<std::vector<std::string>>();
  out.load_seconds = p.described.at("load_seconds");
  out.quantization = p.described.at("quantization");
  for (size_t k = 0; k < plan_.cells.size(); ++k) {
    const size_t from = plan_.cells[k].metric == Metric::decode ? c : first_of(plan.process);
    out.cells.push_back(finished(measured_[from][k], out));
  }
  return out;
}

size_t BenchRun::first_of(size_t process) const {
  size_t c = 0;
  while (plan_.configurations[c].process != process) ++c;
  return c;
}

Cell BenchRun::finished(const BenchCell& m, const bench::Configuration& of) const {
  Cell cell = m.cell;
  if (cell.state != State::measured || m.turns.empty()) {
    if (cell.state == State::measured) {
      cell.state = State::interrupted;
      cell.reason = "not reached";
    }
    cell.overhead.reset();
    cell.read_bytes.reset();
    cell.drawn.clear();
    cell.drafts.reset();
    cell.kernels.clear();
    return cell;
  }
  cell.samples.clear();
  for (const bench::Turn& t : m.turns) cell.samples.insert(cell.samples.end(), t.seconds.begin(), t.seconds.end());
  cell.rate = bench::rate_of(bench::median_interval(m.turns), cell.tokens);
  if (m.opened.is_null()) return cell;
  const double bytes = m.opened.at("bytes"), operations = m.opened.at("operations");
  const double seconds = cell.tokens / cell.rate->median;
  cell.bytes_per_token = bytes / cell.tokens;
  const Shares shares = shares_of(bytes, operations, seconds, ceiling_of(of));
  if (shares.bandwidth > 0) cell.bandwidth_share = shares.bandwidth;
  if (shares.matrix > 0) cell.matrix_share = shares.matrix;
  if (shares.bound() <= 0) return cell;
  cell.bound = shares.tighter();
  cell.bound_share = shares.bound();
  return cell;
}

bench::DeviceCeiling BenchRun::ceiling_of(const bench::Configuration& of) const {
  bench::DeviceCeiling most;
  if (on_host(of)) most = host_ceiling(report_.probes);
  for (const bench::DeviceCeiling& c : report_.ceilings) {
    if (std::find(of.devices.begin(), of.devices.end(), c.device) != of.devices.end()) most = c;
  }
  return most;
}

bool BenchRun::on_host(const bench::Configuration& of) const {
  for (const BenchProcess& p : processes_) {
    if (!p.opened.contains("devices")) continue;
    for (const json& d : p.opened["devices"]) {
      const auto found = std::find(of.devices.begin(), of.devices.end(), d.at("name").get<std::string>());
      if (found != of.devices.end() && !d.at("host")) return false;
    }
  }
  return true;
}

void BenchRun::compare(size_t c) {
  if (c == 0) return;
  for (size_t k = 0; k < plan_.cells.size(); ++k) {
    const bool one_process = plan_.configurations[c].process == plan_.configurations[0].process;
    const Metric metric = plan_.cells[k].metric;
    if (metric == Metric::serving || (metric == Metric::prefill && one_process)) continue;
    const BenchCell& base = measured_[0][k];
    const BenchCell& other = measured_[metric == Metric::prefill ? first_of(plan_.configurations[c].process) : c][k];
    if (base.cell.state != State::measured || other.cell.state != State::measured) continue;
    const bench::Ratio r = bench::ratio_of(base.turns, other.turns, base.cell.tokens, other.cell.tokens);
    if (r.pairs < 2) continue;
    report_.comparisons.push_back({plan_.configurations[0].name, plan_.configurations[c].name, metric,
                                   plan_.cells[k].at, r.ratio, r.low, r.high, r.verdict(), r.pairs});
  }
}

}  // namespace switchyard::cli
