// SPDX-License-Identifier: Apache-2.0
// A second model that guesses: the tokens are the same as without, and its guesses are good where it is good.
#include "core/engine/model_drafter.h"

#include <gmock/gmock.h>

#include "core/engine/prepare.h"
#include "core/import/convert.h"
#include "tests/engine/fixture.h"
#include "tests/support/drafted.h"
#include "tests/support/files.h"
#include "tests/support/noted_drafter.h"
#include "tests/support/spoiled.h"

namespace switchyard {
namespace {

// A model, and one that guesses for it.
struct Pair {
  TestModel target, small;
  std::unique_ptr<DraftModel> draft;
};

Pair pair_of(const std::string& model, const std::string& draft, uint32_t sessions, uint32_t draft_context = 512) {
  Pair p;
  p.target = make_model(model, kFast, drafting(sessions));
  ModelOptions options = drafting(sessions, 1, false);
  options.context = draft_context;
  options.device_sampling = false;
  p.small = make_model(draft, kFast, options);
  if (p.small.model != nullptr && p.target.model != nullptr) {
    p.draft = std::make_unique<DraftModel>(std::move(p.small.model), p.target.model->vocab());
  }
  return p;
}

std::string tiny(const testing::TemporaryFolder& folder, const std::string& family) {
  ConvertOptions options;
  options.source = SWITCHYARD_TEST_DATA "/tiny/families/" + family;
  options.output = folder.path(family + ".swy");
  const auto report = convert(Os::real(), options);
  EXPECT_TRUE(report.ok()) << report.status().message();
  return options.output;
}

void expect_all_free(const Model& model) {
  EXPECT_EQ(model.states().slots().free(), model.states().slots().count());
  EXPECT_EQ(model.states().pages().free(), model.states().pages().count());
}

// The share of guesses that were drawn, over random settings; the tokens, log-probabilities and states are compared.
double acceptance(Pair& p, int settings, uint32_t tokens) {
  std::mt19937 random(61);
  uint64_t drafted = 0, accepted = 0;
  auto session = *p.target.model->session();
  for (int i = 0; i < settings; ++i) {
    const Request r = random_request(random, p.target.model->vocab(), tokens);
    session->reset();
    const Drafted plain = run_drafted(*session, r, nullptr);
    session->reset();
    const Drafted d = run_drafted(*session, r, p.draft->drafter());
    EXPECT_TRUE(d.drawn == plain.drawn) << "setting " << i;
    EXPECT_TRUE(d.states == plain.states) << "setting " << i;
    EXPECT_GT(d.outcome.drafts.all_drafted(), 0u);
    drafted += d.outcome.drafts.all_drafted(), accepted += d.outcome.drafts.all_accepted();
  }
  std::printf("%llu of %llu guesses accepted\n", static_cast<unsigned long long>(accepted),
              static_cast<unsigned long long>(drafted));
  return static_cast<double>(accepted) / static_cast<double>(drafted);
}

// With its own noise, masks and penalties a model guesses what it draws, whatever the settings are.
TEST(ModelDrafter, AModelGuessesItsOwnTokens) {
  Pair p = pair_of(kDemo, kDemo, 1);
  ASSERT_NE(p.draft, nullptr);
  EXPECT_EQ(acceptance(p, 8, 24), 1.0);
  expect_all_free(*p.target.model);
}

TEST(ModelDrafter, AWorseModelChangesNothing) {
  const testing::TemporaryFolder folder;
  Pair p = pair_of(kDemo, spoiled(folder, kDemo), 1);
  ASSERT_NE(p.draft, nullptr);
  const double share = acceptance(p, 8, 24);
  EXPECT_GT(share, 0.05);
  EXPECT_LT(share, 0.95);
}

// What fell leaves nothing behind: however often it is asked, it guesses the same after the same tokens.
TEST(ModelDrafter, GuessesDoNotDependOnWhatFell) {
  const testing::TemporaryFolder folder;
  Pair p = pair_of(kDemo, spoiled(folder, kDemo), 1);
  ASSERT_NE(p.draft, nullptr);
  auto session = *p.target.model->session();
  const Request r = request_of(kShortPrompt, {.temperature = 0.9f, .seed = 4}, 60);
  GuessesMade always;
  const Drafted d = run_drafted(*session, r, std::make_shared<NotedDrafter>(p.draft->drafter(), always, 1));
  ASSERT_LT(d.outcome.drafts.all_accepted(), d.outcome.drafts.all_drafted());
  for (const uint32_t every : {2u, 5u, 11u}) {
    GuessesMade seldom;
    session->reset();
    run_drafted(*session, r, std::make_shared<NotedDrafter>(p.draft->drafter(), seldom, every));
    expect_same_guesses(seldom, always, 4, fmt::format("every {}", every));
  }
}

TEST(ModelDrafter, PagedStatesAreCutBack) {
  const testing::TemporaryFolder folder;
  for (const char* family : {"qwen3_moe", "gpt_oss"}) {
    const std::string path = tiny(folder, family);
    Pair p;
    ModelOptions options = drafting(1);
    options.context = 128;
    p.target = make_model(path, kFast, options);
    p.small = make_model(path, kFast, options);
    ASSERT_TRUE(p.target.model != nullptr && p.small.model != nullptr);
    ASSERT_FALSE(p.small.model->states().has_slotted());
    p.draft = std::make_unique<DraftModel>(std::move(p.small.model), p.target.model->vocab());
    EXPECT_EQ(acceptance(p, 3, 30), 1.0) << family;
  }
}

// A model with fewer ids: it guesses as long as it knows all tokens.
TEST(ModelDrafter, TokensThatItDoesNotHave) {
  const testing::TemporaryFolder folder;
  Pair p = pair_of(kDemo, tiny(folder, "qwen3_moe"), 1, 128);
  ASSERT_NE(p.draft, nullptr);
  ASSERT_LT(p.draft->model().vocab(), p.target.model->vocab());
  auto session = *p.target.model->session();
  Request r = request_of(kShortPrompt, {.temperature = 1.5f, .seed = 4}, 40);
  r.mask = [](std::span<const int32_t> drawn, std::span<uint32_t> mask) {  // ids below 64 at first
    const size_t words = drawn.size() < 20 ? 2 : mask.size();
    std::fill(mask.begin(), mask.begin() + static_cast<ptrdiff_t>(words), UINT32_MAX);
  };
  const Drafted plain = run_drafted(*session, r, nullptr);
  session->reset();
  const Drafted d = run_drafted(*session, r, p.draft->drafter());
  EXPECT_TRUE(d.drawn == plain.drawn);
  EXPECT_GT(d.outcome.drafts.all_drafted(), 0u);
}

TEST(ModelDrafter, ItsContextMayBeShorter) {
  Pair p = pair_of(kDemo, kDemo, 1, 64);
  ASSERT_NE(p.draft, nullptr);
  auto session = *p.target.model->session();
  std::mt19937 random(64);
  for (size_t prompt = 8; prompt < 16; ++prompt) {  // so that each number of guesses is the last that fits
    const Request r =
        request_of(random_ids(random, prompt, p.target.model->vocab()), {.temperature = 1.2f, .seed = 4}, 120);
    session->reset();
    const Drafted plain = run_drafted(*session, r, nullptr);
    session->reset();
    const Drafted d = run_drafted(*session, r, p.draft->drafter());
    EXPECT_TRUE(d.drawn == plain.drawn);
    EXPECT_EQ(d.outcome.drafts.all_accepted(), d.outcome.drafts.all_drafted());
    EXPECT_GT(d.outcome.drafts.all_drafted(), 40u);
    EXPECT_LT(d.outcome.drafts.all_drafted(), 64u);
  }
}

// The next turn of a text goes on in the session that has read it: a long history is not read again.
TEST(ModelDrafter, ATurnGoesOnWhereTheLastEnded) {
  Pair p = pair_of(kDemo, kDemo, 2);
  ASSERT_NE(p.draft, nullptr);
  auto session = *p.target.model->session();
  std::mt19937 random(62);
  Request first = request_of(random_ids(random, 400, p.target.model->vocab()), {.seed = 4}, 12);
  const Drafted one = run_drafted(*session, first, p.draft->drafter());
  Request second = request_of({5, 6, 7}, {.seed = 5}, 4);
  second.history = whole_of(first, one.drawn);
  second.history.pop_back();
  second.prompt.insert(second.prompt.begin(), one.drawn.ids.back());
  const Drafted two = run_drafted(*session, second, p.draft->drafter());
  EXPECT_EQ(two.outcome.drafts.all_drafted(), 2u) << "as many as the first step can have";
  EXPECT_EQ(two.outcome.drafts.all_accepted(), two.outcome.drafts.all_drafted());
  session->reset();
  EXPECT_TRUE(run_drafted(*session, first, nullptr).drawn == one.drawn);
}

// No step with drafts waits for its plan, where the steps were prepared.
TEST(ModelDrafter, PreparedStepsNeedNoPlan) {
  Pair p = pair_of(kDemo, kDemo, 1);
  ASSERT_NE(p.draft, nullptr);
  const Request r = request_of(kShortPrompt, {.temperature = 1.2f, .seed = 4}, 40);
  ASSERT_TRUE(prepare_decoding(*p.target.model, r.sampling).ok());
  auto session = *p.target.model->session();
  const size_t sizes = p.target.model->runner().sizes();
  const Drafted d = run_drafted(*session, r, p.draft->drafter());
  EXPECT_GT(d.outcome.drafts.all_drafted(), 20u);
  EXPECT_LE(p.target.model->runner().sizes(), sizes + 1) << "the prompt's step may need one";
}

// Sequences that come and go, and draft together, beside others without drafts and with right and wrong ones.
TEST(ModelDrafter, ManySequencesDraftTogether) {
  constexpr uint32_t kSessions = 4, kRequests = 20;
  const testing::TemporaryFolder folder;
  for (const bool good : {true, false}) {
    Pair p = pair_of(kDemo, good ? kDemo : spoiled(folder, kDemo), kSessions);
    ASSERT_NE(p.draft, nullptr);
    Model& model = *p.target.model;
    std::mt19937 random(63);
    std::vector<Request> requests;
    std::vector<Drawn> expected;
    for (uint32_t i = 0; i < kRequests; ++i) {
      requests.push_back(random_request(random, model.vocab(), 5 + random() % 20));
      auto session = *model.session();
      expected.push_back(run_drafted(*session, requests.back(), nullptr).drawn);
    }
    struct Runs {
      std::unique_ptr<Session> session;
      size_t request;
      Batch::Id id = 0;
      Drawn drawn = {};
    };
    std::vector<std::unique_ptr<Runs>> running;
    Batch batch(model, {.prompt_rows = 24});
    uint64_t drafted = 0, accepted = 0;
    for (size_t next = 0; next < kRequests || !running.empty();) {
      while (next < kRequests && running.size() < kSessions) {
        Runs& one = *running.emplace_back(std::make_unique<Runs>(Runs{*model.session(), next}));
        const Request& as = requests[next];
        Request r = request_of(as.prompt, as.sampling, as.max_tokens, &one.drawn);
        r.mask = as.mask;
        r.draft_always = true;
        if (next % 4 == 3) {
          const Guess g = kGuesses[next / 4 % 4];
          r.drafters = {std::make_shared<KnowingDrafter>(whole_of(as, expected[next]), g, model.vocab(), 3)};
        } else if (next % 4 != 2) {
          r.drafters = {p.draft->drafter()};
        }
        one.id = *batch.add(*one.session, std::move(r));
        ++next;
      }
      ASSERT_TRUE(batch.step().ok());
      if (random() % 8 == 0) batch.cancel(running[random() % running.size()]->id);
      std::erase_if(running, [&](const std::unique_ptr<Runs>& one) {
        if (batch.running(one->id)) return false;
        const Outcome o = *batch.take(one->id);
        EXPECT_TRUE(o.status.ok()) << o.status.message();
        if (one->request % 4 < 2) drafted += o.drafts.all_drafted(), accepted += o.drafts.all_accepted();
        Drawn want = expected[one->request];
        if (o.stopped == StopReason::cancelled) {
          want.ids.resize(one->drawn.ids.size());
          EXPECT_EQ(one->drawn.ids, want.ids) << one->request;
        } else {
          EXPECT_TRUE(one->drawn == want) << one->request;
        }
        return true;
      });
    }
    EXPECT_GT(drafted, 20u);
    EXPECT_GT(accepted, 0u);
    EXPECT_TRUE(!good || accepted + 2 * 7 >= drafted) << "all, but for requests that were cancelled";
    expect_all_free(model);
  }
}

}  // namespace
}  // namespace switchyard
