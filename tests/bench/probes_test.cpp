// SPDX-License-Identifier: Apache-2.0
#include "bench/probes.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/base/os.h"
#include "tests/engine/fixture.h"

namespace switchyard::bench {
namespace {

TEST(Probes, MeasureWhatTheMachineHas) {
  const swy_executor& team = *test_host().table()->executor;
  const Probes& p = probe_machine(team);
  EXPECT_EQ(p.threads, 2u);
  EXPECT_GT(p.read_gbs_one, 0.1);
  EXPECT_GT(p.read_gbs, 0.1);
  EXPECT_EQ(p.vnni_tops > 0, bursts::vnni().run != nullptr);
  EXPECT_EQ(p.amx_int8_tops > 0, bursts::amx_int8().run != nullptr);
  for (const double rate : {p.fp32_tflops, p.vnni_tops, p.amx_int8_tops, p.amx_bf16_tflops}) {
    EXPECT_LE(rate, p.matrix().tops);
  }
  EXPECT_EQ(&p, &probe_machine(team)) << "once per process";
}

// A chain of dependent multiply-adds takes 4 cycles each; independent ones take half a cycle or one. When the compiler
// computes one sum for all, the rate is that of the chain.
TEST(Probes, SumsAreIndependent) {
  const Burst burst = bursts::fp32();
  if (burst.run == nullptr) return;
  const auto rate = [](auto&& work, double operations) {
    double best = 0;
    for (int i = 0; i < 20; ++i) {
      const uint64_t begin = thread_cpu_ns();
      work();
      best = std::max(best, operations / static_cast<double>(thread_cpu_ns() - begin));
    }
    return best;
  };
  constexpr int kChain = 100000;
  const double chain = rate(
      [] {
        float x = 1;
        for (int i = 0; i < kChain; ++i) {
          x = x * 1.0001f;
          __asm__ volatile("" : "+m"(x) : : "memory");  // through memory: slower still, whatever the compiler does
        }
      },
      kChain);
  EXPECT_GT(rate(burst.run, burst.operations), 16 * chain);
}

}  // namespace
}  // namespace switchyard::bench
