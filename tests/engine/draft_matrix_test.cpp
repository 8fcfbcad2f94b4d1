// SPDX-License-Identifier: Apache-2.0
// Two hundred random settings of the chain, two hundred tokens each: the same tokens, log-probabilities, likely tokens
// and states with every kind of drafter as in a model that cannot draft. Several sequences decode together, and in each
// pass every one has another kind of drafter.
#include "core/engine/model_drafter.h"
#include "core/engine/mtp_drafter.h"
#include "core/import/convert.h"
#include "tests/engine/fixture.h"
#include "tests/support/drafted.h"
#include "tests/support/spoiled.h"

namespace switchyard {
namespace {

constexpr uint32_t kTogether = 4, kMostOfOne = 7, kDrafts = kTogether * kMostOfOne;

// The forced patterns of kGuesses come first.
enum Kind : size_t { kNgrams = std::size(kGuesses), kLayer, kItself, kWorse, kKinds };

const char* kind_name(size_t kind) {
  constexpr const char* kOthers[] = {"n-grams", "the layer", "the model itself", "a worse model"};
  return kind < kNgrams ? guess_name(kGuesses[kind]) : kOthers[kind - kNgrams];
}

struct Matrix {
  const char* name;
  const char* backend;
  bool demo;  // else a tiny checkpoint, which takes a hundredth of the time
  bool pending;
  int settings;
  uint32_t tokens;
};

class DraftMatrix : public ::testing::TestWithParam<Matrix> {
 protected:
  void SetUp() override {
    test_host(1);  // threads that wait for one another would take most of the time
    const Matrix& m = GetParam();
    const std::string path = m.demo ? kDemo : tiny();
    plain_ = make_model(path, m.backend, options_for(1));
    target_ = make_model(path, m.backend, with_layer(drafting(kTogether, kDrafts, m.pending)));
    ASSERT_TRUE(plain_.model != nullptr && target_.model != nullptr && target_.model->mtp() != nullptr);
    ASSERT_EQ(target_.model->pending_rows() > 0, m.pending);
    ASSERT_EQ(target_.model->feeds_again(), !m.pending);
    itself_ = small(path);
    worse_ = small(spoiled(folder_, path));
  }

  std::string tiny() {
    ConvertOptions options;
    options.source = SWITCHYARD_TEST_DATA "/tiny/mtp";
    options.output = folder_.path("tiny.swy");
    const auto report = convert(Os::real(), options);
    EXPECT_TRUE(report.ok()) << report.status().message();
    return options.output;
  }
  std::unique_ptr<DraftModel> small(const std::string& path) {
    TestModel& t = small_.emplace_back(make_model(path, GetParam().backend, drafting(kTogether, 1, false)));
    return t.model == nullptr ? nullptr : std::make_unique<DraftModel>(std::move(t.model), target_.model->vocab());
  }

  std::shared_ptr<Drafter> drafter(size_t kind, Session& session, const std::vector<int32_t>& whole) {
    switch (kind) {
      case kNgrams:
        return std::make_shared<NgramDrafter>(NgramLimits{.least = 3});
      case kLayer:
        return std::make_shared<MtpDrafter>(session);
      case kItself:
        return itself_->drafter();
      case kWorse:
        return worse_->drafter();
      default:
        return std::make_shared<KnowingDrafter>(whole, kGuesses[kind], target_.model->vocab(), 5);
    }
  }

