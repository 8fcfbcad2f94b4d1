// SPDX-License-Identifier: Apache-2.0
// Backends that sample less than the whole chain: which path a request takes on each, why, and the message for a
// request that asks for more. All give reference's tokens.
#include <gmock/gmock.h>

#include <map>

#include "tests/engine/fixture.h"
#include "tests/engine/fixtures/sampling_kinds.h"
#include "tests/support/batches.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using Path = SamplingPath;

struct Kind {
  std::string name;
  void (*change)(Request& r);
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {{"greedy", [](Request& r) { r.sampling.temperature = 0; }},
                                        {"plain", [](Request&) {}},
                                        {"top-k", [](Request& r) { r.sampling.top_k = 20; }},
                                        {"large top-k", [](Request& r) { r.sampling.top_k = 65; }},
                                        {"min-p", [](Request& r) { r.sampling.min_p = 0.1f; }},
                                        {"presence", [](Request& r) { r.sampling.presence_penalty = 0.5f; }},
                                        {"greedy repetition",
                                         [](Request& r) {
                                           r.sampling.temperature = 0;
                                           r.sampling.repetition_penalty = 1.3f;
                                         }},
                                        {"bias",
                                         [](Request& r) {
                                           r.sampling.biases = {{7, 2.0f}};
                                         }},
                                        {"three biases",
                                         [](Request& r) {
                                           r.sampling.biases = {{7, 2.0f}, {8, 2.0f}, {9, 2.0f}};
                                         }},
                                        {"logprobs", [](Request& r) { r.sampling.top_logprobs = 3; }},
                                        {"many logprobs", [](Request& r) { r.sampling.top_logprobs = 5; }},
                                        {"stop ids", [](Request& r) { r.sampling.stop_ids = {4000}; }},
                                        {"many stop ids",
                                         [](Request& r) {
                                           r.sampling.stop_ids = {4000, 4001, 4002, 4003};
                                         }},
                                        {"mask", [](Request& r) {
                                           r.mask = [](std::span<const int32_t>, std::span<uint32_t> mask) {
                                             mask[3] = mask[50] = 0xff;
                                           };
                                         }}};
  return all;
}

// The path of a request on a backend, and a part of the reason.
struct Expected {
  Path path;
  const char* reason;
};

struct Backend {
  std::string id;
  Expected otherwise;
  std::map<std::string, Expected> kinds = {};
};

std::vector<Backend> backends() {
  const Expected fused{Path::fused, "covers the request"};
  const char *none = "offers no sampler", *large = "takes at most 64 as top-k, not 65";
  const char *biases = "takes at most 2 biases, not 3", *stops = "takes at most 3 stop ids, not 4";
  const char *many = "gives the 4 most likely tokens, not 5", *penalties = "does not sample penalties";
  const Expected candidates{Path::candidates, none};
  return {{"draws_logits", {Path::logits, none}},
          {"draws_candidates",
           candidates,
           {{"presence", {Path::logits, "penalties need the counts on the device"}},
            {"greedy repetition", {Path::logits, "penalties need the counts"}},
            {"three biases", {Path::logits, biases}}}},
          {"draws_unpenalised",
           fused,
           {{"presence", {Path::logits, penalties}},
            {"greedy repetition", {Path::logits, penalties}},
            {"large top-k", {Path::candidates, large}},
            {"three biases", {Path::logits, biases}},
            {"many logprobs", {Path::candidates, many}},
            {"many stop ids", {Path::candidates, stops}}}},
          {"draws_greedy", {Path::logits, "does not sample"}, {{"greedy", fused}}}};
}

class Capability : public ::testing::TestWithParam<Backend> {};

