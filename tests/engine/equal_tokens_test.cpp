// SPDX-License-Identifier: Apache-2.0
// Two hundred random settings of the chain, fifty tokens each, sampled on the device, on the host from its candidates
// and on the host from the logits: the same tokens, whatever backend produces the logits.
#include <gmock/gmock.h>

#include "tests/engine/fixture.h"
#include "tests/support/batches.h"

namespace switchyard {
namespace {

constexpr uint32_t kAtOnce = 20, kDraws = 200, kTokens = 50;

class EqualTokens : public ::testing::TestWithParam<const char*> {
 protected:
  // Each request's tokens, `kAtOnce` requests at a time in the same steps.
  std::vector<Drawn> draw(Model& model, const std::vector<Request>& requests, SamplingPath path) {
    std::vector<Drawn> drawn(requests.size());
    for (size_t first = 0; first < requests.size(); first += kAtOnce) {
      std::vector<std::unique_ptr<Session>> sessions;
      Batch batch(model);
      std::vector<Batch::Id> ids;
      for (size_t i = first; i < first + kAtOnce; ++i) {
        sessions.push_back(*model.session());
        Request r = request_of(requests[i].prompt, requests[i].sampling, kTokens, &drawn[i]);
        r.path = path;
        r.mask = requests[i].mask;
        const auto id = batch.add(*sessions.back(), std::move(r));
        EXPECT_TRUE(id.ok()) << id.status().message();
        if (id.ok()) ids.push_back(*id);
      }
      run_all(batch);
      for (const Batch::Id id : ids) undecided_ += batch.outcome(id)->undecided;
    }
    return drawn;
  }

  uint64_t undecided_ = 0;
};

// A third of the tokens, other ones for every position.
void allow_a_third(std::span<const int32_t> before, std::span<uint32_t> mask) {
  for (size_t word = 0; word < mask.size(); ++word) mask[word] = 0x49249249u << (word + before.size()) % 3;
}

TEST_P(EqualTokens, OnEveryPathThatTheDeviceHas) {
  const TestModel t = make_model(SWITCHYARD_DEMO_MODEL, GetParam(), options_for(kAtOnce));
  ASSERT_NE(t.model, nullptr);
  std::mt19937 random(2026);
  std::vector<Request> requests;
  for (uint32_t i = 0; i < kDraws; ++i) {
    requests.push_back(request_of(random_ids(random, 1 + random() % 40, t.model->vocab()),
                                  random_params(random, t.model->vocab()), kTokens));
    if (i % 8 == 0) requests.back().mask = allow_a_third;
  }
  const std::vector<Drawn> expected = draw(*t.model, requests, SamplingPath::logits);
  for (const Drawn& d : expected) ASSERT_EQ(d.ids.size(), kTokens);
  const DeviceSampling& device = t.model->device_sampling();
  for (const SamplingPath path : {SamplingPath::fused, SamplingPath::candidates}) {
    if (!(path == SamplingPath::fused ? device.token : device.candidates)) {
      auto session = t.model->session();
      Batch batch(*t.model);
      Request r = request_of({1}, {}, 1);
      r.path = path;
      EXPECT_THAT(batch.add(**session, std::move(r)).status().message(), ::testing::HasSubstr("cannot serve"));
      continue;
    }
    const std::vector<Drawn> drawn = draw(*t.model, requests, path);
    uint32_t equal = 0;
    for (uint32_t i = 0; i < kDraws; ++i) {
      equal += drawn[i] == expected[i];
      EXPECT_TRUE(drawn[i] == expected[i]) << path_name(path) << ", setting " << i;
    }
    std::printf("%s: %s draws as logits do with %u of %u settings, %u tokens each (%llu draws undecided)\n", GetParam(),
                path_name(path), equal, kDraws, kTokens, static_cast<unsigned long long>(undecided_));
    EXPECT_TRUE(path == SamplingPath::fused || undecided_ > 0) << "no draw needed the logits after all";
  }
}

#ifdef SWITCHYARD_TEST_CPU
INSTANTIATE_TEST_SUITE_P(Backends, EqualTokens, ::testing::Values("reference", "cpu"));
#else
INSTANTIATE_TEST_SUITE_P(Backends, EqualTokens, ::testing::Values("reference"));
#endif

}  // namespace
}  // namespace switchyard
