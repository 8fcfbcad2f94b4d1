// SPDX-License-Identifier: Apache-2.0
// A person at the keyboard: a conversation, and Ctrl-C.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstring>

#include "tests/cli/program.h"
#include "tests/support/files.h"

namespace switchyard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string turn(const std::string& role, const std::string& text) {
  return "<|im_start|>" + role + "\n" + text + "<|im_end|>\n";
}

// What `run` answers to a conversation that is written out.
std::string answer_to(const std::string& conversation) {
  return run_json({"run", "--json", "--temp", "0", "-n", "16", conversation + "<|im_start|>assistant\n"})["text"];
}

TEST(Chat, KeepsTheConversation) {
  const Ran chat = run_program({"chat", "--temp", "0", "-n", "16", "--system", "Tell tales."},
                               "Continue this story: The king\nAnd then?\nHow did it end?\n\nnot read\n");
  EXPECT_EQ(chat.exit, 0) << chat.err;
  std::string conversation = turn("system", "Tell tales."), answers;
  for (const char* line : {"Continue this story: The king", "And then?", "How did it end?"}) {
    conversation += turn("user", line);
    const std::string answer = answer_to(conversation);
    EXPECT_FALSE(answer.empty());
    conversation += turn("assistant", answer);
    answers += answer + "\n";
  }
  EXPECT_EQ(chat.out, answers);
  EXPECT_THAT(chat.err, StartsWith("seed "));
}

TEST(Chat, EndsWithItsInput) {
  const Ran chat = run_program({"chat"}, "");
  EXPECT_EQ(chat.exit, 0);
  EXPECT_EQ(chat.out, "");
}

TEST(Chat, ABadLineIsLeftOut) {
  const Ran chat = run_program({"chat", "--temp", "0", "-n", "16"}, "ab\xff\nThe king\n");
  EXPECT_EQ(chat.exit, 0);
  EXPECT_THAT(chat.err, HasSubstr("switchyard: the text is not valid UTF-8 at byte"));
  EXPECT_EQ(chat.out, answer_to(turn("user", "The king")) + "\n");
}

TEST(Chat, ALineThatDoesNotFitIsLeftOut) {
  std::string line;
  for (int i = 0; i < 100; ++i) line += "and ";
  const Ran chat = run_program({"chat", "--temp", "0", "-n", "16", "--ctx", "64"}, line + "\nThe king\n");
  EXPECT_EQ(chat.exit, 0);
  EXPECT_THAT(chat.err, HasSubstr("of the context's 64 are free; raise --ctx or shorten it"));
  EXPECT_EQ(chat.out, answer_to(turn("user", "The king")) + "\n");
}

TEST(Chat, ControlCStopsTheAnswerAlone) {
  Child chat({"chat", "-n", "4000", "--temp", "2", "--top-k", "50", "--ignore-eos"});
  ASSERT_TRUE(chat.wait_for(2, "> "));
  chat.write("Continue this story: The king\n");
  ASSERT_TRUE(chat.wait_for_bytes(20));
  chat.signal(SIGINT);
  ASSERT_TRUE(chat.wait_for(2, "> ", 2)) << chat.err;
  chat.write("And then?\n");
  ASSERT_TRUE(chat.wait_for_bytes(chat.out.size() + 20));
  chat.signal(SIGINT);
  ASSERT_TRUE(chat.wait_for(2, "> ", 3)) << chat.err;
  EXPECT_EQ(chat.finish(), 0);
}

TEST(Run, ControlCEndsWithWhatThereIs) {
  Child run({"run", "-n", "4000", "--temp", "2", "--ignore-eos", "Once upon a time"});
  ASSERT_TRUE(run.wait_for(1, "Once upon a time"));
  run.signal(SIGINT);
  EXPECT_EQ(run.finish(), 0);
  EXPECT_THAT(run.err, HasSubstr("stopped: interrupt"));
}

TEST(Run, ControlCEndsALongPrompt) {
  std::string prompt = read_file(SWITCHYARD_TEST_DATA "/demo/val16.txt").substr(0, 12000);
  Child run({"run", "-n", "4000", "--chunk", "16", "--log", "debug"});
  run.write(prompt);
  run.close_input();
  ASSERT_TRUE(run.wait_until_it_catches(SIGINT));
  ::usleep(300000);  // it is reading the prompt by now; if it is not, the signal finds it earlier
  run.signal(SIGINT);
  EXPECT_EQ(run.finish(), 0);
  EXPECT_THAT(run.err, HasSubstr("stopped: interrupt"));
}

// A checkpoint that takes seconds to convert: half-rotary with a vocabulary that is much larger.
void write_slow_checkpoint(const TemporaryFolder& folder) {
  constexpr size_t kVocab = 400000;
  const std::string tiny = SWITCHYARD_TEST_DATA "/tiny/half-rotary/";
  nlohmann::json config = nlohmann::json::parse(read_file(tiny + "config.json"));
  config["vocab_size"] = kVocab;
  folder.write("config.json", config.dump());
  const std::string file = read_file(tiny + "model.safetensors");
  uint64_t size = 0;
  std::memcpy(&size, file.data(), 8);
  nlohmann::json header = nlohmann::json::parse(file.substr(8, size));
  std::string data = file.substr(8 + size), more(kVocab * 48 * 2, '\0');
  for (size_t i = 0; i < more.size(); i += 2) {  // bf16 values that differ
    more[i] = static_cast<char>(i * 7);
    more[i + 1] = '\x3c';
  }
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    header[name]["shape"][0] = kVocab;
    header[name]["data_offsets"] = {data.size(), data.size() + more.size()};
  }
  data += more;
  const std::string text = header.dump();
  size = text.size();
  folder.write("model.safetensors", std::string(reinterpret_cast<const char*>(&size), 8) + text + data);
}

TEST(Convert, InterruptedLeavesNothing) {
  const TemporaryFolder checkpoint, out;
  write_slow_checkpoint(checkpoint);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    Child convert(
        {"convert", checkpoint.path(), "-o", out.path("x.swy"), "--quant", "i4a", "--group", "32", "--threads", "1"});
    ASSERT_TRUE(convert.wait_for(2, "writing ")) << convert.err;
    convert.signal(signal);
    EXPECT_EQ(convert.finish(), 1);
    EXPECT_THAT(convert.err, HasSubstr("switchyard: conversion stopped; nothing was written to " + out.path("x.swy")));
    EXPECT_TRUE(std::filesystem::is_empty(out.path()));
  }
}

}  // namespace
}  // namespace switchyard::testing
