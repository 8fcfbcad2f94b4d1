// SPDX-License-Identifier: Apache-2.0
// Session files, which anybody may have written, and the threads of text that they keep.
#include "core/generate/session_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>

#include "core/generate/text_generation.h"
#include "core/program/checksum.h"
#include "tests/engine/fixture.h"
#include "tests/support/files.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using Kind = SessionFile::Kind;

SessionFile sample() {
  return {Kind::conversation, 7, "some text", {1, 2, 3}, {4}, {{"user", "hi"}, {"assistant", ""}}, "states"};
}

void seal(std::string& bytes) {
  Checksum sum;
  sum.add(std::as_bytes(std::span(bytes.data(), bytes.size() - 8)));
  const uint64_t value = sum.value();
  std::memcpy(bytes.data() + bytes.size() - 8, &value, 8);
}

TEST(SessionFile, HoldsEverything) {
  const auto read = SessionFile::decode(sample().encode());
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->kind, Kind::conversation);
  EXPECT_EQ(read->model, 7u);
  EXPECT_EQ(read->text, "some text");
  EXPECT_EQ(read->seen, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(read->owed, std::vector<int32_t>{4});
  ASSERT_EQ(read->messages.size(), 2u);
  EXPECT_EQ(read->messages[0].role, "user");
  EXPECT_EQ(read->messages[0].content, "hi");
  EXPECT_EQ(read->states, "states");
}

TEST(SessionFile, CutOrChangedItIsRefused) {
  const std::string whole = sample().encode();
  for (size_t n = 0; n < whole.size(); ++n) {
    EXPECT_FALSE(SessionFile::decode(whole.substr(0, n)).ok()) << n << " bytes";
    std::string changed = whole;
    changed[n] = static_cast<char>(changed[n] ^ 4);
    EXPECT_FALSE(SessionFile::decode(changed).ok()) << "byte " << n;
  }
  EXPECT_FALSE(SessionFile::decode(whole + "x").ok());
}

// Under a checksum that fits, as whoever means harm would write it.
TEST(SessionFile, LengthsThatCannotBeTrueAreRefused) {
  const std::string whole = sample().encode();
  constexpr size_t kLengths = 24;  // after the magic, the model, the kind and the number of messages
  for (size_t at = kLengths; at < kLengths + 40; at += 8) {
    for (const uint64_t length : {uint64_t{2}, uint64_t{1000}, UINT64_MAX, UINT64_MAX / 4 + 2, uint64_t{1} << 63}) {
      std::string changed = whole;
      std::memcpy(changed.data() + at, &length, 8);
      seal(changed);
      EXPECT_THAT(SessionFile::decode(changed).status().message(), HasSubstr("cut off or damaged"));
    }
  }
  for (const size_t at : {size_t{16}, size_t{20}}) {  // the kind, the number of messages
    std::string changed = whole;
    changed[at] = 9;
    seal(changed);
    EXPECT_THAT(SessionFile::decode(changed).status().message(), HasSubstr("damaged"));
  }
  std::string newer = whole;
  newer[7] = '2';
  seal(newer);
  EXPECT_THAT(SessionFile::decode(newer).status().message(), HasSubstr("another version of switchyard"));
}

class Threads : public ::testing::Test {
 protected:
  static TestModel& demo() {
    static TestModel t = make_model(kDemo, "reference", with_context(128));
    return t;
  }
  static const Tokenizer& tokenizer() {
    static const Tokenizer t = *Tokenizer::parse(demo().model->program().tokenizer_json);
    return t;
  }
  static void TearDownTestSuite() { demo() = TestModel(); }

