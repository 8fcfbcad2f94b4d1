// SPDX-License-Identifier: Apache-2.0
// Cached states from one service to the next, and files of them that are not what they should be.
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/program/checksum.h"
#include "tests/serve/fixture.h"
#include "tests/support/files.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;

struct Saved : ::testing::Test {
  std::unique_ptr<Service> fresh(bool deterministic = true) {
    ModelOptions o = options_for(1, deterministic);
    o.checkpoints = 1;
    ServiceOptions limits;
    limits.warn = [this](const std::string& message) { warnings.push_back(message); };
    return serve(o, limits);
  }
  Read answer(Service& service, const GenerationRequest& request) { return read_all(*service.submit(request).ticket); }
  // Three prompts, of which one is on the device at the end and the others are in host memory.
  void save(uint64_t most = 1 << 30) {
    const auto service = fresh();
    for (uint32_t i = 0; i < 3; ++i) (void)answer(*service, prompt(i));
    const auto saved = service->save_cache(path, most);
    ASSERT_TRUE(saved.ok()) << saved.status().message();
    states = saved->states;
    EXPECT_LE(std::filesystem::file_size(path), most);
  }
  static GenerationRequest prompt(uint32_t i) { return ask(prompt_of(150, i), 4, seeded(i)); }

  const testing::TemporaryFolder folder;
  const std::string path = folder.path("states");
  uint32_t states = 0;
  std::vector<std::string> warnings;
  Alone alone{options_for(1, true)};
};

TEST_F(Saved, StatesSurviveARestart) {
  save();
  EXPECT_EQ(states, 3u);
  using std::filesystem::perms;
  EXPECT_EQ(std::filesystem::status(path).permissions(), perms::owner_read | perms::owner_write);
  const auto service = fresh();
  const auto loaded = service->load_cache(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->states, 3u);
  EXPECT_EQ(service->stats().cached_host_bytes, 0u) << "nothing was read yet";
  for (uint32_t i = 0; i < 3; ++i) {
    const Read got = answer(*service, prompt(i));
    EXPECT_EQ(got.finish.usage.cached_tokens, 128u) << i;
    EXPECT_EQ(got.ids, alone.ids(prompt(i))) << i;
  }
  // Once more, with states that were never read in between.
  const auto next = fresh();
  ASSERT_TRUE(next->load_cache(path).ok());
  ASSERT_TRUE(next->save_cache(path, 1 << 30).ok()) << "the file that it reads from";
  EXPECT_EQ(answer(*next, prompt(1)).finish.usage.cached_tokens, 128u);
  const auto last = fresh();
  EXPECT_EQ(last->load_cache(path)->states, 3u);
  EXPECT_EQ(answer(*last, prompt(2)).finish.usage.cached_tokens, 128u);
  EXPECT_THAT(warnings, ::testing::IsEmpty());
}

TEST_F(Saved, TheLastUsedAreKeptWithinTheBudget) {
  save();
  const uint64_t whole = std::filesystem::file_size(path);
  save(whole * 2 / 3 + 100);
  EXPECT_EQ(states, 2u);
  const auto service = fresh();
  ASSERT_TRUE(service->load_cache(path).ok());
  EXPECT_EQ(answer(*service, prompt(0)).finish.usage.cached_tokens, 0u) << "the oldest";
  EXPECT_EQ(answer(*service, prompt(2)).finish.usage.cached_tokens, 128u);
}

TEST_F(Saved, FilesThatAreNoneAreRefused) {
  EXPECT_EQ(fresh()->load_cache(path).status().code(), Code::not_found);
  save();
  const auto refusal = [&](Service& service) { return std::string(service.load_cache(path).status().message()); };
  EXPECT_THAT(refusal(*fresh(false)), HasSubstr("of another model, version, backend or setting"));
  const auto other = serve(options_for(1, true), {.cache_identity = "switchyard 0.0.0"});
  EXPECT_THAT(refusal(*other), HasSubstr("of another model, version, backend or setting"));
  const std::string whole = testing::read_file(path);
  const auto service = fresh();
  const auto load = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    return service->load_cache(path).status();
  };
  for (size_t n = 0; n < whole.size(); n += n < 60 ? 1 : whole.size() / 40) {
    EXPECT_EQ(load(whole.substr(0, n)).code(), Code::invalid_data) << n;
  }
  for (size_t at = whole.size() - 1600; at < whole.size(); at += 13) {  // of the index
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 0x10);
    EXPECT_EQ(load(changed).code(), Code::invalid_data) << at;
  }
  EXPECT_EQ(load(whole + "x").code(), Code::invalid_data);
  EXPECT_EQ(service->stats().checkpoints, 0u);
}

