// SPDX-License-Identifier: Apache-2.0
// A service that verifies drafted tokens: its requests draw what they draw without, however they end and whatever
// becomes of their memory.
#include <nlohmann/json.hpp>

#include "core/engine/prepare.h"
#include "tests/serve/fixture.h"

namespace switchyard {
namespace {

ModelOptions drafting(ModelOptions o) {
  o.drafts = 15;
  o.mtp = o.hidden = true;
  return o;
}

ServiceOptions speculating(Speculation s) {
  ServiceOptions o;
  o.speculate = s;
  return o;
}

// Tokens that were seen become likelier: the text repeats itself soon, and n-grams have something to go by.
GenerationRequest repeating(size_t prompt, uint32_t tokens, uint32_t seed) {
  SamplingParams p = seeded(seed);
  p.temperature = seed % 3 == 0 ? 0.0f : 0.4f;
  p.repetition_penalty = 0.7f;
  return ask(prompt_of(prompt, seed), tokens, p);
}

std::vector<Read> answers(Service& service, const std::vector<GenerationRequest>& requests) {
  std::vector<std::shared_ptr<Ticket>> tickets;
  for (const GenerationRequest& r : requests) {
    Admission admission = service.submit(r);
    EXPECT_TRUE(admission.ok()) << admission.rejection.status.message();
    tickets.push_back(std::move(admission.ticket));
  }
  std::vector<Read> all;
  for (const auto& t : tickets) all.push_back(read_all(*t));
  return all;
}

void expect_same(const std::vector<Read>& with, const std::vector<Read>& without) {
  ASSERT_EQ(with.size(), without.size());
  for (size_t i = 0; i < with.size(); ++i) {
    EXPECT_EQ(with[i].ids, without[i].ids) << i;
    EXPECT_EQ(with[i].text, without[i].text) << i;
    EXPECT_EQ(with[i].finish.reason, without[i].finish.reason) << i;
  }
}

// A demo for which another one guesses.
std::unique_ptr<Service> serve_guessed(const ModelOptions& options) {
  LoadedModel loaded = load_demo(options);
  const Status added = add_draft_model(loaded, kBackend, {"the demo", loaded.program}, options);
  EXPECT_TRUE(added.ok()) << added.message();
  // Otherwise no guess is tried where making its step's plan takes longer than all steps.
  EXPECT_TRUE(prepare_decoding(*loaded.model, {}).ok());
  auto service = Service::create(std::move(loaded), speculating(Speculation::model));
  EXPECT_TRUE(service.ok()) << service.status().message();
  return std::move(*service);
}

// Stop strings, patterns and limits end requests inside of accepted runs.
TEST(Speculating, ServesTheSame) {
  std::vector<GenerationRequest> requests;
  for (uint32_t i = 0; i < 12; ++i) {
    requests.push_back(repeating(5 + 9 * i, 30 + 5 * i, i));
    TextOptions& text = requests.back().text;
    if (i % 4 == 1) text.stops = {"er", "nd th"};
    if (i % 4 == 2) text.allow_regex = "(the cat sat on the mat and the dog sat on the cat, [a-z]{2,5}\\. ?){2,9}";
    if (i % 4 == 3) text.sampling.top_logprobs = 3;
  }
  // One alone comes first: beside others steps differ, and small models guess only once planning them has been paid
  // for.
  const std::vector<GenerationRequest> first = {repeating(20, 100, 50)};
  const auto plain = serve(options_for(3));
  const std::vector<Read> first_without = answers(*plain, first), without = answers(*plain, requests);
  for (const Speculation s : {Speculation::automatic, Speculation::mtp, Speculation::ngram, Speculation::model}) {
    const bool always = s == Speculation::mtp || s == Speculation::ngram;  // the others measure
    const auto service = s == Speculation::model ? serve_guessed(drafting(options_for(3)))
                                                 : serve(drafting(options_for(3)), speculating(s));
    std::vector<Read> with = answers(*service, first);
    expect_same(with, first_without);
    for (Read& r : answers(*service, requests)) with.push_back(std::move(r));
    expect_same({with.begin() + 1, with.end()}, without);
    uint64_t drafted = 0, accepted = 0;
    for (const Read& r : with) drafted += r.finish.drafts.all_drafted(), accepted += r.finish.drafts.all_accepted();
    EXPECT_TRUE(service->drain());
    const ServiceStats stats = service->stats();
    EXPECT_EQ(stats.drafts.all_drafted(), drafted);
    EXPECT_EQ(stats.drafts.all_accepted(), accepted);
    EXPECT_EQ(stats.pages_used, 0u);
    EXPECT_TRUE(!always || accepted > 50) << accepted;
    EXPECT_TRUE(s != Speculation::model || drafted > 0) << "a first guess is tried";
    std::printf("%s: %llu of %llu drafts accepted\n", speculation_name(s), static_cast<unsigned long long>(accepted),
                static_cast<unsigned long long>(drafted));
  }
}

// A model of other tokens cannot guess.
TEST(Speculating, RefusesAModelOfOtherTokens) {
  const ModelOptions options = drafting(options_for(1));
  LoadedModel loaded = load_demo(options);
  auto other = Program::load(Os::real(), SWITCHYARD_DEMO_MODEL);
  ASSERT_TRUE(other.ok());
  auto json = nlohmann::json::parse(other->tokenizer_json);
  auto& vocab = json["model"]["vocab"];
  std::string a, b;  // two tokens that change places
  for (const auto& [token, id] : vocab.items()) {
    if (id == 300) a = token;
    if (id == 301) b = token;
  }
  std::swap(vocab[a], vocab[b]);
  const std::string text = json.dump();
  other->tokenizer_json = text;
  const Status refused = add_draft_model(
      loaded, kBackend, {"--speculate model:x.swy", std::make_shared<const Program>(std::move(*other))}, options);
  EXPECT_EQ(refused.code(), Code::usage);
  EXPECT_THAT(refused.message(), ::testing::HasSubstr("--speculate model:x.swy cannot guess for this model"));
  EXPECT_THAT(refused.message(), ::testing::HasSubstr("token 300 is '"));
  EXPECT_EQ(loaded.draft, nullptr);
}

TEST(Speculating, SetsRequestsAside) {
  std::vector<GenerationRequest> requests;
  for (uint32_t i = 0; i < 3; ++i) requests.push_back(repeating(60 + 5 * i, 90, 20 + i));
  const auto plain = serve(options_for(3));
  const std::vector<Read> without = answers(*plain, requests);
  for (const Speculation s : {Speculation::mtp, Speculation::ngram}) {
    const auto service = serve(with_pages(drafting(options_for(3)), 4), speculating(s));
    const std::vector<Read> with = answers(*service, requests);
    expect_same(with, without);
    EXPECT_GT(service->stats().set_asides, 0u);
    EXPECT_GT(service->stats().drafts.all_accepted(), 0u);
  }
}

// The next turn of a conversation begins where the cache knows its prompt, whose states are those without drafts.
TEST(Speculating, PromptsAreCachedAsWithout) {
  ModelOptions cached = drafting(options_for(2));
  cached.checkpoints = 4;
  const auto plain = serve(options_for(2));
  for (const Speculation s : {Speculation::mtp, Speculation::ngram}) {
    cached.mtp = cached.hidden = s == Speculation::mtp;
    const auto service = serve(cached, speculating(s));
    for (uint32_t i = 0; i < 4; ++i) {
      GenerationRequest turn = repeating(140, 60, 40 + i);
      for (int next = 0; next < 3; ++next) {
        const std::vector<Read> with = answers(*service, {turn}), without = answers(*plain, {turn});
        expect_same(with, without);
        EXPECT_TRUE(next == 0 || with[0].finish.usage.cached_tokens > 100) << i;
        turn.prompt.insert(turn.prompt.end(), with[0].ids.begin(), with[0].ids.end());
        turn.prompt.push_back(7);
      }
    }
    EXPECT_GT(service->stats().drafts.all_accepted(), 0u);
  }
}

TEST(Speculating, CancelsGiveTheirMemoryBack) {
  const auto service = serve(drafting(options_for(2)), speculating(Speculation::mtp));
  for (uint32_t i = 0; i < 12; ++i) {
    const auto ticket = service->submit(repeating(30, 300, 60 + i)).ticket;
    for (uint32_t n = 0; n < 20 + 7 * i;) {
      const auto event = ticket->wait();
      ASSERT_TRUE(event && event->finish == nullptr);
      ++n;
    }
    ticket->cancel();
    std::optional<Event> event = ticket->wait();
    while (event && event->finish == nullptr) event = ticket->wait();
    ASSERT_TRUE(event.has_value());
    EXPECT_EQ(event->finish->reason, "cancelled");
  }
  EXPECT_TRUE(service->drain());
  const ServiceStats s = service->stats();
  EXPECT_EQ(s.slots_used, 0u);
  EXPECT_EQ(s.pages_used, 0u);
  EXPECT_GT(s.drafts.all_accepted(), 0u);
}

}  // namespace
}  // namespace switchyard
