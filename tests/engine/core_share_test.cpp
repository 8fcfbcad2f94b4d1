// SPDX-License-Identifier: Apache-2.0
// Core's own processor time per step, outside the plugins: on four layers of the 35B's shape it is under 2% of a step.
// Draws that the host makes from logits come on top, but for the most likely token.
#include "core/base/os.h"
#include "core/import/synthetic.h"
#include "tests/engine/fixture.h"
#include "tests/support/batches.h"

namespace switchyard {
namespace {

// Steps of one session, and of eight, with greedy and with default sampling.
TEST(CoreShare, OfAStepIsSmall) {
  const auto request = parse_synthetic("qwen3.5-35b-a3b,layers=4,vocab=32768");
  ASSERT_TRUE(request.ok()) << request.status().message();
  auto program = synthetic_program(Os::real(), *request, 2);
  ASSERT_TRUE(program.ok()) << program.status().message();
  ModelOptions options = options_for(8, false);
  options.load_threads = 2;
  const TestModel t = make_model(std::move(*program), "cpu", options);
  ASSERT_NE(t.model, nullptr);
  for (const uint32_t sessions : {1u, 8u}) {
    for (const float temperature : {0.0f, 0.8f}) {
      std::mt19937 random(1);
      std::vector<std::unique_ptr<Session>> all;
      Batch batch(*t.model);
      Batch::Id first = 0;
      for (uint32_t i = 0; i < sessions; ++i) {
        all.push_back(*t.model->session());
        SamplingParams params{.temperature = temperature, .seed = i};
        const auto id = batch.add(*all.back(), request_of(random_ids(random, 20, t.model->vocab()), params, 200));
        ASSERT_TRUE(id.ok()) << id.status().message();
        if (i == 0) first = *id;
      }
      for (int i = 0; i < 5; ++i) ASSERT_TRUE(batch.step().ok());
      constexpr int kSteps = 40;
      SubmitCounts submits;
      t.model->runner().watch(&submits);
      const uint64_t begin = thread_cpu_ns();
      for (int i = 0; i < kSteps; ++i) ASSERT_TRUE(batch.step().ok());
      // In the thread's own processor time, so that other work of the machine has no influence.
      const double step = static_cast<double>(thread_cpu_ns() - begin) / kSteps;
      const double core = step - static_cast<double>(submits.cpu_ns) / kSteps;
      t.model->runner().watch(nullptr);
      const SamplingPath path = batch.outcome(first)->path.path;
      std::printf(
          "%u sessions, temperature %.1f, %s: a step takes %.0f us of processor time, of which core %.1f us (%.2f%%)\n",
          sessions, static_cast<double>(temperature), path_name(path), step / 1000, core / 1000, 100 * core / step);
      if (path == SamplingPath::fused || temperature == 0) {
        EXPECT_LT(core, 0.02 * step);
      }
    }
  }
}

}  // namespace
}  // namespace switchyard
