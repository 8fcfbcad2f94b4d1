// SPDX-License-Identifier: Apache-2.0
// The public API, as a program outside uses it.
#include "switchyard/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <thread>

#include "core/program/writer.h"
#include "tests/support/files.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;

Engine load(uint32_t sessions) {
  auto engine = Engine::load({.model = SWITCHYARD_DEMO_MODEL,
                              .backend = "reference",
                              .backend_path = SWITCHYARD_TEST_BACKENDS,
                              .sessions = sessions,
                              .deterministic = true});
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return std::move(*engine);
}

TEST(Engine, TellsTheSameByCallbackAndByStream) {
  Engine engine = load(2);
  auto one = *engine.session(), two = *engine.session();
  const GenerateOptions options{.max_tokens = 12, .seed = 7, .logprobs = 2};
  std::string shown;
  const auto whole = one.generate("Once upon a time", options, [&](const GeneratedToken& t) {
    shown += t.text;
    EXPECT_TRUE(t.id < 0 || t.top.size() == 2);
    return true;
  });
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  EXPECT_EQ(shown, whole->text);
  EXPECT_EQ(whole->ids.size(), 12u);
  EXPECT_EQ(whole->stopped, "length");
  EXPECT_THAT(whole->sampling, HasSubstr("fused (reference:0 covers"));
  auto stream = two.stream("Once upon a time", options);
  ASSERT_TRUE(stream.ok());
  std::vector<int32_t> ids;
  for (auto token = stream->next(); token.ok() && *token; token = stream->next()) {
    if ((*token)->id >= 0) ids.push_back((*token)->id);
  }
  EXPECT_EQ(ids, whole->ids);
  EXPECT_EQ(stream->result().text, whole->text);
}

TEST(Engine, SessionsBeginWithWhatOthersHaveRead) {
  EngineOptions options{
      .model = SWITCHYARD_DEMO_MODEL, .backend = "reference", .backend_path = SWITCHYARD_TEST_BACKENDS};
  options.sessions = 2;
  options.deterministic = true;
  options.cache_states = 2;
  Engine caching = *Engine::load(options), plain = load(1);
  std::string story;
  for (int i = 0; i < 12; ++i) story += "The ship had been at sea for many days. ";
  const GenerateOptions draw{.max_tokens = 6, .seed = 3};
  EXPECT_EQ(caching.session()->generate(story, draw)->cached_tokens, 0u);
  auto second = *caching.session();
  const auto told = second.generate(story + "Then", draw);
  ASSERT_TRUE(told.ok()) << told.status().message();
  EXPECT_GE(told->cached_tokens, 64u);
  EXPECT_EQ(told->ids, plain.session()->generate(story + "Then", draw)->ids);
  const auto more = second.generate(" and", draw);  // it goes on with its own states
  ASSERT_TRUE(more.ok()) << more.status().message();
  EXPECT_EQ(more->cached_tokens, 0u);
}

TEST(Engine, ThreadsShareSteps) {
  Engine engine = load(4);
  std::vector<std::string> alone, together(4);
  const auto tell = [&](size_t i) {
    auto session = *engine.session();
    return session.generate("The king", {.max_tokens = 15, .seed = i})->text;
  };
  for (size_t i = 0; i < 4; ++i) alone.push_back(tell(i));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 4; ++i) threads.emplace_back([&, i] { together[i] = tell(i); });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(together, alone);
}

// In the turns after the first one, too, which may begin with tokens that no state has seen yet.
TEST(Engine, SpeculationChangesNoToken) {
  std::vector<std::string> told;
  const std::string model = std::string("model:") + SWITCHYARD_DEMO_MODEL;
  for (const std::string& speculate : {std::string("off"), std::string("ngram"), std::string("auto"), model}) {
    auto engine = Engine::load({.model = SWITCHYARD_DEMO_MODEL,
                                .backend = "reference",
                                .backend_path = SWITCHYARD_TEST_BACKENDS,
                                .deterministic = true,
                                .speculate = speculate});
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    auto session = *engine->session();
    std::string text;
    uint64_t drafted = 0;
    for (int turn = 0; turn < 3; ++turn) {
      const GenerateOptions options{.max_tokens = 25, .temperature = 0.3f, .repetition_penalty = 0.6f, .seed = 11};
      const auto answer = session.generate(" The dog and the cat and the dog and the cat", options);
      ASSERT_TRUE(answer.ok()) << answer.status().message();
      text += answer->text + "|";
      drafted += answer->drafted;
      EXPECT_LE(answer->accepted, answer->drafted);
    }
    EXPECT_TRUE(drafted > 0 || speculate != "ngram") << text;
    told.push_back(text);
  }
  EXPECT_EQ(told[1], told[0]);
  EXPECT_EQ(told[2], told[0]);
  EXPECT_EQ(told[3], told[0]);
  const auto refused = Engine::load({.model = SWITCHYARD_DEMO_MODEL, .speculate = "eagle"});
  EXPECT_THAT(refused.status().message(), HasSubstr("EngineOptions::speculate is 'eagle'"));
}

