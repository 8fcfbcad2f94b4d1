// SPDX-License-Identifier: Apache-2.0
// The options of `switchyard bench`, and the processes and configurations that they make.
#pragma once

#include <string>
#include <vector>

#include "bench/measure.h"
#include "bench/report.h"
#include "cli/bench_serve.h"
#include "cli/bench_worker.h"

namespace switchyard::cli {

struct BenchOptions {
  Settings settings;
  std::vector<std::string> backends, ab;  // none: settings.backend alone
  std::vector<uint32_t> threads;          // none: settings.threads
  std::vector<std::string> sampling;      // paths to sample on; none: steps over a text
  std::vector<uint32_t> batch;            // requests that decode at the same time; none: one
  std::vector<std::string> quant;         // none: the model's own
  SamplingParams params;

  std::vector<std::string> metrics;  // none: all
  std::vector<uint32_t> prefill = {512, 1341}, depths = {0, 1024}, serving;
  uint32_t decode = 128, repeat = 5;
  double seconds = 0;       // per configuration and cell that are compared; 0: a default
  uint32_t starts = 0;      // of the processes; 0: a default
  double time_limit = 300;  // per configuration and cell
  std::vector<uint32_t> check_tokens = {64, 16};
  bool check = false, no_check = false, check_ops = true;
  bool random = false, ops = false, json = false, no_probes = false;
  std::string format = "table", output, html;
  BenchServeFlags serve;

  bool has(bench::Metric metric) const;
  bool compares() const { return !backends.empty() || !ab.empty(); }
  bool checks() const { return !no_check && (check || compares()); }
  bool speculates() const { return settings.speculate != "off"; }
  // What a step of decoding is: a token of every request, or with speculation several.
  uint32_t tokens_a_step() const { return speculates() ? bench::Drafting::kTokens : 1; }
  uint32_t decode_steps() const { return (decode + tokens_a_step() - 1) / tokens_a_step(); }
  // Steps of one turn of decoding, with those that warm it up and those that are observed.
  uint32_t most_steps() const;
  uint32_t most_tokens() const;  // of a request in a turn
  // Tokens of text that all measurements need.
  uint32_t text_tokens() const;
  uint32_t context_tokens() const;  // that a session must hold
  // The sessions that one process has open at the same time.
  uint32_t sessions() const;

  // Errors: usage.
  Status check_values() const;
};

// The measurement of one cell.
struct CellPlan {
  bench::Metric metric = bench::Metric::prefill;
  uint32_t at = 0;
  std::string name() const { return fmt::format("{} at {}", bench::metric_name(metric), at); }
};

// One worker process, for the configurations that differ only in a request's parameters.
struct ProcessPlan {
  std::string backend;  // as --backend takes it, or the path of a .so
  std::string library;  // "": found by its id
  std::string name;     // "cpu", "cpu#2", "cpu, threads=2"
  std::string quant;    // of the sweep
  WorkerSettings worker;
  std::string unsupported;  // why it cannot be measured at all; "": it can
};

struct ConfigurationPlan {
  size_t process = 0;
  std::string name, sampling;
  uint32_t batch = 1;
};

struct BenchPlan {
  std::vector<ProcessPlan> processes;
  std::vector<ConfigurationPlan> configurations;
  std::vector<CellPlan> cells;
};

// Errors: usage.
Result<BenchPlan> plan_of(const BenchOptions& options);

}  // namespace switchyard::cli
