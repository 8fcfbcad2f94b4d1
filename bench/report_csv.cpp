// SPDX-License-Identifier: Apache-2.0
// A report as CSV: a line per cell, with what its configuration is and how right it was.
#include <fmt/format.h>

#include "bench/report_grids.h"
#include "bench/text.h"

namespace switchyard::bench {
namespace {

constexpr const char* kHead =
    "configuration,backend,library,plugin_version,devices,threads,sampling,quantization,batch,load_seconds,"
    "peak_host_bytes,peak_device_bytes,metric,at,state,reason,tokens_per_second,low,high,samples,bytes_per_token,"
    "bandwidth_share,matrix_share,bound,bound_share,read_bytes,drawn,requests,requests_asked,ttft_p50,ttft_p95,"
    "ttft_p99,itl_p50,itl_p95,itl_p99,kl_mean,kl_worst,top1,compared_with,ratio,ratio_low,ratio_high,verdict\n";

class Line {
 public:
  void text(std::string_view v) { add(csv_text(v)); }
  void number(double v) { add(csv_number(v)); }
  void number(const std::optional<double>& v) { v ? number(*v) : none(); }
  void count(uint64_t v) { add(fmt::format("{}", v)); }
  void none(int fields = 1) {
    while (fields-- > 0) add("");
  }
  std::string take() { return std::move(line_) + '\n'; }

 private:
  void add(const std::string& field) {
    if (!first_) line_ += ',';
    first_ = false;
    line_ += field;
  }
  std::string line_;
  bool first_ = true;
};

void add_configuration(const Configuration& c, Line& line) {
  line.text(c.name);
  line.text(c.backend);
  line.text(c.library);
  line.text(c.plugin_version);
  line.text(fmt::format("{}", fmt::join(c.devices, " ")));
  line.count(c.threads);
  line.text(c.sampling);
  line.text(c.quantization);
  line.count(c.batch);
  line.number(c.load_seconds);
  line.count(c.peak_host_bytes);
  line.count(c.peak_device_bytes);
}

void add_percentiles(const std::optional<Percentiles>& p, Line& line) {
  if (!p) return line.none(3);
  for (const double v : {p->p50, p->p95, p->p99}) line.number(v);
}

void add_cell(const Cell& cell, Line& line) {
  line.text(metric_name(cell.metric));
  line.count(cell.at);
  line.text(state_name(cell.state));
  line.text(cell.reason);
  if (cell.rate) {
    for (const double v : {cell.rate->median, cell.rate->low, cell.rate->high}) line.number(v);
  } else {
    line.none(3);
  }
  line.count(cell.samples.size());
  line.number(cell.bytes_per_token);
  line.number(cell.bandwidth_share);
  line.number(cell.matrix_share);
  line.text(cell.bound);
  line.number(cell.bound_share);
  line.number(cell.read_bytes);
  line.text(cell.drawn);
  if (cell.metric == Metric::serving) {
    line.count(cell.requests);
    line.count(cell.requests_asked);
  } else {
    line.none(2);
  }
  add_percentiles(cell.ttft, line);
  add_percentiles(cell.itl, line);
}

void add_correctness(const Configuration& c, Line& line) {
  if (!c.correctness || c.correctness->state != State::measured) return line.none(3);
  line.number(c.correctness->kl_mean);
  line.number(c.correctness->kl_worst);
  line.number(c.correctness->top1);
}

void add_comparison(const Comparison* x, Line& line) {
  if (x == nullptr) return line.none(5);
  line.text(x->base);
  line.number(x->ratio);
  line.number(x->low);
  line.number(x->high);
  line.text(verdict_name(x->verdict));
}

}  // namespace

std::string render_csv(const Report& report) {
  std::string out = kHead;
  for (const Configuration& c : report.configurations) {
    for (const Cell& cell : c.cells) {
      Line line;
      add_configuration(c, line);
      add_cell(cell, line);
      add_correctness(c, line);
      add_comparison(comparison_of(report, c.name, cell.metric, cell.at), line);
      out += line.take();
    }
    if (!c.cells.empty()) continue;
    Line line;
    add_configuration(c, line);
    line.none(2);
    line.text(state_name(c.state));
    line.text(c.reason);
    line.none(19);
    add_correctness(c, line);
    line.none(5);
    out += line.take();
  }
  return out;
}

}  // namespace switchyard::bench
