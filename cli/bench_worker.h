// SPDX-License-Identifier: Apache-2.0
// The worker's side of `switchyard bench`, and the messages of both sides.
//
// A request is an object with "do":
//   open       settings (below)            -> id, version, library, devices
//   load       seconds                     -> load_seconds, devices, name, quantization, layers, ...
//   cell       id, metric, at, batch, sampling, decode, seconds -> step_seconds, tokens, bytes, operations
//   turn       id, warm, steps             -> seconds: one per step
//   watch      id, warm, kernels           -> overhead, kernels, read_bytes, why
//   close      id
//   say        tokens, decoded, seconds, file   writes the model's logits and greedy text to the file
//   compare    tokens, decoded, seconds, file   -> the Correctness of a report, against that file
//   op_errors  seconds                     -> ops
//   serving    at, seconds                 -> cell: the Cell of a report
//   ceiling                                -> ceilings of devices that are not the host
//   usage                                  -> peak_host_bytes, peak_device_bytes, cpu_seconds
//
// The answer is an object, too. If a request fails, the answer has "error" and "code".
#pragma once

#include <nlohmann/json.hpp>

#include "cli/settings.h"
#include "core/sampling/sampler.h"

namespace CLI {
class App;
}

namespace switchyard::cli {

// The settings that a worker gets first.
struct WorkerSettings {
  Settings settings;
  SamplingParams sampling;
  bool random = false;
};
nlohmann::json to_json(const WorkerSettings& settings);
WorkerSettings worker_settings(const nlohmann::json& json);

// A command that is not listed: serves requests at WorkerProcess::kChannel until the other end closes.
void add_bench_worker(CLI::App& app, int& exit_code);
constexpr const char* kBenchWorker = "bench-worker";

}  // namespace switchyard::cli
