// SPDX-License-Identifier: Apache-2.0
#include "bench/report.h"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "core/base/json.h"
#include "core/base/printable.h"

namespace switchyard::bench {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kStates[] = {"measured",      "failed",      "crashed",    "time limit",
                                   "out of memory", "unsupported", "interrupted"};
constexpr const char* kMetrics[] = {"prefill", "decode", "serving"};
constexpr const char* kVerdicts[] = {"faster", "slower", "no difference"};

template <class E>
Result<E> parse_name(const char* kind, const std::string& name, std::span<const char* const> names) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) {
    return error(Code::usage, "there is no {} '{}'; known: {}", kind, printable(name), fmt::join(names, ", "));
  }
  return static_cast<E>(found - names.begin());
}

// The fields of each struct, once for both directions: `need` must be there, `may` keeps its default where it is not.
template <class T, class U>
concept Is = std::same_as<std::remove_const_t<T>, U>;

void fields(auto& v, Is<Machine> auto& m) {
  v.need("processor", m.processor);
  v.need("kernel", m.kernel);
  v.need("cpus", m.cpus);
  v.may("second_cache_bytes", m.second_cache_bytes);
  v.may("last_cache_bytes", m.last_cache_bytes);
  v.need("memory_bytes", m.memory_bytes);
  v.may("memory_free_bytes", m.memory_free_bytes);
}

void fields(auto& v, Is<Probes> auto& p) {
  v.need("threads", p.threads);
  v.may("probe_bytes", p.read_bytes);
  v.may("probe_seconds", p.seconds);
  v.may("read_gbs_one_thread", p.read_gbs_one);
  v.need("read_gbs", p.read_gbs);
  v.may("fp32_tflops", p.fp32_tflops);
  v.may("vnni_tops", p.vnni_tops);
  v.may("amx_int8_tops", p.amx_int8_tops);
  v.may("amx_bf16_tflops", p.amx_bf16_tflops);
}

void fields(auto& v, Is<DeviceCeiling> auto& c) {
  v.need("device", c.device);
  v.may("read_gbs", c.read_gbs);
  v.may("matrix_tops", c.matrix_tops);
  v.may("matrix", c.matrix);
}

void fields(auto& v, Is<ReportModel> auto& m) {
  v.need("name", m.name);
  v.may("quantization", m.quantization);
  v.may("layers", m.layers);
  v.may("parameters", m.parameters);
  v.may("weight_bytes", m.weight_bytes);
  v.may("context", m.context);
}

void fields(auto& v, Is<Interval> auto& i) {
  v.need("median", i.median);
  v.need("low", i.low);
  v.need("high", i.high);
}

void fields(auto& v, Is<Percentiles> auto& p) {
  v.need("p50", p.p50);
  v.need("p95", p.p95);
  v.need("p99", p.p99);
}

void fields(auto& v, Is<StepOverhead> auto& o) {
  v.may("lists", o.lists);
  v.may("barriers", o.barriers);
  v.may("barriers_per_layer", o.barriers_per_layer);
  v.may("core_microseconds", o.core_microseconds);
  v.may("core_share", o.core_share);
  v.may("wait_share", o.wait_share);
}

void fields(auto& v, Is<CellKernel> auto& k) {
  v.need("kernel", k.kernel);
  v.may("op", k.op);
  v.need("calls", k.calls);
  v.need("ms", k.ms);
}

void fields(auto& v, Is<CellDrafts> auto& d) {
  v.need("by", d.by);
  v.need("steps", d.steps);
  v.need("drafted", d.drafted);
  v.need("accepted", d.accepted);
  v.may("share_by_place", d.share_by_place);
}

void fields(auto& v, Is<Cell> auto& c) {
  v.need("metric", c.metric);
  v.need("at", c.at);
  v.need("state", c.state);
  v.may("reason", c.reason);
  v.may("samples", c.samples);
  v.may("tokens", c.tokens);
  v.may("rate", c.rate);
  v.may("bytes_per_token", c.bytes_per_token);
  v.may("bandwidth_share", c.bandwidth_share);
  v.may("matrix_share", c.matrix_share);
  v.may("bound", c.bound);
  v.may("bound_share", c.bound_share);
  v.may("read_bytes", c.read_bytes);
  v.may("drawn", c.drawn);
  v.may("overhead", c.overhead);
  v.may("kernels", c.kernels);
  v.may("drafts", c.drafts);
  v.may("requests", c.requests);
  v.may("requests_asked", c.requests_asked);
  v.may("ttft", c.ttft);
  v.may("itl", c.itl);
}

void fields(auto& v, Is<Divergence> auto& d) {
  v.need("position", d.position);
  v.need("gap", d.gap);
  v.need("token", d.token);
  v.need("expected", d.expected);
}

void fields(auto& v, Is<OpError> auto& e) {
  v.need("op", e.op);
  v.may("kernel", e.kernel);
  v.need("worst_row", e.worst_row);
  v.may("mean", e.mean);
  v.may("budget", e.budget);
}