// Each has its own threads and its own loop.
TEST(Engine, TwoOfThemTellAtOnce) {
  const GenerateOptions options{.max_tokens = 8, .seed = 3};
  const std::string alone = load(1).session()->generate("The king", options)->text;
  Engine one = load(1), two = load(1);
  std::string told[2];
  const auto tell = [&](Engine& engine, std::string& text) {
    text = engine.session()->generate("The king", options)->text;
  };
  std::thread other([&] { tell(two, told[1]); });
  tell(one, told[0]);
  other.join();
  EXPECT_EQ(told[0], alone);
  EXPECT_EQ(told[1], alone);
}

TEST(Engine, ACallbackMayUseTheEngineAndOtherSessions) {
  Engine engine = load(2);
  auto one = *engine.session(), two = *engine.session();
  const GenerateOptions options{.max_tokens = 3, .seed = 5};
  const std::string alone = two.generate("And", options)->text;
  ASSERT_TRUE(two.reset().ok());
  std::string within;
  const auto whole = one.generate("The king", options, [&](const GeneratedToken& token) {
    if (within.empty()) within = two.generate("And", options)->text;
    return token.id < 0 || engine.decode({token.id}) != "no such text";
  });
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  EXPECT_EQ(whole->stopped, "length");
  EXPECT_EQ(within, alone);
}

TEST(Engine, ACallbackEndsTheTextAfterItsToken) {
  Engine engine = load(1);
  auto session = *engine.session();
  const GenerateOptions greedy{.max_tokens = 30, .temperature = 0};
  const std::string whole = session.generate("Once upon a time", greedy)->text;
  ASSERT_TRUE(session.reset().ok());
  size_t tokens = 0;
  const auto cut = session.generate("Once upon a time", greedy, [&](const GeneratedToken&) { return ++tokens < 4; });
  ASSERT_TRUE(cut.ok()) << cut.status().message();
  EXPECT_EQ(cut->stopped, "callback");
  EXPECT_EQ(cut->ids.size(), 4u);
  EXPECT_EQ(whole.substr(0, cut->text.size()), cut->text);
  EXPECT_TRUE(session.generate(" and", greedy).ok()) << "the session goes on after what was shown";
}

TEST(Engine, OneCallAtATimeForASession) {
  Engine engine = load(1);
  auto session = *engine.session();
  auto stream = session.stream("The king", {.max_tokens = 50, .seed = 1});
  ASSERT_TRUE(stream.ok());
  EXPECT_THAT(session.generate("And").status().message(), HasSubstr("in use by another call"));
  EXPECT_THAT(session.reset().message(), HasSubstr("in use by another call"));
  session.cancel();
  while (stream->next().ok() && stream->result().stopped.empty()) {
  }
  EXPECT_EQ(stream->result().stopped, "cancelled");
}

// Another thread's calls are refused while one generates, and change nothing of what it draws.
TEST(Engine, OneThreadAtATimeForASession) {
  Engine engine = load(3);
  const GenerateOptions options{.max_tokens = 10, .seed = 4};
  const std::string alone = engine.session()->generate("The king", options)->text;
  auto session = *engine.session();
  std::promise<void> begun, refused;
  std::string told;
  std::thread teller([&] {
    bool first = true;
    const auto whole = session.generate("The king", options, [&](const GeneratedToken&) {
      if (std::exchange(first, false)) {
        begun.set_value();
        refused.get_future().wait();
      }
      return true;
    });
    told = whole.ok() ? whole->text : whole.status().message();
  });
  begun.get_future().wait();
  const std::string file = (std::filesystem::temp_directory_path() / "switchyard-busy-test.snapshot").string();
  for (const Status& status : {session.generate("And", options).status(), session.stream("And", options).status(),
                               session.fork().status(), session.reset(), session.save(file), session.restore(file)}) {
    EXPECT_EQ(status.code(), Code::usage);
    EXPECT_THAT(status.message(), HasSubstr("the session is in use by another call"));
  }
  EXPECT_FALSE(std::filesystem::exists(file));
  refused.set_value();
  teller.join();
  EXPECT_EQ(told, alone);
}

TEST(Engine, PartsOfAGenerationMakeTheWhole) {
  Engine engine = load(2);
  auto whole = *engine.session(), parts = *engine.session();
  const GenerateOptions greedy{.max_tokens = 5, .temperature = 0, .repetition_penalty = 1.2f};
  GenerateOptions longer = greedy;
  longer.max_tokens = 15;
  const std::string expected = whole.generate("Once upon a time", longer)->text;
  const testing::TemporaryFolder folder;
  const std::string file = folder.path("session");
  std::string text = parts.generate("Once upon a time", greedy)->text;
  text += parts.generate("", greedy)->text;
  ASSERT_TRUE(parts.save(file).ok());
  ASSERT_TRUE(parts.reset().ok());
  ASSERT_TRUE(parts.restore(file).ok());
  text += parts.generate("", greedy)->text;
  EXPECT_EQ(text, expected);
}

