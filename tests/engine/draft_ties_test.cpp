// SPDX-License-Identifier: Apache-2.0
// The default mode: kernels round a row in a step of several in another way than alone, so a text with drafts may leave
// that without. It does so only where another token was nearly drawn. Each such place is shown with its gap: how much
// nearer the chain's inputs had to be for the other token, in the run without drafts (near_tie.h).
#include "core/base/median.h"
#include "core/engine/mtp_drafter.h"
#include "tests/engine/fixture.h"
#include "tests/support/drafted.h"
#include "tests/support/near_tie.h"

namespace switchyard {
namespace {

struct Comparison {
  const char* name;
  const char* backend;
  int settings;
  uint32_t tokens;
  uint32_t repeated;  // tokens that must be repeated before an n-gram guess: short texts hardly repeat three
  double rounding;    // the largest difference of any logit that rounding may make
  double gap;         // the largest gap
};

// A text, and the logits that each of its tokens was drawn from.
struct Told {
  std::vector<int32_t> ids;
  std::vector<std::vector<float>> rows;
  Outcome outcome;
};

Told tell(Model& model, const Request& as, std::shared_ptr<Drafter> drafter, Session& session) {
  Told told;
  Batch batch(model);
  Request r = request_of(as.prompt, as.sampling, as.max_tokens);
  r.mask = as.mask;
  r.path = SamplingPath::logits;
  if (drafter != nullptr) r.drafters = {std::move(drafter)};
  r.draft_always = true;
  uint32_t row = 0;  // of the step
  r.on_token = [&](const TokenEvent& e) {
    const auto logits = model.runner().logits(row++, 1);
    EXPECT_TRUE(logits.ok()) << logits.status().message();
    told.ids.push_back(e.id);
    told.rows.emplace_back(logits->begin(), logits->end());
    return true;
  };
  const auto id = batch.add(session, std::move(r));
  EXPECT_TRUE(id.ok()) << id.status().message();
  for (bool more = true; more; row = 0) {
    const auto stepped = batch.step();
    EXPECT_TRUE(stepped.ok()) << stepped.status().message();
    more = stepped.ok() && *stepped;
  }
  told.outcome = *batch.take(*id);
  EXPECT_TRUE(told.outcome.status.ok()) << told.outcome.status.message();
  return told;
}

double difference(std::span<const float> a, std::span<const float> b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(double{a[i]} - b[i]));
  return most;
}

double largest(const std::vector<double>& x) { return x.empty() ? 0 : *std::max_element(x.begin(), x.end()); }

struct Tally {
  size_t texts = 0, same = 0, tokens = 0;
  std::vector<double> gaps;      // one for each place where texts part
  std::vector<double> shares;    // the same, each divided by twice the difference of the two rows there
  std::vector<double> rounding;  // for each row up to there, the largest difference of a logit
  DraftCounts drafts;
};

class DraftTies : public ::testing::TestWithParam<Comparison> {
 protected:
  void SetUp() override {
    const Comparison& s = GetParam();
    test_host(1);  // threads that wait for one another would take most of the time
    if (const Status found = selected(s.backend); !found.ok()) {
      ASSERT_STREQ(s.backend, "vulkan") << found.message();  // the only one that wants a device
      GTEST_SKIP() << found.message();
    }
    plain_ = make_model(kDemo, s.backend, options_for(2, false));
    ModelOptions options = with_layer(drafting(1));
    options.deterministic = false;
    target_ = make_model(kDemo, s.backend, options);
    ASSERT_TRUE(plain_.model != nullptr && target_.model != nullptr);
    ASSERT_FALSE(plain_.model->deterministic() || target_.model->deterministic());
  }
  static Status selected(const std::string& backend) {
    DiscoveryOptions discovery = default_discovery();
    discovery.search_path = SWITCHYARD_TEST_BACKENDS;
    Registry registry = Registry::discover(Os::real(), discovery, test_host());
    return registry.select(backend).status();
  }

  // The row of a text's token at `index`, and whether the token is what the chain draws from it.
  static ChainRow chain_of(const Request& r, const Told& told, size_t index) {
    Sampler sampler = *Sampler::create(r.sampling, static_cast<uint32_t>(told.rows[index].size()));
    for (const int32_t id : r.prompt) sampler.saw_prompt(id);
    const auto before = std::span(told.ids).first(index);
    for (const int32_t id : before) sampler.saw_output(id);
    std::vector<uint32_t> mask;
    if (r.mask) {
      mask.resize((told.rows[index].size() + 31) / 32);
      r.mask(before, mask);
    }
    ChainRow row(told.rows[index], sampler, r.prompt.size() + index, mask);
    EXPECT_EQ(row.drawn(), told.ids[index]) << "token " << index;
    return row;
  }

  void compare(const Request& r, const Told& plain, const Told& drafted, const std::string& what, Tally& tally) {
    const Comparison& s = GetParam();
    ++tally.texts;
    tally.drafts.add(drafted.outcome.drafts);
    const size_t n = std::min(plain.ids.size(), drafted.ids.size());
    size_t at = 0;
    for (; at < n && plain.ids[at] == drafted.ids[at]; ++at) {
      tally.rounding.push_back(difference(plain.rows[at], drafted.rows[at]));
    }
    tally.tokens += at;
    if (at == n) {
      EXPECT_EQ(plain.ids.size(), drafted.ids.size()) << what;
      ++tally.same;
      return;
    }
    tally.rounding.push_back(difference(plain.rows[at], drafted.rows[at]));
    const ChainRow there = chain_of(r, plain, at), here = chain_of(r, drafted, at);
    const double gap = there.gap(drafted.ids[at]), twice = 2 * there.distance(here);
    // No score differs by more than half of that: if the gap is larger, gap() or distance() computes something else.
    EXPECT_LE(gap, twice + 1e-4) << what << ", token " << at;
    EXPECT_LE(gap, s.gap) << what << ", token " << at;
    tally.gaps.push_back(gap);
    tally.shares.push_back(gap / twice);
    if (std::getenv("SWITCHYARD_SHOW_TIES") != nullptr) {
      std::printf("%s, token %zu: %d in place of %d; gap %.6f, difference of the rows %.6f\n", what.c_str(), at,
                  drafted.ids[at], plain.ids[at], gap, twice / 2);
    }
  }