  // Feeds `text` and `n` drawn tokens; returns how many tokens were fed at first.
  static size_t tell(TextThread& thread, const std::string& text, uint32_t n, std::vector<std::string> stops = {}) {
    const auto reading = thread.read(text);
    EXPECT_TRUE(reading.ok());
    TextOptions options;
    options.max_tokens = n;
    options.sampling.temperature = 0;
    options.stops = std::move(stops);
    auto generation = *TextGeneration::create(*demo().model, &tokenizer(), options, {});
    Batch batch(*demo().model);
    if (reading->anew) thread.forget_tokens();
    const auto id = batch.add(thread.session(), generation->request(reading->fresh, thread.seen()));
    EXPECT_TRUE(id.ok()) << id.status().message();
    EXPECT_TRUE(batch.run(*id).ok());
    generation->finish();
    const Outcome outcome = *batch.take(*id);
    std::vector<int32_t> drawn = outcome.ids;
    if (outcome.stopped == StopReason::end) drawn.pop_back();
    thread.end(*reading, std::move(drawn), generation->text());
    return reading->fresh.size();
  }

  testing::TemporaryFolder folder_;
};

// Continued in parts, a text is the one that is told at once, and each part feeds what is new alone.
TEST_F(Threads, GoOnWhereTheyEnded) {
  auto one = *demo().model->session();
  TextThread whole(*one, tokenizer());
  tell(whole, "Once upon a time", 24);
  const std::string told = whole.text();
  one->reset();
  TextThread parts(*one, tokenizer());
  tell(parts, "Once upon a time", 10);
  EXPECT_EQ(parts.owed().size(), 1u);
  EXPECT_EQ(tell(parts, parts.text(), 8), 1u);  // the token that was drawn last
  EXPECT_EQ(tell(parts, parts.text(), 6), 1u);
  EXPECT_EQ(parts.text(), told);
  EXPECT_EQ(parts.seen().size(), one->position());
  EXPECT_EQ(parts.seen(), whole.seen());
}

// A text that does not begin with what was seen, as of a template that changes earlier messages, is read anew.
// The id that ends a text, made certain: it ends it, or is drawn like any other.
TEST_F(Threads, EndWhereTheModelDoesUnlessThatIsIgnored) {
  ASSERT_FALSE(demo().model->program().eos_ids.empty());
  const auto drawn = [](bool ignore_eos) {
    TextOptions options;
    options.max_tokens = 5;
    options.ignore_eos = ignore_eos;
    options.sampling.biases = {{static_cast<uint32_t>(demo().model->program().eos_ids[0]), 1000}};
    auto generation = *TextGeneration::create(*demo().model, &tokenizer(), options, {});
    auto session = *demo().model->session();
    Batch batch(*demo().model);
    const auto id = batch.add(*session, generation->request({1, 2}, {}));
    EXPECT_TRUE(id.ok() && batch.run(*id).ok());
    return batch.take(*id)->ids.size();
  };
  EXPECT_EQ(drawn(false), 1u);
  EXPECT_EQ(drawn(true), 5u);
}

TEST_F(Threads, OtherTextsAreReadAnew) {
  auto session = *demo().model->session();
  TextThread thread(*session, tokenizer());
  tell(thread, "Once upon a time", 6);
  const std::string other = "The king and the queen";
  const size_t tokens = tokenizer().encode(other)->size();
  EXPECT_EQ(tell(thread, other, 4), tokens);
  EXPECT_EQ(session->position(), tokens + 3);
}

// Behind a stop string the session has seen more than was shown; it must not go on from there.
TEST_F(Threads, WhatWasCutOffIsNotGoneOnFrom) {
  auto session = *demo().model->session();
  TextThread thread(*session, tokenizer());
  tell(thread, "Once upon a time", 24);
  const std::string answer = thread.text().substr(std::strlen("Once upon a time"));
  const std::string stop = answer.substr(answer.size() / 2, 5);
  thread.clear();
  tell(thread, "Once upon a time", 24, {stop});
  EXPECT_EQ(thread.text(), "Once upon a time" + answer.substr(0, answer.find(stop)));
  EXPECT_EQ(thread.seen().size(), session->position());
  EXPECT_EQ(tell(thread, thread.text(), 1), tokenizer().encode(thread.text())->size() + 0);
}