TEST_P(Capability, DecidesThePathOfEachRequest) {
  const TestModel t = make_model(kDemo, GetParam().id, options_for(1), SWITCHYARD_FIXTURES);
  const TestModel whole = make_model(kDemo, "reference", options_for(1));
  ASSERT_TRUE(t.model != nullptr && whole.model != nullptr);
  auto session = t.model->session();
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    const auto special = GetParam().kinds.find(kind.name);
    const Expected expected = special == GetParam().kinds.end() ? GetParam().otherwise : special->second;
    Request wanted = request_of({3, 1, 4}, {.temperature = 1.0f, .top_p = 1.0f, .seed = 6}, 4);
    if (kind.name != "top-k") wanted.sampling.top_p = 0.9f;
    kind.change(wanted);
    if (wanted.sampling.temperature == 0) wanted.sampling.top_p = 1;
    const auto add = [&](Batch& batch, std::optional<Path> path, Drawn* drawn) {
      Request r = request_of(wanted.prompt, wanted.sampling, wanted.max_tokens, drawn);
      r.mask = wanted.mask;
      r.path = path;
      return batch.add(**session, std::move(r));
    };
    Batch batch(*t.model);
    Drawn drawn;
    const auto id = add(batch, {}, &drawn);
    ASSERT_TRUE(id.ok()) << id.status().message();
    ASSERT_TRUE(batch.run(*id).ok());
    const Outcome outcome = *batch.take(*id);
    EXPECT_STREQ(path_name(outcome.path.path), path_name(expected.path)) << outcome.path.reason;
    EXPECT_THAT(outcome.path.reason, HasSubstr(expected.reason));
    EXPECT_TRUE(drawn == draw_alone(*whole.model, wanted, Path::logits));
    const uint64_t row = uint64_t{t.model->vocab()} * sizeof(float);
    EXPECT_EQ(outcome.read_bytes / row, expected.path == Path::logits ? drawn.ids.size() : outcome.undecided);
    (*session)->reset();

    // Asked for by name: what auto has chosen, and logits, always serve; a sampler that does not cover it, never.
    for (const Path asked : {Path::fused, Path::candidates, Path::logits}) {
      const auto added = add(batch, asked, nullptr);
      if (asked == expected.path || asked == Path::logits) {
        ASSERT_TRUE(added.ok()) << added.status().message();
        EXPECT_EQ(batch.outcome(*added)->path.path, asked);
        EXPECT_EQ(batch.outcome(*added)->path.reason, "asked for");
        batch.cancel(*added);
      } else if (asked == Path::fused) {
        ASSERT_FALSE(added.ok());
        EXPECT_EQ(added.status().code(), Code::unsupported);
        EXPECT_THAT(added.status().message(), HasSubstr("--sampling fused cannot serve this request: "));
        EXPECT_THAT(added.status().message(), HasSubstr(GetParam().id + ":0"));
      } else if (!t.model->device_sampling().candidates) {
        EXPECT_THAT(added.status().message(), HasSubstr("--sampling candidates cannot serve this request: "));
      } else if (added.ok()) {
        batch.cancel(*added);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, Capability, ::testing::ValuesIn(backends()), [](const auto& b) { return b.param.id; });

// Calls to a device while a model was made and generated some tokens from logits.
struct Asked {
  uint64_t buffers = 0, buffer_bytes = 0, recorded_ops = 0, sampler_ops = 0, sampled_steps = 0, counts = 0, values = 0;
  bool operator==(const Asked&) const = default;
};

Asked asked_of(const std::string& backend, bool device_sampling, std::optional<Path> path) {
  ModelOptions options = options_for(2);
  options.device_sampling = device_sampling;
  const KindReport* report = nullptr;
  const auto now = [&] {
    return Asked{report->buffers, report->buffer_bytes, report->recorded_ops, report->sampler_ops,
                 report->sampled_steps};
  };
  {
    const TestModel first = make_model(kDemo, backend, options, SWITCHYARD_FIXTURES);
    const PlanDevice& device = *first.model->states().units()[0].device;
    report = static_cast<const KindReport*>(device.api->get_extension(device.handle, kKindReport));
  }
  const Asked before = now();
  const TestModel t = make_model(kDemo, backend, options, SWITCHYARD_FIXTURES);
  auto session = t.model->session();
  Batch batch(*t.model);
  Request r = request_of({1, 2, 3}, {.presence_penalty = 0.1f, .seed = 1}, 4);
  r.path = path;
  const auto id = batch.add(**session, std::move(r));
  EXPECT_TRUE(id.ok() && batch.run(*id).ok());
  EXPECT_EQ(batch.outcome(*id)->ids.size(), 4u);
  Asked asked = now();
  asked.buffers -= before.buffers;
  asked.buffer_bytes -= before.buffer_bytes;
  asked.recorded_ops -= before.recorded_ops;
  asked.sampler_ops -= before.sampler_ops;
  asked.sampled_steps -= before.sampled_steps;
  for (const StatePool::Unit& u : t.model->states().units()) asked.counts += u.counts;
  const auto plan = t.model->plan(1, 1, 256);
  EXPECT_TRUE(plan.ok());
  for (const auto& v : plan->graph.values) asked.values += v.rows == SWY_ROWS_SAMPLE;
  return asked;
}

TEST(LogitsOnly, HasNothingOfASampler) {
  const Asked cannot = asked_of("draws_logits", true, {});
  EXPECT_GT(cannot.buffers, 0u);
  EXPECT_GT(cannot.recorded_ops, 0u);
  EXPECT_EQ(cannot.sampler_ops, 0u);
  EXPECT_EQ(cannot.sampled_steps, 0u);
  EXPECT_EQ(cannot.counts, 0u);
  EXPECT_EQ(cannot.values, 0u);
  // A device that could sample, in a model for logits only: the same buffers to the byte, and the same operations.
  EXPECT_TRUE(asked_of("draws_unpenalised", false, {}) == cannot);
  // On a device that can sample, steps whose requests are sampled from logits still have nothing of the sampler in
  // their lists.
  const Asked may = asked_of("draws_unpenalised", true, Path::logits);
  EXPECT_EQ(may.sampler_ops, 0u);
  EXPECT_EQ(may.sampled_steps, 0u);
  EXPECT_EQ(may.recorded_ops, cannot.recorded_ops);
  EXPECT_EQ(may.buffers, cannot.buffers);
  EXPECT_GT(may.buffer_bytes, cannot.buffer_bytes) << "room for samples in the steps' blocks";
  EXPECT_GT(asked_of("draws_candidates", true, Path::candidates).sampler_ops, 0u);
}

}  // namespace
}  // namespace switchyard