  // What rounding does without any draft: rows of the text in steps of eight, less the same rows alone.
  void measure_rounding(const Request& r, const Told& plain) {
    auto session = *plain_.model->session();
    std::vector<int32_t> whole = r.prompt;
    whole.insert(whole.end(), plain.ids.begin(), plain.ids.end());
    const size_t vocab = plain_.model->vocab(), prompt = r.prompt.size() - 1;
    ASSERT_TRUE(session->feed(std::span(whole).first(prompt)).ok());
    for (size_t at = 0; at + 8 < plain.rows.size(); at += 8) {
      const auto rows = session->feed(std::span(whole).subspan(prompt + at, 8), 8);
      ASSERT_TRUE(rows.ok()) << rows.status().message();
      for (size_t i = 0; i < 8; ++i) {
        rounding_.push_back(difference(rows->subspan(i * vocab, vocab), plain.rows[at + i]));
      }
    }
  }

  void print(const char* name, const Tally& t) const {
    std::printf("| %s | %s | %zu of %zu | %zu | %llu of %llu | %.5f, %.5f | %.5f, %.5f | %.2f |\n", GetParam().name,
                name, t.texts - t.same, t.texts, t.tokens, static_cast<unsigned long long>(t.drafts.all_accepted()),
                static_cast<unsigned long long>(t.drafts.all_drafted()), median_of(t.gaps), largest(t.gaps),
                median_of(t.rounding), largest(t.rounding), largest(t.shares));
  }

  TestModel plain_, target_;
  std::vector<double> rounding_;
};

TEST_P(DraftTies, TextsPartAtNearTiesOnly) {
  const Comparison& s = GetParam();
  constexpr size_t kNgrams = std::size(kGuesses), kLayer = kNgrams + 1;
  std::array<Tally, kLayer + 1> tallies;
  const auto name_of = [](size_t kind) {
    return kind < kNgrams ? guess_name(kGuesses[kind]) : kind == kNgrams ? "n-grams" : "the layer";
  };
  std::mt19937 random(2027);
  auto without = *plain_.model->session(), with = *target_.model->session();
  for (int i = 0; i < s.settings && !HasFailure(); ++i) {
    const Request r = random_request(random, plain_.model->vocab(), s.tokens);
    without->reset();
    const Told plain = tell(*plain_.model, r, nullptr, *without);
    without->reset();
    ASSERT_NO_FATAL_FAILURE(measure_rounding(r, plain));
    std::vector<int32_t> whole = r.prompt;
    whole.insert(whole.end(), plain.ids.begin(), plain.ids.end());
    for (size_t kind = 0; kind < tallies.size(); ++kind) {
      with->reset();
      std::shared_ptr<Drafter> drafter = std::make_shared<NgramDrafter>(NgramLimits{.least = s.repeated});
      if (kind < kNgrams) drafter = std::make_shared<KnowingDrafter>(whole, kGuesses[kind], target_.model->vocab(), 5);
      if (kind == kLayer) drafter = std::make_shared<MtpDrafter>(*with, 3);
      const Told told = tell(*target_.model, r, std::move(drafter), *with);
      compare(r, plain, told, fmt::format("{}, setting {}, {}", s.name, i, name_of(kind)), tallies[kind]);
    }
  }
  std::printf("%s: %zu rows in steps of 8 less the same alone: median %.5f, largest %.5f\n", s.name, rounding_.size(),
              median_of(rounding_), largest(rounding_));
  std::printf(
      "| test | drafter | texts that part | tokens before | drafts accepted | gap: median, largest | "
      "difference of a row: median, largest | largest share |\n|---|---|---|---|---|---|---|---|\n");
  for (size_t kind = 0; kind < tallies.size(); ++kind) {
    print(name_of(kind), tallies[kind]);
    EXPECT_GT(tallies[kind].drafts.all_drafted(), tallies[kind].texts) << name_of(kind);
    // Drafts make no larger differences than steps of several rows make anyway.
    EXPECT_LE(median_of(tallies[kind].rounding), 1.25 * median_of(rounding_)) << name_of(kind);
    EXPECT_LE(largest(tallies[kind].rounding), s.rounding) << name_of(kind);
  }
  EXPECT_LE(largest(rounding_), s.rounding);
}

const Comparison kComparisons[] = {
#ifdef SWITCHYARD_TEST_CPU
    {"cpu", "cpu", 200, 200, 3, 6, 2},
#endif
#ifdef SWITCHYARD_TEST_VULKAN
    {"vulkan", "vulkan", 6, 80, 1, 0.02, 0.02},
#endif
};
INSTANTIATE_TEST_SUITE_P(Backends, DraftTies, ::testing::ValuesIn(kComparisons),
                         [](const auto& comparison) { return std::string(comparison.param.name); });

}  // namespace
}  // namespace switchyard