TEST_F(Threads, AreSavedAndResumed) {
  auto session = *demo().model->session();
  TextThread thread(*session, tokenizer());
  tell(thread, "The king", 5);
  const std::string file = folder_.path("a.session");
  ASSERT_TRUE(save_session(Os::real(), file, Kind::text, thread).ok());
  struct stat st {};
  ASSERT_EQ(::stat(file.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  tell(thread, thread.text() + " and", 6);
  const std::string told = thread.text();
  session->reset();
  TextThread other(*session, tokenizer());
  const auto messages = load_session(Os::real(), file, Kind::text, other);
  ASSERT_TRUE(messages.ok()) << messages.status().message();
  tell(other, other.text() + " and", 6);
  EXPECT_EQ(other.text(), told);
  EXPECT_THAT(load_session(Os::real(), file, Kind::conversation, other).status().message(),
              HasSubstr("a.session: another command saved this session"));
  EXPECT_EQ(other.text(), told);  // which a refused file leaves as it was
  EXPECT_EQ(other.seen().size(), session->position());
}

// What fits its checksum may still be of another model, or say what no model can have seen.
TEST_F(Threads, FilesThatLieAreRefused) {
  auto session = *demo().model->session();
  TextThread thread(*session, tokenizer());
  tell(thread, "The king", 3);
  const SessionFile good{Kind::text, demo().model->fingerprint(), thread.text(), thread.seen(), thread.owed(),
                         {},         *session->snapshot()};
  const std::string told = thread.text();
  const auto refused = [&](const char* why, const auto& change) {
    SessionFile f = good;
    change(f);
    const std::string path = folder_.write("bad", f.encode());
    EXPECT_THAT(load_session(Os::real(), path, Kind::text, thread).status().message(), HasSubstr(why));
    EXPECT_EQ(thread.text(), told);
    EXPECT_EQ(thread.seen().size(), session->position());
  };
  refused("belongs to another model", [](SessionFile& f) { f.model += 1; });
  refused("damaged", [](SessionFile& f) { f.seen.push_back(1); });
  refused("damaged", [](SessionFile& f) { f.seen[0] = 1 << 30; });
  refused("damaged", [](SessionFile& f) { f.seen[0] = -1; });
  refused("damaged", [](SessionFile& f) { f.owed = {-5}; });
  refused("damaged", [](SessionFile& f) { f.owed = {1, 2}; });
  refused("damaged", [](SessionFile& f) { f.text = "\xff"; });
  refused("snapshot", [](SessionFile& f) { f.states.clear(); });
  refused("snapshot", [](SessionFile& f) { f.states[30] ^= 1; });
  refused("tokens, the context 128; raise --ctx", [](SessionFile& f) {
    f.seen.assign(200, 1);
    const uint32_t position = 200;
    std::memcpy(f.states.data() + 16, &position, 4);
    seal(f.states);
  });
  const std::string huge = folder_.path("huge");
  std::ofstream(huge).put('x');
  std::filesystem::resize_file(huge, uint64_t{1} << 40);
  EXPECT_THAT(load_session(Os::real(), huge, Kind::text, thread).status().message(), HasSubstr("at most"));
}

// States are numbers, and a file may hold any: what comes of them is an error or a text, and no fault.
TEST_F(Threads, StatesOfNonsenseDoNoHarm) {
  auto session = *demo().model->session();
  TextThread thread(*session, tokenizer());
  tell(thread, "The king and the queen of the land", 3);
  for (const unsigned char byte : {0xFF, 0x7F, 0x80}) {  // NaN, huge numbers, denormal ones
    SessionFile f{Kind::text, demo().model->fingerprint(), thread.text(), thread.seen(), thread.owed(),
                  {},         *session->snapshot()};
    constexpr size_t kHeader = 24;
    std::memset(f.states.data() + kHeader, byte, f.states.size() - kHeader - 8);
    seal(f.states);
    const std::string path = folder_.write("nonsense", f.encode());
    const auto taken = load_session(Os::real(), path, Kind::text, thread);
    ASSERT_TRUE(taken.ok()) << taken.status().message();
    const auto logits = session->feed(std::vector<int32_t>{1, 2, 3});
    EXPECT_TRUE(logits.ok() || !logits.status().message().empty());
    thread.clear();
    tell(thread, "The king and the queen of the land", 3);
  }
}

}  // namespace
}  // namespace switchyard
