// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_report.h"

#include <nlohmann/json.hpp>

#include "bench/machine.h"
#include "cli/output.h"

namespace switchyard::cli {

using bench::Probes;
using nlohmann::ordered_json;

Shares shares_of(double bytes, double operations, double seconds, const bench::DeviceCeiling& most) {
  Shares s;
  if (seconds <= 0) return s;
  if (most.read_gbs > 0) s.bandwidth = bytes / 1e9 / seconds / most.read_gbs;
  if (most.matrix_tops > 0) s.matrix = operations / 1e12 / seconds / most.matrix_tops;
  return s;
}

bench::DeviceCeiling host_ceiling(const Probes& probes) {
  return {"", probes.read_gbs, probes.matrix().tops, probes.matrix().name};
}

const Probes& probe(const Host& host) {
  Progress bar("measuring the machine");
  bar.update(0, 1);
  return bench::probe_machine(*host.table()->executor);
}

std::string model_name(const Settings& settings) { return settings.model.empty() ? "demo" : settings.model; }

ordered_json report_head(const Settings& settings, const Probes& p) {
  const bench::Machine m = bench::describe_machine();
  return {{"version", SWITCHYARD_VERSION},
          {"command", bench::command_line()},
          {"model", model_name(settings)},
          {"threads", p.threads},
          {"machine",
           {{"processor", m.processor},
            {"kernel", m.kernel},
            {"cpus", m.cpus},
            {"second_cache_bytes", m.second_cache_bytes},
            {"last_cache_bytes", m.last_cache_bytes},
            {"memory_bytes", m.memory_bytes},
            {"probe_bytes", p.read_bytes},
            {"probe_seconds", p.seconds},
            {"read_gbs_one_thread", p.read_gbs_one},
            {"read_gbs", p.read_gbs},
            {"fp32_tflops", p.fp32_tflops},
            {"vnni_tops", p.vnni_tops},
            {"amx_int8_tops", p.amx_int8_tops},
            {"amx_bf16_tflops", p.amx_bf16_tflops},
            {"matrix_ceiling", p.matrix().name}}}};
}

void print_probes(const Probes& p) {
  const auto rate = [](double v, const char* unit) {
    return v == 0 ? std::string("-") : fmt::format("{:.2f} {}", v, unit);
  };
  const bench::Machine m = bench::describe_machine();
  fmt::print("{}, {}, {} threads of {}\n", m.processor.empty() ? "processor not named" : m.processor, m.kernel,
             p.threads, m.cpus);
  if (p.read_bytes == 0) return;  // not measured
  fmt::print("memory read {:.1f} GB/s ({:.1f} with one thread; {} MiB)\n", p.read_gbs, p.read_gbs_one,
             p.read_bytes >> 20);
  fmt::print("products: fp32 {}, VNNI {}, AMX int8 {}, AMX bf16 {}; `matrix` below is of {}\n",
             rate(p.fp32_tflops, "TFLOP/s"), rate(p.vnni_tops, "TOPS"), rate(p.amx_int8_tops, "TOPS"),
             rate(p.amx_bf16_tflops, "TFLOP/s"), p.matrix().name);
}

}  // namespace switchyard::cli
