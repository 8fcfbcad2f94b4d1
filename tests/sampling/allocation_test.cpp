// SPDX-License-Identifier: Apache-2.0
// Sampling allocates nothing, whatever the setting. Counts every allocation of this executable.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "core/sampling/sampler.h"
#include "tests/sampling/random_rows.h"

namespace {
thread_local uint64_t allocations = 0;
}

void* operator new(size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
  throw std::bad_alloc();
}
// Where only these are inlined, the compiler sees memory of `new` go to `free`.
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace switchyard {
namespace {

TEST(Allocations, TheCounterCounts) {
  const uint64_t before = allocations;
  const auto one = std::make_unique<int>(1);
  EXPECT_EQ(before + 1, allocations);
}

TEST(Allocations, ARowIsDrawnWithoutAny) {
  std::mt19937_64 random(7);
  std::vector<int32_t> ids(8);
  std::vector<float> logprobs(8);
  for (const swy::RowKernels* kernels : swy::row_kernels()) {
    swy::RowSampler sampler(2000, *kernels);
    for (int i = 0; i < 1000; ++i) {
      const testing::RandomRow row(random, testing::random_vocab(random, 2000));
      swy_sample_row_out out{};
      const uint64_t before = allocations;
      if (sampler.sample(row.params, row.in, out) == SWY_SAMPLE_OK) sampler.top_logprobs(row.logits, ids, logprobs);
      ASSERT_EQ(before, allocations) << kernels->name << " row " << i;
    }
  }
}

TEST(Allocations, ASequenceIsDrawnWithoutAny) {
  SamplingParams p;
  p.repetition_penalty = 1.1f;
  p.biases = {{3, 1.0f}};
  p.stop_ids = {0};
  p.top_logprobs = 5;
  p.seed = 1;
  Result<Sampler> sampler = Sampler::create(p, 1000);
  ASSERT_TRUE(sampler.ok());
  std::vector<float> logits(1000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 37);
  const uint64_t before = allocations;
  for (uint64_t position = 0; position < 100; ++position) {
    const Result<Draw> draw = sampler->draw(logits, position);
    ASSERT_TRUE(draw.ok());
    sampler->saw_output(draw->token);
  }
  EXPECT_EQ(before, allocations);
}

}  // namespace
}  // namespace switchyard
