// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/sample_report.h"

namespace switchyard::bench {
namespace {

Cell measured(Metric metric, uint32_t at, double rate, double tokens) {
  Cell c;
  c.metric = metric;
  c.at = at;
  for (const double factor : {1.0, 0.98, 1.03, 0.99, 1.01}) c.samples.push_back(tokens / rate * factor);
  c.tokens = tokens;
  c.rate = Interval{rate, rate * 0.97, rate * 1.02};
  if (metric == Metric::serving) return c;
  c.bytes_per_token = 1.5e6;
  c.bandwidth_share = rate * 1.5e6 / 20e9;
  c.matrix_share = rate * 4e6 / 2e12;
  c.bound = *c.bandwidth_share > *c.matrix_share ? "bandwidth" : "matrix";
  c.bound_share = std::max(*c.bandwidth_share, *c.matrix_share);
  c.overhead = StepOverhead{2, 40, 5, 12, 0.01, 0.08};
  c.kernels = {{"moe_add.rows", "moe_add", 8, 400 / rate * tokens},
               {"lm_head.plain", "lm_head", 1, 90 / rate * tokens}};
  return c;
}

Cell serving(uint32_t at, double rate) {
  Cell c = measured(Metric::serving, at, rate, 64);
  c.requests = 20;
  c.requests_asked = 24;
  c.ttft = Percentiles{0.08, 0.31, 0.4};
  c.itl = Percentiles{0.01, 0.022, 0.05};
  return c;
}

Cell unmeasured(Metric metric, uint32_t at, State state, const std::string& reason) {
  Cell c;
  c.metric = metric;
  c.at = at;
  c.state = state;
  c.reason = reason;
  return c;
}

Configuration configuration(const std::string& name, double speed) {
  Configuration c;
  c.name = c.backend = name;
  c.library = "libswitchyard_" + name + ".so";
  c.plugin_version = "0.1.0";
  c.devices = {name == "cpu" ? "cpu:0" : "reference:0"};
  c.threads = 2;
  c.sampling = "auto";
  c.quantization = "4-bit";
  c.load_seconds = 0.25;
  c.peak_host_bytes = 123'000'000;
  c.replay = "executed";
  c.cells = {measured(Metric::prefill, 128, 900 * speed, 128), measured(Metric::prefill, 512, 1000 * speed, 512),
             measured(Metric::decode, 0, 100 * speed, 1), measured(Metric::decode, 1024, 80 * speed, 1)};
  return c;
}

}  // namespace

Report sample_report() {
  Report r;
  r.version = "0.1.0";
  r.commit = "0123456789abcdef";
  r.command = {"switchyard", "bench", "--backends", "reference,cpu,third.so"};
  r.date = "2026-11-21T16:00:00Z";
  r.machine.processor = "A <fast> processor & \"co\"";
  r.machine.kernel = "Linux 6.1.0";
  r.machine.cpus = 2;
  r.machine.memory_bytes = 8'000'000'000;
  r.probes.threads = 2;
  r.probes.read_bytes = 1 << 30;
  r.probes.read_gbs_one = 12;
  r.probes.read_gbs = 20;
  r.probes.fp32_tflops = 0.2;
  r.probes.vnni_tops = 2;
  r.ceilings = {{"third:0", 3000, 900, "bf16"}};
  r.model = {"demo", "4-bit", 8, 12'000'000, 7'000'000, 2048};
  r.prompt = "text";

  Configuration reference = configuration("reference", 1);
  reference.cells.push_back(unmeasured(Metric::serving, 8, State::time_limit, "took longer than 60 s"));
  Configuration cpu = configuration("cpu", 8);
  cpu.cells[2].reason = "afterwards: crashed in decode at 0: Segmentation fault";
  cpu.cells[3].read_bytes = 512;
  cpu.cells[3].drawn = "candidates: cpu:0 does not sample token masks";
  cpu.cells.push_back(serving(8, 700));
  Correctness right;
  right.against = "reference";
  right.positions = 80;
  right.kl_mean = 1.2e-5;
  right.kl_worst = 3.4e-4;
  right.top1 = 0.9875;
  right.divergence = Divergence{17, 0.02, 5, 9};
  right.ops = {{"moe_add", "moe_add.rows", 2e-3, 8e-4, 1e-2}};
  cpu.correctness = right;
  Configuration third;
  third.name = "third.so";
  third.backend = "third";
  third.state = State::out_of_memory;
  third.reason = "weights take 40 GB, | the device has <24> GB";
  r.configurations = {reference, cpu, third};
  r.comparisons = {{"reference", "cpu", Metric::decode, 0, 8.01, 7.9, 8.1, Verdict::faster, 40},
                   {"reference", "cpu", Metric::prefill, 512, 1.001, 0.99, 1.01, Verdict::no_difference, 5}};
  return r;
}

}  // namespace switchyard::bench
