// SPDX-License-Identifier: Apache-2.0
// Host sampling at a vocabulary of 248,320, one thread: every setting of the chain, every build of the row kernels.
//   sampling_bench [--benchmark_filter=avx512/.*]
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "switchyard/sdk/row_sampler.hpp"

namespace switchyard {
namespace {

constexpr uint32_t kVocab = 248320;

struct Setting {
  const char* name;
  float temperature = 0.8f, top_p = 1, min_p = 0;
  int32_t top_k = 0;
  bool penalties = false, logprob = false, flat = false;
};

const std::vector<Setting>& settings() {
  static const std::vector<Setting> all = {
      {"greedy", 0},
      {"temperature"},
      {"top_k_40", 0.8f, 1, 0, 40},
      {"top_p_0.95", 0.8f, 0.95f},
      {"min_p_0.05", 0.8f, 1, 0.05f},
      {"top_k_20_top_p_0.95", 0.8f, 0.95f, 0, 20},
      {"top_p_0.95_penalties", 0.8f, 0.95f, 0, 0, true},
      {"top_p_0.95_logprob", 0.8f, 0.95f, 0, 0, false, true},
      {"flat_temperature", 1, 1, 0, 0, false, false, true},
      {"flat_top_k_40", 1, 1, 0, 40, false, false, true},
      {"flat_top_p_0.95", 1, 0.95f, 0, 0, false, false, true},
  };
  return all;
}

// Probabilities that fall as rank^-1.5, in random order, as a model's do; or, flat, nearly equal ones, the worst case.
std::vector<float> logits_of(bool flat) {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(kVocab);
  for (uint32_t i = 0; i < kVocab; ++i) x[i] = flat ? normal(random) : -1.2f * std::log(1.0f + static_cast<float>(i));
  std::shuffle(x.begin(), x.end(), random);
  return x;
}

void sample(benchmark::State& state, const Setting& s, const swy::RowKernels* kernels) {
  const std::vector<float> logits = logits_of(s.flat);
  std::vector<uint32_t> counts(kVocab);
  for (uint32_t id = 0; id < 2000; ++id) counts[(id * 7919u) % (id % 2 == 0 ? 8000u : kVocab)] = 1;
  swy_sample_params p{};
  swy_sample_params_init(&p);
  p.temperature = s.temperature;
  p.top_p = s.top_p;
  p.min_p = s.min_p;
  p.top_k = s.top_k;
  p.repetition_penalty = s.penalties ? 1.1f : 1.0f;
  p.flags = s.logprob ? SWY_SAMPLE_LOGPROB : 0;
  swy_sample_params_normalise(&p, nullptr);
  swy_sample_row_in in{};
  in.logits = logits.data();
  in.vocab = kVocab;
  in.counts = s.penalties ? counts.data() : nullptr;
  swy_sample_row_out out{};
  std::vector<uint64_t> workspace(kVocab);
  swy::RowSampler fast(kVocab, kernels == nullptr ? *swy::row_kernels().front() : *kernels);
  for (auto _ : state) {
    ++in.position;
    const int32_t status =
        kernels == nullptr ? swy_sample_row(&p, &in, workspace.data(), &out) : fast.sample(p, in, out);
    benchmark::DoNotOptimize(status);
    benchmark::DoNotOptimize(out);
  }
}

}  // namespace
}  // namespace switchyard

int main(int argc, char** argv) {
  using namespace switchyard;  // NOLINT(google-build-using-namespace)
  const auto add = [](const std::string& build, const swy::RowKernels* kernels) {
    for (const Setting& s : settings()) {
      benchmark::RegisterBenchmark((build + "/" + s.name).c_str(), [&s, kernels](benchmark::State& state) {
        sample(state, s, kernels);
      })->Unit(benchmark::kMicrosecond);
    }
  };
  for (const swy::RowKernels* kernels : swy::row_kernels()) add(kernels->name, kernels);
  add("reference", nullptr);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
