// SPDX-License-Identifier: Apache-2.0
#include "bench/report_grids.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "bench/text.h"

namespace switchyard::bench {
namespace {

std::string share_text(const std::optional<double>& share) { return share ? percent_text(*share) : "-"; }

std::string interval_text(const Interval& i) { return rate_text(i.low) + "–" + rate_text(i.high); }

GridCell verdict_cell(const Report& report, const Configuration& c, const Cell& cell) {
  const bool base = std::any_of(report.comparisons.begin(), report.comparisons.end(), [&](const Comparison& x) {
    return x.base == c.name && x.metric == cell.metric && x.at == cell.at;
  });
  const Comparison* x = comparison_of(report, c.name, cell.metric, cell.at);
  if (x == nullptr) return {base ? "the base" : "-", Tone::faint};
  return {verdict_words(x->verdict, x->ratio, x->low, x->high), tone_of(x->verdict)};
}

// "than reference", where all comparisons have one base.
std::string verdict_title(const Report& report) {
  std::set<std::string> bases;
  for (const Comparison& c : report.comparisons) bases.insert(c.base);
  return bases.size() == 1 ? "than " + *bases.begin() : "verdict";
}

std::vector<GridCell> correctness_cells(const Configuration& c) {
  if (!c.correctness) return {{"-", Tone::faint}, {"-", Tone::faint}, {"-", Tone::faint}, {"-", Tone::faint}};
  const Correctness& k = *c.correctness;
  if (k.state != State::measured) return {{state_name(k.state), Tone::bad}, {"-"}, {"-"}, {"-"}};
  const Tone tone = std::isfinite(k.kl_mean) ? Tone::plain : Tone::bad;
  const OpError* worst = worst_op(k);
  return {{small_text(k.kl_mean), tone},
          {percent_text(k.top1), tone},
          worst == nullptr ? GridCell{"-"}
                           : GridCell{small_text(worst->worst_row), over_budget(*worst) ? Tone::bad : Tone::plain},
          {k.divergence ? fmt::format("{} ({})", k.divergence->position, small_text(k.divergence->gap)) : "nowhere"}};
}

void append(std::vector<GridCell>& to, std::vector<GridCell> more) {
  to.insert(to.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

// Rows of every configuration at each place that `use` accepts. `cells` returns the columns after the name of a
// measured cell.
template <class Use, class Cells>
void add_rows(const Report& report, Grid& grid, Use use, Cells cells) {
  for (const auto& [metric, at] : places_of(report)) {
    if (!use(metric)) continue;
    bool first = true;
    for (const Configuration& c : report.configurations) {
      const Cell* cell = c.cell(metric, at);
      if (cell == nullptr) continue;
      Grid::Row row;
      row.group = first;
      row.cells = {{first ? cell_name(metric, at) : "", Tone::plain}, {c.name, Tone::plain}};
      if (cell->state != State::measured) {
        row.cells.push_back({failure_text(cell->state, cell->reason), Tone::bad});
      } else {
        append(row.cells, cells(c, *cell));
      }
      grid.rows.push_back(std::move(row));
      if (cell->state == State::measured && !cell->reason.empty()) {
        grid.rows.push_back({{{""}, {""}, {cell->reason, Tone::bad}}});
      }
      first = false;
    }
  }
}

std::vector<GridCell> rate_cells(const Report& report, const Configuration& c, const Cell& cell) {
  const Interval none{std::nan(""), std::nan(""), std::nan("")};
  const Interval& rate = cell.rate ? *cell.rate : none;
  return {{rate_text(rate.median)}, {interval_text(rate)}, verdict_cell(report, c, cell)};
}

Grid speed_grid(const Report& report) {
  Grid g{
      .title = "Speed and correctness",
      .note =
          "Tokens per second by the median, with a 99% interval; shares are of the measured ceilings of the "
          "device. KL, top-1 and the worst row of any operation are against the reference; texts part at a token, with "
          "the reference's gap between the two logits there.",
      .columns = {{"", false},
                  {"configuration", false},
                  {"tok/s", true},
                  {"99% interval", true},
                  {verdict_title(report), false},
                  {"bandwidth", true},
                  {"matrix", true},
                  {"KL mean", true},
                  {"top-1", true},
                  {"worst row", true, true},
                  {"parts at", true, true}},
      .rows = {}};
  add_rows(
      report, g, [](Metric m) { return m != Metric::serving; },
      [&](const Configuration& c, const Cell& cell) {
        std::vector<GridCell> cells = rate_cells(report, c, cell);
        append(cells, {{share_text(cell.bandwidth_share)}, {share_text(cell.matrix_share)}});
        append(cells, correctness_cells(c));
        return cells;
      });
  for (const Configuration& c : report.configurations) {
    if (c.state == State::measured) continue;
    g.rows.push_back({{{""}, {c.name}, {failure_text(c.state, c.reason), Tone::bad}}, true});
  }
  return g;
}

Grid serving_grid(const Report& report) {
  Grid g{.title = "Serving",
         .note =
             "Requests of mixed lengths in a closed loop. TTFT: from a request's arrival to its first token; ITL: "
             "from token to token.",
         .columns = {{"", false},
                     {"configuration", false},
                     {"tok/s", true},
                     {"99% interval", true, true},
                     {verdict_title(report), false},
                     {"TTFT p50", true},
                     {"p95", true},
                     {"p99", true},
                     {"ITL p50", true},
                     {"p95", true},
                     {"p99", true},
                     {"requests", true}},
         .rows = {}};
  add_rows(
      report, g, [](Metric m) { return m == Metric::serving; },
      [&](const Configuration& c, const Cell& cell) {
        std::vector<GridCell> cells = rate_cells(report, c, cell);
        for (const auto& p : {cell.ttft, cell.itl}) {
          if (p) append(cells, {{seconds_text(p->p50)}, {seconds_text(p->p95)}, {seconds_text(p->p99)}});
          if (!p) append(cells, {{"-"}, {"-"}, {"-"}});
        }
        const bool fewer = cell.requests < cell.requests_asked;
        cells.push_back(fewer ? GridCell{fmt::format("{} of {}", cell.requests, cell.requests_asked), Tone::bad}
                              : GridCell{fmt::format("{}", cell.requests)});
        return cells;
      });
  return g;
}

std::string products_text(const Probes& p) {
  std::string out;
  const auto add = [&](const char* name, double tops) {
    if (tops > 0) out += fmt::format("{}{} {} TOP/s", out.empty() ? "" : ", ", name, number_text(tops));
  };
  add("fp32", p.fp32_tflops);
  add("VNNI", p.vnni_tops);
  add("AMX int8", p.amx_int8_tops);
  add("AMX bf16", p.amx_bf16_tflops);
  return out.empty() ? "not measured" : fmt::format("{}; `matrix` is of {}", out, p.matrix().name);
}

}  // namespace

std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }

std::string failure_text(State state, const std::string& reason) {
  return reason.empty() ? state_name(state) : std::string(state_name(state)) + ": " + reason;
}

std::string cell_name(Metric metric, uint32_t at) {
  switch (metric) {
    case Metric::prefill:
      return fmt::format("prefill {}", at);
    case Metric::decode:
      return fmt::format("decode at {}", at);
    default:
      return fmt::format("{} at a time", at);
  }
}

std::string verdict_words(Verdict verdict, double ratio, double low, double high) {
  if (!(ratio > 0 && low > 0 && high > 0)) return verdict_name(verdict);
  if (verdict == Verdict::no_difference) {
    return fmt::format("no difference ({:+.1f} to {:+.1f}%)", 100 * (low - 1), 100 * (high - 1));
  }
  const bool faster = verdict == Verdict::faster;
  const double factor = faster ? ratio : 1 / ratio;
  if (factor >= 1.5) {
    return fmt::format("{}x {} ({}–{})", rate_text(factor), verdict_name(verdict), rate_text(faster ? low : 1 / high),
                       rate_text(faster ? high : 1 / low));
  }
  const double sign = faster ? 100 : -100;
  const double a = sign * (low - 1), b = sign * (high - 1);
  return fmt::format("{:.1f}% {} ({:.1f} to {:.1f}%)", sign * (ratio - 1), verdict_name(verdict), std::min(a, b),
                     std::max(a, b));
}

Tone tone_of(Verdict verdict) {
  return verdict == Verdict::faster ? Tone::good : verdict == Verdict::slower ? Tone::bad : Tone::plain;
}

std::vector<std::pair<Metric, uint32_t>> places_of(const Report& report) {
  std::set<std::pair<Metric, uint32_t>> all;
  for (const Configuration& c : report.configurations) {
    for (const Cell& cell : c.cells) all.emplace(cell.metric, cell.at);
  }
  return {all.begin(), all.end()};
}

const Comparison* comparison_of(const Report& report, const std::string& other, Metric metric, uint32_t at) {
  const auto found = std::find_if(report.comparisons.begin(), report.comparisons.end(), [&](const Comparison& c) {
    return c.other == other && c.metric == metric && c.at == at;
  });
  return found == report.comparisons.end() ? nullptr : &*found;
}

Document document_of(const Report& r) {
  Document d;
  d.title = "switchyard bench: " + r.model.name;
  const Machine& m = r.machine;
  d.facts = {{"switchyard", r.version + (r.commit.empty() ? "" : " (" + r.commit.substr(0, 12) + ")") + ", " + r.date},
             {"command", fmt::format("{}", fmt::join(r.command, " "))},
             {"machine", fmt::format("{}, {}, {} processors, {} of memory",
                                     m.processor.empty() ? "processor not named" : m.processor, m.kernel, m.cpus,
                                     bytes_text(static_cast<double>(m.memory_bytes)))},
             {"memory read", r.probes.read_gbs > 0 ? fmt::format("{} GB/s with {} threads; {} GB/s with one",
                                                                 rate_text(r.probes.read_gbs), r.probes.threads,
                                                                 rate_text(r.probes.read_gbs_one))
                                                   : "not measured"},
             {"products", products_text(r.probes)}};
  for (const DeviceCeiling& c : r.ceilings) {
    std::string text = fmt::format("{}: memory read {} GB/s", c.device, rate_text(c.read_gbs));
    if (c.matrix_tops > 0) text += fmt::format(", {} {} TOP/s", c.matrix, rate_text(c.matrix_tops));
    d.facts.emplace_back("device", std::move(text));
  }
  d.facts.emplace_back(
      "model",
      fmt::format("{}: {}, {} layers, {} parameters, {} of weights, context {}; prompts of {}", r.model.name,
                  or_dash(r.model.quantization), r.model.layers, short_text(static_cast<double>(r.model.parameters)),
                  bytes_text(static_cast<double>(r.model.weight_bytes)), r.model.context, r.prompt));
  d.grids = {speed_grid(r), serving_grid(r)};
  for (Grid& grid : detail_grids(r)) d.grids.push_back(std::move(grid));
  std::erase_if(d.grids, [](const Grid& grid) { return grid.rows.empty(); });
  return d;
}

}  // namespace switchyard::bench