void fields(auto& v, Is<Correctness> auto& c) {
  v.need("against", c.against);
  v.need("state", c.state);
  v.may("reason", c.reason);
  v.may("positions", c.positions);
  v.may("kl_mean", c.kl_mean);
  v.may("kl_worst", c.kl_worst);
  v.may("top1", c.top1);
  v.may("divergence", c.divergence);
  v.may("ops", c.ops);
}

void fields(auto& v, Is<Configuration> auto& c) {
  v.need("name", c.name);
  v.may("backend", c.backend);
  v.may("library", c.library);
  v.may("plugin_version", c.plugin_version);
  v.may("devices", c.devices);
  v.may("threads", c.threads);
  v.may("sampling", c.sampling);
  v.may("quantization", c.quantization);
  v.may("batch", c.batch);
  v.need("state", c.state);
  v.may("reason", c.reason);
  v.may("load_seconds", c.load_seconds);
  v.may("peak_host_bytes", c.peak_host_bytes);
  v.may("peak_device_bytes", c.peak_device_bytes);
  v.may("replay", c.replay);
  v.need("cells", c.cells);
  v.may("correctness", c.correctness);
}

void fields(auto& v, Is<Comparison> auto& c) {
  v.need("base", c.base);
  v.need("other", c.other);
  v.need("metric", c.metric);
  v.need("at", c.at);
  v.need("ratio", c.ratio);
  v.need("low", c.low);
  v.need("high", c.high);
  v.need("verdict", c.verdict);
  v.may("pairs", c.pairs);
}

void fields(auto& v, Is<Report> auto& r) {
  v.need("version", r.version);
  v.may("commit", r.commit);
  v.may("command", r.command);
  v.may("date", r.date);
  v.need("machine", r.machine);
  v.need("probes", r.probes);
  v.need("model", r.model);
  v.may("prompt", r.prompt);
  v.need("configurations", r.configurations);
  v.may("comparisons", r.comparisons);
}

class Writer {
 public:
  explicit Writer(ordered_json& to) : to_(to) {}

  void need(const char* name, const auto& x) { to_[name] = json_of(x); }
  // Values that a cell does not have are left out, so that a row of numbers stays readable.
  void may(const char* name, const auto& x) { to_[name] = json_of(x); }
  template <class T>
  void may(const char* name, const std::optional<T>& x) {
    if (x) to_[name] = json_of(*x);
  }

  static ordered_json json_of(const std::string& x) { return x; }
  static ordered_json json_of(double x) { return std::isfinite(x) ? ordered_json(x) : ordered_json(nullptr); }
  static ordered_json json_of(std::integral auto x) { return x; }
  static ordered_json json_of(State x) { return state_name(x); }
  static ordered_json json_of(Metric x) { return metric_name(x); }
  static ordered_json json_of(Verdict x) { return verdict_name(x); }
  template <class T>
  static ordered_json json_of(const std::vector<T>& all) {
    ordered_json j = ordered_json::array();
    for (const T& x : all) j.push_back(json_of(x));
    return j;
  }
  template <class T>
  requires std::is_class_v<T>
  static ordered_json json_of(const T& x) {
    ordered_json j = ordered_json::object();
    Writer v(j);
    fields(v, x);
    return j;
  }

 private:
  ordered_json& to_;
};

// Keeps the first error, and reads nothing more after it.
class Reader {
 public:
  Reader(const json& from, std::string path, Status& status) : from_(from), path_(std::move(path)), status_(status) {
    if (!from.is_object()) fail(path_, "should be an object");
  }

  void need(const char* name, auto& x) {
    if (!status_.ok()) return;
    const std::string path = path_.empty() ? name : path_ + "." + name;
    const auto found = from_.find(name);
    if (found == from_.end()) return fail(path, "is missing");
    read(*found, path, x);
  }
  void may(const char* name, auto& x) {
    if (status_.ok() && from_.contains(name)) need(name, x);
  }

 private:
  void fail(const std::string& path, const std::string& what) {
    if (status_.ok()) status_ = error(Code::invalid_data, "{} {}", path.empty() ? "the report" : path, what);
  }