  // Every request once with every kind, in batches of all of them.
  void compare(std::span<const Request> requests) {
    std::vector<Drafted> plain;
    for (const Request& r : requests) plain.push_back(run_drafted(**plain_.model->session(), r, nullptr));
    for (size_t pass = 0; pass < kKinds && !HasFailure(); ++pass) {
      std::vector<std::unique_ptr<Session>> sessions;
      std::vector<Drawn> drawn(requests.size());
      std::vector<Batch::Id> ids;
      Batch batch(*target_.model);
      for (size_t i = 0; i < requests.size(); ++i) {
        Session& session = *sessions.emplace_back(*target_.model->session());
        Request r = request_of(requests[i].prompt, requests[i].sampling, requests[i].max_tokens, &drawn[i]);
        r.mask = requests[i].mask;
        r.draft_always = true;
        auto inner = drafter((i + pass) % kKinds, session, whole_of(requests[i], plain[i].drawn));
        r.drafters = {std::make_shared<LimitedDrafter>(std::move(inner), kMostOfOne)};
        const auto id = batch.add(session, std::move(r));
        ASSERT_TRUE(id.ok()) << id.status().message();
        ids.push_back(*id);
      }
      ASSERT_NO_FATAL_FAILURE(run_all(batch));
      for (size_t i = 0; i < requests.size(); ++i) {
        const size_t kind = (i + pass) % kKinds;
        SCOPED_TRACE(fmt::format("setting {}, {}", compared_ + i, kind_name(kind)));
        const Outcome o = *batch.take(ids[i]);
        EXPECT_TRUE(o.status.ok()) << o.status.message();
        EXPECT_EQ(o.stopped, plain[i].outcome.stopped);
        EXPECT_TRUE(drawn[i] == plain[i].drawn);
        std::vector<int32_t> whole = whole_of(requests[i], drawn[i]);
        whole.pop_back();
        const std::string states = states_after(*sessions[i], whole);
        EXPECT_TRUE(trunk_of(states, plain[i].states.size()) == trunk_of(plain[i].states, plain[i].states.size()));
        tokens_[kind] += drawn[i].ids.size();
        counts_[kind].add(o.drafts);
      }
    }
    compared_ += requests.size();
  }

  void expect_counts() const {
    for (size_t kind = 0; kind < kKinds; ++kind) {
      const uint64_t drafted = counts_[kind].all_drafted(), accepted = counts_[kind].all_accepted();
      std::printf("| %s | %s | %zu x %u | %llu | %llu | %llu |\n", GetParam().name, kind_name(kind), compared_,
                  GetParam().tokens, static_cast<unsigned long long>(tokens_[kind]),
                  static_cast<unsigned long long>(drafted), static_cast<unsigned long long>(accepted));
      const bool right = kind == static_cast<size_t>(Guess::right) || kind == kItself;
      const bool wrong = kind == static_cast<size_t>(Guess::wrong);
      EXPECT_GT(drafted, compared_) << kind_name(kind);
      EXPECT_TRUE(right ? accepted == drafted : accepted < drafted) << kind_name(kind);
      EXPECT_TRUE(wrong ? accepted == 0 : accepted > 0) << kind_name(kind);
    }
    EXPECT_EQ(target_.model->states().slots().free(), target_.model->states().slots().count());
    EXPECT_EQ(target_.model->states().pages().free(), target_.model->states().pages().count());
  }

  testing::TemporaryFolder folder_;
  TestModel plain_, target_;
  std::vector<TestModel> small_;  // their registries
  std::unique_ptr<DraftModel> itself_, worse_;
  size_t compared_ = 0;
  std::array<DraftCounts, kKinds> counts_;
  std::array<uint64_t, kKinds> tokens_{};
};

TEST_P(DraftMatrix, IsTheSameWithEveryDrafter) {
  const Matrix& m = GetParam();
  std::mt19937 random(2026);
  std::vector<Request> requests;
  while (requests.size() < static_cast<size_t>(m.settings)) {
    requests.push_back(random_request(random, target_.model->vocab(), m.tokens));
  }
  std::printf("| test | drafter | settings x tokens | tokens | drafts | accepted |\n|---|---|---|---|---|---|\n");
  for (size_t at = 0, n = 1; at < requests.size() && !HasFailure(); at += n, n = 1 + n % kTogether) {
    n = std::min(n, requests.size() - at);
    compare(std::span(requests).subspan(at, n));
  }
  expect_counts();
}

const Matrix kMatrices[] = {
#ifdef SWITCHYARD_TEST_CPU
    {"cpu_pending", "cpu", true, true, 200, 200},
    {"cpu_fed_again", "cpu", true, false, 200, 200},
#endif
    {"reference_pending", "reference", false, true, 200, 200},
    {"reference_fed_again", "reference", false, false, 200, 200},
    {"reference_demo", "reference", true, true, 6, 60},
};
INSTANTIATE_TEST_SUITE_P(Backends, DraftMatrix, ::testing::ValuesIn(kMatrices),
                         [](const auto& matrix) { return std::string(matrix.param.name); });

}  // namespace
}  // namespace switchyard
