// SPDX-License-Identifier: Apache-2.0
// The tables below those of speed: correctness, the kernels that ran, and where time went.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/report_grids.h"
#include "bench/text.h"

namespace switchyard::bench {
namespace {

Grid configuration_grid(const Report& report) {
  Grid g{.title = "Configurations",
         .note = "",
         .columns = {{"configuration", false},
                     {"library", false},
                     {"version", false, true},
                     {"devices", false},
                     {"threads", true},
                     {"sampling", false, true},
                     {"batch", true, true},
                     {"weights", false},
                     {"replay", false, true},
                     {"load", true},
                     {"host memory", true},
                     {"device memory", true}},
         .rows = {}};
  for (const Configuration& c : report.configurations) {
    if (c.state != State::measured) {
      g.rows.push_back({{{c.name}, {failure_text(c.state, c.reason), Tone::bad}}});
      continue;
    }
    g.rows.push_back({{{c.name},
                       {or_dash(c.library.substr(c.library.rfind('/') + 1))},
                       {or_dash(c.plugin_version)},
                       {or_dash(fmt::format("{}", fmt::join(c.devices, ", ")))},
                       {c.threads != 0 ? fmt::format("{}", c.threads) : "-"},
                       {or_dash(c.sampling)},
                       {fmt::format("{}", c.batch)},
                       {or_dash(c.quantization)},
                       {or_dash(c.replay)},
                       {seconds_text(c.load_seconds)},
                       {bytes_text(static_cast<double>(c.peak_host_bytes))},
                       {bytes_text(static_cast<double>(c.peak_device_bytes))}}});
  }
  return g;
}

GridCell divergence_cell(const Correctness& k) {
  if (!k.divergence) return {"none", Tone::good};
  const Divergence& d = *k.divergence;
  return {fmt::format("at {}: {} for {}, {} apart", d.position, d.token, d.expected, small_text(d.gap))};
}

GridCell worst_op_cell(const Correctness& k) {
  const OpError* worst = worst_op(k);
  if (worst == nullptr) return {"-", Tone::faint};
  return {worst->op + " " + small_text(worst->worst_row), over_budget(*worst) ? Tone::bad : Tone::plain};
}

Grid correctness_grid(const Report& report) {
  Grid g{.title = "Correctness",
         .note =
             "KL of the next token's distribution; top-1: positions with the same likeliest token; the divergence "
             "of greedy text with the gap between the reference's two logits there; worst row of the worst "
             "operation.",
         .columns = {{"configuration", false},
                     {"against", false},
                     {"positions", true},
                     {"KL mean", true},
                     {"KL worst", true},
                     {"top-1", true},
                     {"first divergence", false},
                     {"worst operation", false}},
         .rows = {}};
  for (const Configuration& c : report.configurations) {
    if (!c.correctness) continue;
    const Correctness& k = *c.correctness;
    if (k.state != State::measured) {
      g.rows.push_back({{{c.name}, {k.against}, {failure_text(k.state, k.reason), Tone::bad}}});
      continue;
    }
    const Tone tone = std::isfinite(k.kl_mean) ? Tone::plain : Tone::bad;
    g.rows.push_back({{{c.name},
                       {k.against},
                       {fmt::format("{}", k.positions)},
                       {small_text(k.kl_mean), tone},
                       {small_text(k.kl_worst), tone},
                       {percent_text(k.top1), tone},
                       divergence_cell(k),
                       worst_op_cell(k)}});
  }
  return g;
}

Grid error_grid(const Report& report) {
  Grid g{.title = "Errors per operation",
         .note = "Differences from the reference, as shares of its root mean square.",
         .columns = {{"configuration", false},
                     {"operation", false},
                     {"kernel", false},
                     {"worst row", true},
                     {"mean", true},
                     {"allowed", true},
                     {"", false}},
         .rows = {}};
  for (const Configuration& c : report.configurations) {
    if (!c.correctness) continue;
    bool first = true;
    for (const OpError& e : c.correctness->ops) {
      const bool over = over_budget(e);
      g.rows.push_back({{{first ? c.name : ""},
                         {e.op},
                         {e.kernel},
                         {small_text(e.worst_row)},
                         {small_text(e.mean)},
                         {e.budget ? small_text(*e.budget) : "-"},
                         {over       ? "too large"
                          : e.budget ? "ok"
                                     : "",
                          over ? Tone::bad : Tone::good}},
                        first});
      first = false;
    }
  }
  return g;
}

// "auto: 51 of 67 drafts accepted, 2.2 in each of 30 steps; by place 90%, 71%".
std::string drafts_text(const CellDrafts& d) {
  constexpr size_t kShown = 8;
  if (d.drafted <= 0) return d.by + ": no drafts";
  std::string places;
  for (size_t i = 0; i < std::min(d.share_by_place.size(), kShown); ++i) {
    places += (i == 0 ? "" : ", ") + percent_text(d.share_by_place[i]);
  }
  return fmt::format("{}: {:.0f} of {:.0f} drafts accepted, {:.1f} in each of {:.0f} steps; by place {}", d.by,
                     d.accepted, d.drafted, d.drafted / d.steps, d.steps, places);
}

Grid runtime_grid(const Report& report) {
  Grid g{.title = "What a step took",
         .note = "Core: processor time of the runtime itself; waiting: time its thread waits for other threads.",
         .columns = {{"", false},
                     {"configuration", false},
                     {"MB/token", true},
                     {"lists", true},
                     {"barriers", true},
                     {"per layer", true},
                     {"core", true},
                     {"of the step", true},
                     {"waiting", true},
                     {"read back", true}},
         .rows = {}};
  for (const auto& [metric, at] : places_of(report)) {
    bool first = true;
    for (const Configuration& c : report.configurations) {
      const Cell* cell = c.cell(metric, at);
      if (cell == nullptr || !cell->overhead) continue;
      const StepOverhead& o = *cell->overhead;
      g.rows.push_back({{{first ? cell_name(metric, at) : ""},
                         {c.name},
                         {cell->bytes_per_token ? rate_text(*cell->bytes_per_token / 1e6) : "-"},
                         {rate_text(o.lists)},
                         {rate_text(o.barriers)},
                         {rate_text(o.barriers_per_layer)},
                         {seconds_text(o.core_microseconds / 1e6)},
                         {percent_text(o.core_share)},
                         {percent_text(o.wait_share)},
                         {cell->read_bytes ? bytes_text(*cell->read_bytes) : "-"}},
                        first});
      if (cell->drafts) g.rows.push_back({{{""}, {""}, {drafts_text(*cell->drafts), Tone::faint}}});
      if (!cell->drawn.empty()) g.rows.push_back({{{""}, {""}, {"drawn by " + cell->drawn, Tone::faint}}});
      first = false;
    }
  }
  return g;
}

Grid kernel_grid(const Report& report) {
  Grid g{.title = "Kernels, per step",
         .note = "",
         .columns =
             {{"", false}, {"configuration", false}, {"kernel", false}, {"calls", true}, {"ms", true}, {"share", true}},
         .rows = {}};
  for (const auto& [metric, at] : places_of(report)) {
    for (const Configuration& c : report.configurations) {
      const Cell* cell = c.cell(metric, at);
      if (cell == nullptr) continue;
      double all = 0;
      for (const CellKernel& k : cell->kernels) all += k.ms;
      bool first = true;
      for (const CellKernel& k : cell->kernels) {
        g.rows.push_back({{{first ? cell_name(metric, at) : ""},
                           {first ? c.name : ""},
                           {k.kernel},
                           {rate_text(k.calls)},
                           {number_text(k.ms)},
                           {percent_text(all > 0 ? k.ms / all : std::nan(""))}},
                          first});
        first = false;
      }
    }
  }
  return g;
}

}  // namespace

bool over_budget(const OpError& e) { return !std::isfinite(e.worst_row) || (e.budget && e.worst_row > *e.budget); }

const OpError* worst_op(const Correctness& k) {
  const OpError* worst = nullptr;
  const auto badness = [](const OpError& e) {
    return !std::isfinite(e.worst_row) ? 1e300 : e.worst_row / (e.budget && *e.budget > 0 ? *e.budget : 1);
  };
  for (const OpError& e : k.ops) {
    if (worst == nullptr || badness(e) > badness(*worst)) worst = &e;
  }
  return worst;
}

std::vector<Grid> detail_grids(const Report& report) {
  return {correctness_grid(report), configuration_grid(report), runtime_grid(report), kernel_grid(report),
          error_grid(report)};
}

}  // namespace switchyard::bench