  void read(const json& j, const std::string& path, std::string& x) {
    if (!j.is_string()) return fail(path, "should be text");
    x = j.get<std::string>();
  }
  void read(const json& j, const std::string& path, double& x) {
    if (j.is_null()) {
      x = std::numeric_limits<double>::quiet_NaN();
    } else if (j.is_number()) {
      x = j.get<double>();
    } else {
      fail(path, "should be a number");
    }
  }
  template <std::integral T>
  void read(const json& j, const std::string& path, T& x) {
    constexpr T least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
    const bool fits = j.is_number_unsigned()  ? std::cmp_less_equal(j.get<uint64_t>(), most)
                      : j.is_number_integer() ? std::cmp_greater_equal(j.get<int64_t>(), least) &&
                                                    std::cmp_less_equal(j.get<int64_t>(), most)
                                              : false;
    if (!fits) return fail(path, fmt::format("should be a whole number from {} to {}", least, most));
    x = j.get<T>();
  }
  void read(const json& j, const std::string& path, State& x) { read_name(j, path, x, parse_state); }
  void read(const json& j, const std::string& path, Metric& x) { read_name(j, path, x, parse_metric); }
  void read(const json& j, const std::string& path, Verdict& x) { read_name(j, path, x, parse_verdict); }
  template <class E>
  void read_name(const json& j, const std::string& path, E& x, Result<E> (*parse)(const std::string&)) {
    std::string name;
    read(j, path, name);
    if (!status_.ok()) return;
    const Result<E> parsed = parse(name);
    if (!parsed.ok()) return fail(path, "is wrong: " + parsed.status().message());
    x = *parsed;
  }
  template <class T>
  void read(const json& j, const std::string& path, std::optional<T>& x) {
    x.reset();
    if (!j.is_null()) read(j, path, x.emplace());
  }
  template <class T>
  void read(const json& j, const std::string& path, std::vector<T>& x) {
    if (!j.is_array()) return fail(path, "should be a list");
    x.clear();
    for (const json& item : j) {
      if (!status_.ok()) return;
      const std::string place = fmt::format("{}[{}]", path, x.size());
      read(item, place, x.emplace_back());
    }
  }
  template <class T>
  requires std::is_class_v<T>
  void read(const json& j, const std::string& path, T& x) {
    Reader v(j, path, status_);
    fields(v, x);
  }

  const json& from_;
  const std::string path_;
  Status& status_;
};

Status check(const Cell& cell) {
  for (size_t i = 0; i < cell.samples.size(); ++i) {
    if (!std::isfinite(cell.samples[i]) || cell.samples[i] <= 0) {
      return error(Code::invalid_data, "samples[{}] is {}, which is no time; they are positive seconds", i,
                   cell.samples[i]);
    }
  }
  if (!cell.samples.empty() && (!std::isfinite(cell.tokens) || cell.tokens <= 0)) {
    return error(Code::invalid_data, "tokens is {} where there are samples; it is positive", cell.tokens);
  }
  return {};
}

Status check(const Report& report) {
  std::set<std::string> names;
  for (size_t i = 0; i < report.configurations.size(); ++i) {
    const Configuration& c = report.configurations[i];
    const std::string path = fmt::format("configurations[{}]", i);
    if (!names.insert(c.name).second) {
      return error(Code::invalid_data, "{}.name is '{}', as of another configuration", path, c.name);
    }
    for (size_t k = 0; k < c.cells.size(); ++k) SWY_TRY(check(c.cells[k]).in(fmt::format("{}.cells[{}]", path, k)));
  }
  return {};
}

}  // namespace

const char* state_name(State state) { return kStates[static_cast<size_t>(state)]; }
const char* metric_name(Metric metric) { return kMetrics[static_cast<size_t>(metric)]; }
const char* verdict_name(Verdict verdict) { return kVerdicts[static_cast<size_t>(verdict)]; }

Result<State> parse_state(const std::string& name) { return parse_name<State>("state", name, kStates); }
Result<Metric> parse_metric(const std::string& name) { return parse_name<Metric>("metric", name, kMetrics); }
Result<Verdict> parse_verdict(const std::string& name) { return parse_name<Verdict>("verdict", name, kVerdicts); }

const Cell* Configuration::cell(Metric metric, uint32_t at) const {
  const auto found =
      std::find_if(cells.begin(), cells.end(), [&](const Cell& c) { return c.metric == metric && c.at == at; });
  return found == cells.end() ? nullptr : &*found;
}

const Configuration* Report::configuration(const std::string& name) const {
  const auto found = std::find_if(configurations.begin(), configurations.end(),
                                  [&](const Configuration& c) { return c.name == name; });
  return found == configurations.end() ? nullptr : &*found;
}

ordered_json to_json(const Report& report) {
  ordered_json j = {{"format", kReportFormat}};
  j.update(Writer::json_of(report));
  j["probes"]["matrix_ceiling"] = report.probes.matrix().name;
  j["probes"]["devices"] = Writer::json_of(report.ceilings);
  return j;
}

Result<Report> report_of(const json& from) {
  const auto format = from.is_object() ? from.find("format") : from.end();
  if (format == from.end() || !format->is_string() ||
      !format->get_ref<const std::string&>().starts_with("switchyard.bench/")) {
    return error(Code::invalid_data, "not a report of `switchyard bench`; its format would be \"{}\"", kReportFormat);
  }
  if (*format != kReportFormat) {
    return error(Code::invalid_data, "a report of the format \"{}\"; this version reads \"{}\"",
                 printable(format->get_ref<const std::string&>()), kReportFormat);
  }
  Report report;
  Status status;
  Reader reader(from, "", status);
  fields(reader, report);
  if (status.ok()) {
    Reader probes(from["probes"], "probes", status);
    probes.may("devices", report.ceilings);
  }
  SWY_TRY(status);
  SWY_TRY(check(report));
  return report;
}

Result<Report> parse_report(const std::string& text) {
  SWY_LET(const json report, read_json(text, "the report"));
  return report_of(report);
}

}  // namespace switchyard::bench
