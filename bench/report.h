// SPDX-License-Identifier: Apache-2.0
// A benchmark's report: what `switchyard bench` measured, on what, and how sure it is. Plain values, written as JSON of
// the format "switchyard.bench/1" and read back by `bench compare`; the renderers (report_render.h) take
// one. Times are in seconds, memory in bytes, rates per second. A number that is none (a KL of broken logits) is null
// in JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/machine.h"
#include "bench/probes.h"
#include "core/base/status.h"

namespace switchyard::bench {

constexpr const char* kReportFormat = "switchyard.bench/1";

// How a measurement ended. All but `measured` come with a reason.
enum class State { measured, failed, crashed, time_limit, out_of_memory, unsupported, interrupted };
const char* state_name(State state);  // "time limit"
// Errors: usage, naming the known ones.
Result<State> parse_state(const std::string& name);

enum class Metric { prefill, decode, serving };
const char* metric_name(Metric metric);
Result<Metric> parse_metric(const std::string& name);

enum class Verdict { faster, slower, no_difference };
const char* verdict_name(Verdict verdict);  // "no difference"
Result<Verdict> parse_verdict(const std::string& name);

// A median and the 99% bootstrap interval around it.
struct Interval {
  double median = 0, low = 0, high = 0;
};

struct Percentiles {
  double p50 = 0, p95 = 0, p99 = 0;  // seconds
};

// The runtime's work besides the kernels, per step.
struct StepOverhead {
  double lists = 0, barriers = 0, barriers_per_layer = 0;
  double core_microseconds = 0;
  double core_share = 0, wait_share = 0;  // of the step's time
};

// A kernel inside a step, all its calls together.
struct CellKernel {
  std::string kernel;  // "linear_add.vector"
  std::string op;      // "linear_add"
  double calls = 0, ms = 0;
};

// Drafted tokens of a decoding cell.
struct CellDrafts {
  std::string by;    // as --speculate has it
  double steps = 0;  // of a request, with drafts
  double drafted = 0, accepted = 0;
  std::vector<double> share_by_place = {};  // of the drafts at a place of a step, that were accepted
};

// One measurement of one configuration. If it was not measured, it has only its state and the reason.
struct Cell {
  Metric metric = Metric::prefill;
  uint32_t at = 0;  // tokens of the prompt; tokens in the context; concurrent requests
  State state = State::measured;
  std::string reason;  // of a measured one: what went wrong afterwards

  // Seconds per `tokens` tokens: of a prompt, of a step, or of an equal part of the tokens that serving wrote.
  std::vector<double> samples;
  double tokens = 0;
  std::optional<Interval> rate;  // tokens per second

  // Of prefill and decode.
  std::optional<double> bytes_per_token;
  std::optional<double> bandwidth_share, matrix_share;  // of the measured ceilings of its device
  std::string bound;                                    // the larger of them, "bandwidth" or "matrix"; "": neither
  std::optional<double> bound_share;
  std::optional<double> read_bytes;  // that came to the host, per sampled token
  std::string drawn;                 // by which path, and why: "logits: cpu:0 does not sample penalties"; "": none was
  std::optional<StepOverhead> overhead;
  std::vector<CellKernel> kernels;
  std::optional<CellDrafts> drafts;  // with speculation

  // Of serving.
  uint32_t requests = 0;                 // that ended, and count
  uint32_t requests_asked = 0;           // more than `requests` where the time limit came first
  std::optional<Percentiles> ttft, itl;  // time to the first token, and from token to token
};

// Where greedy texts part for the first time.
struct Divergence {
  uint64_t position = 0;
  double gap = 0;  // between the reference's two logits there
  int32_t token = 0, expected = 0;
};

struct OpError {
  std::string op, kernel;
  double worst_row = 0, mean = 0;  // differences from the reference, as shares of its root mean square
  std::optional<double> budget;    // that the worst row is allowed
};

struct Correctness {
  std::string against;  // name of a configuration, or a backend: "reference"
  State state = State::measured;
  std::string reason;
  uint64_t positions = 0;
  double kl_mean = 0, kl_worst = 0;
  double top1 = 0;  // share of the positions where the likeliest token is the same
  std::optional<Divergence> divergence;
  std::vector<OpError> ops;
};

struct Configuration {
  std::string name;  // unique in a report: "cpu", "cpu#2", "cpu, threads=2"
  std::string backend, library, plugin_version;
  std::vector<std::string> devices;
  uint32_t threads = 0;
  std::string sampling, quantization;
  uint32_t batch = 1;
  State state = State::measured;  // of the whole: a backend that does not load has no cells
  std::string reason;
  double load_seconds = 0;
  uint64_t peak_host_bytes = 0, peak_device_bytes = 0;
  std::string replay;  // "native", "emulated", "executed"; "": not known
  std::vector<Cell> cells;
  std::optional<Correctness> correctness;  // none: not requested

  const Cell* cell(Metric metric, uint32_t at) const;  // NULL if there is none
};

// Two configurations on one cell; the ratio is of the rates, `other` over `base`.
struct Comparison {
  std::string base, other;  // names of configurations
  Metric metric = Metric::prefill;
  uint32_t at = 0;
  double ratio = 1, low = 1, high = 1;
  Verdict verdict = Verdict::no_difference;
  uint64_t pairs = 0;
};

// A device's peak rates, measured by a probe.
struct DeviceCeiling {
  std::string device;  // as in Configuration::devices
  double read_gbs = 0;
  double matrix_tops = 0;
  std::string matrix;  // kind of product: "bf16"
};

struct ReportModel {
  std::string name, quantization;
  uint32_t layers = 0;
  uint64_t parameters = 0, weight_bytes = 0;
  uint32_t context = 0;
};

struct Report {
  std::string version, commit;
  std::vector<std::string> command;
  std::string date;  // "2026-11-21T16:00:00Z"
  Machine machine;
  Probes probes;                        // of the host
  std::vector<DeviceCeiling> ceilings;  // "devices" within "probes"
  ReportModel model;
  std::string prompt;  // "text" or "random ids"
  std::vector<Configuration> configurations;
  std::vector<Comparison> comparisons;

  const Configuration* configuration(const std::string& name) const;  // NULL if there is none
};

nlohmann::ordered_json to_json(const Report& report);

// Fields that are not known are left alone. Errors, each with the path of the field, as in
// "configurations[1].cells[0].at": invalid_data for another format or version, a field that is missing or of the wrong
// kind, a time that is not positive, two configurations of one name.
Result<Report> report_of(const nlohmann::json& from);

// report_of for a text. Errors: also invalid_data for a text that is not JSON.
Result<Report> parse_report(const std::string& text);

}  // namespace switchyard::bench