// A server without the multi-token prediction layer has left them.
TEST_F(Saved, StatesWithoutTheLayersAreReadAgain) {
  save();
  ModelOptions o = options_for(1, true);
  o.checkpoints = 1, o.drafts = 3;
  o.mtp = o.hidden = true;
  ServiceOptions options;
  options.speculate = Speculation::mtp;
  options.warn = [this](const std::string& message) { warnings.push_back(message); };
  const auto service = serve(o, options);
  ASSERT_TRUE(service->load_cache(path).ok());
  for (const uint32_t cached : {0u, 128u}) {
    const Read got = answer(*service, prompt(1));
    EXPECT_EQ(got.finish.usage.cached_tokens, cached);
    EXPECT_GT(got.finish.drafts.all_drafted(), 0u);
    EXPECT_EQ(got.ids, alone.ids(prompt(1)));
  }
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("cached states in " + path +
                                     " were kept without the model's multi-token prediction layer; they are dropped, "
                                     "and the prompt is read"));
}

TEST_F(Saved, DamagedStatesAreReadAgain) {
  save();
  std::string changed = testing::read_file(path);
  for (size_t at = 100; at < changed.size() - 4000; at += 1000) changed[at] = static_cast<char>(changed[at] ^ 1);
  std::ofstream(path, std::ios::binary) << changed;
  const auto service = fresh();
  ASSERT_TRUE(service->load_cache(path).ok());
  for (uint32_t i = 0; i < 3; ++i) {
    const Read got = answer(*service, prompt(i));
    EXPECT_EQ(got.finish.usage.cached_tokens, 0u);
    EXPECT_EQ(got.ids, alone.ids(prompt(i)));
  }
  ASSERT_EQ(warnings.size(), 3u);
  EXPECT_THAT(warnings[0], HasSubstr("cached states in " + path +
                                     " are damaged (the snapshot is damaged: its checksum "
                                     "differs); they are dropped, and the prompt is read"));
  EXPECT_EQ(answer(*service, prompt(2)).finish.usage.cached_tokens, 128u) << "kept anew";
}

// The first entry of the file's index without its last token.
std::string with_a_token_less(std::string file) {
  const auto number = [&](size_t at) {
    uint64_t value = 0;
    std::memcpy(&value, file.data() + at, sizeof value);
    return value;
  };
  const auto set = [&](size_t at, const auto& value) { std::memcpy(file.data() + at, &value, sizeof value); };
  const uint64_t index = number(16), scope_at = index + 16, tokens_at = index + 20;
  uint32_t scope = 0, tokens = 0;
  std::memcpy(&scope, file.data() + scope_at, sizeof scope);
  std::memcpy(&tokens, file.data() + tokens_at, sizeof tokens);
  file.erase(index + 24 + scope + (tokens - 1) * sizeof(int32_t), sizeof(int32_t));
  set(tokens_at, tokens - 1);
  set(24, number(24) - sizeof(int32_t));
  Checksum sum;
  sum.add(std::as_bytes(std::span(file).subspan(index)));
  set(32, sum.value());
  return file;
}

TEST_F(Saved, StatesOfOtherTokensThanTheIndexSaysAreReadAgain) {
  save();
  const std::string changed = with_a_token_less(testing::read_file(path));
  std::ofstream(path, std::ios::binary) << changed;
  const auto service = fresh();
  ASSERT_TRUE(service->load_cache(path).ok());
  const Read got = answer(*service, prompt(2));  // the last used, so the first of the file
  EXPECT_EQ(got.finish.usage.cached_tokens, 0u);
  EXPECT_EQ(got.ids, alone.ids(prompt(2)));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("seen 128 tokens, and the index says 127); they are dropped"));
  EXPECT_EQ(answer(*service, prompt(1)).finish.usage.cached_tokens, 128u) << "the others are used";
}

TEST_F(Saved, OneFileIsTakenIn) {
  save();
  const auto service = fresh();
  ASSERT_TRUE(service->load_cache(path).ok());
  const Status again = service->load_cache(path).status();
  EXPECT_EQ(again.code(), Code::usage);
  EXPECT_THAT(std::string(again.message()), HasSubstr("taken in from " + path + " before"));
  EXPECT_EQ(answer(*service, prompt(1)).finish.usage.cached_tokens, 128u);
}

}  // namespace
}  // namespace switchyard