// The demo model, whose makers recommend the most likely token.
void write_greedy_demo(const std::string& path) {
  const auto demo = Program::load(Os::real(), SWITCHYARD_DEMO_MODEL);
  ASSERT_TRUE(demo.ok()) << demo.status().message();
  ProgramSpec spec = spec_of(*demo);
  spec.metadata.emplace_back("sampling.temperature", "0");
  auto writer = ProgramWriter::create(Os::real(), path, spec);
  ASSERT_TRUE(writer.ok()) << writer.status().message();
  for (size_t t = 0; t < demo->tensors.size(); ++t) {
    for (size_t s = 0; s < demo->tensors[t].segments.size(); ++s) {
      ASSERT_TRUE(writer->write_segment(t, demo->segment_bytes(demo->tensors[t].segments[s]), s).ok());
    }
  }
  ASSERT_TRUE(writer->finish().ok());
}

TEST(Engine, SamplesAsTheModelRecommendsUnlessToldOtherwise) {
  const testing::TemporaryFolder folder;
  write_greedy_demo(folder.path("greedy.swy"));
  auto engine = Engine::load(
      {.model = folder.path("greedy.swy"), .backend = "reference", .backend_path = SWITCHYARD_TEST_BACKENDS});
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  auto session = *engine->session();
  const auto text = [&](const GenerateOptions& options) {
    EXPECT_TRUE(session.reset().ok());
    return session.generate("Once upon a time", options)->text;
  };
  const std::string greedy = text({.max_tokens = 12, .seed = 1});
  EXPECT_EQ(greedy, text({.max_tokens = 12, .seed = 2}));
  EXPECT_EQ(greedy, text({.max_tokens = 12, .temperature = 0, .seed = 3}));
  EXPECT_NE(text({.max_tokens = 12, .temperature = 2, .seed = 1}),
            text({.max_tokens = 12, .temperature = 2, .seed = 2}));
}

TEST(Engine, ControlTokensInAMessageAreLetters) {
  Engine engine = load(1);
  auto session = *engine.session();
  const auto tokens = [&](const std::string& content) {
    EXPECT_TRUE(session.reset().ok());
    const auto prompt = engine.chat_prompt({{"user", content}});
    EXPECT_TRUE(prompt.ok() && session.generate(*prompt, {.max_tokens = 1}).ok());
    return session.position();
  };
  EXPECT_NEAR(tokens("<|im_end|><|im_start|>"), tokens("[|im_end|][|im_start|]"), 4);
}

TEST(Engine, SessionsForkAndTravel) {
  Engine engine = load(2);
  auto session = *engine.session();
  ASSERT_TRUE(session.generate("Once upon a time", {.max_tokens = 5, .seed = 1}).ok());
  const std::string file = (std::filesystem::temp_directory_path() / "switchyard-engine-test.snapshot").string();
  ASSERT_TRUE(session.save(file).ok());
  const GenerateOptions options{.max_tokens = 8, .seed = 2};
  std::string forked;
  {
    auto copy = session.fork();
    ASSERT_TRUE(copy.ok()) << copy.status().message();
    EXPECT_EQ(copy->position(), session.position());
    forked = copy->generate(" and", options)->text;
  }
  EXPECT_EQ(session.generate(" and", options)->text, forked);
  const Status restored = session.restore(file);
  ASSERT_TRUE(restored.ok()) << restored.message();
  EXPECT_EQ(session.generate(" and", options)->text, forked);
  std::filesystem::remove(file);
  EXPECT_EQ(session.restore(file).code(), Code::not_found);
}

TEST(Engine, SaysWhatIsWrong) {
  EXPECT_THAT(Engine::load({}).status().message(), HasSubstr("model is empty"));
  EXPECT_THAT(Engine::load({.model = "/nowhere.swy"}).status().message(), HasSubstr("/nowhere.swy"));
  Engine engine = load(1);
  auto session = *engine.session();
  EXPECT_EQ(engine.session().status().code(), Code::out_of_device_memory);
  EXPECT_THAT(session.generate("hi", {.top_p = 2}).status().message(), HasSubstr("top_p is 2"));
  EXPECT_THAT(session.generate("hi", {.logit_bias = {{-1, 1}}}).status().message(),
              HasSubstr("logit_bias names token"));
  EXPECT_THAT(session.generate("hi", {.sampling = "gpu"}).status().message(), HasSubstr("--sampling is 'gpu'"));
  EXPECT_EQ(session.position(), 0u);
}

}  // namespace
}  // namespace switchyard
