// SPDX-License-Identifier: Apache-2.0
// The manual page and the completions know every command and option that --help shows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <regex>

#include "tests/cli/program.h"
#include "tests/support/files.h"

namespace switchyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> words_like(const std::string& text, const std::regex& pattern) {
  std::vector<std::string> all;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), pattern); at != std::sregex_iterator(); ++at) {
    all.push_back((*at)[1]);
  }
  return all;
}

std::string without(std::string text, char c) {
  std::erase(text, c);
  return text;
}

TEST(Help, IsReadable) {
  const std::string commands = run_program({"--help"}).out;
  std::vector<Arguments> all = {{}, {"bench", "ops"}, {"bench", "arrival"}, {"bench", "compare"}};
  for (const std::string& name : words_like(commands, std::regex("\n  ([a-z]+) "))) all.push_back({name});
  EXPECT_GT(all.size(), 15U);
  for (Arguments command : all) {
    command.push_back("--help");
    const std::string help = run_program(command).out;
    for (const std::string& line : words_like(help, std::regex("([^\n]+)"))) EXPECT_LE(line.size(), 120U) << line;
    EXPECT_THAT(help, Not(HasSubstr("=[]")));
    for (const char* type : {"UINT", "INT", "FLOAT", "TEXT"})
      EXPECT_THAT(help, Not(HasSubstr(std::string(type) + ":")));
  }
  EXPECT_THAT(run_program({"run", "--help"}).out, HasSubstr("--tokens UINT=128 [1 - 16777216]\n"));
}

TEST(OptionTree, AllOptionsAreInThePageAndInEveryShell) {
  std::vector<std::string> texts = {without(run_program({"manual"}).out, '\\')};
  for (const char* shell : {"bash", "zsh"}) texts.push_back(run_program({"completion", shell}).out);
  const std::string fish = run_program({"completion", "fish"}).out;
  for (const Arguments& command :
       std::vector<Arguments>{{"run"}, {"bench"}, {"bench", "compare"}, {"convert"}, {"tune"}}) {
    Arguments all = command;
    all.push_back("--help");
    const auto options = words_like(run_program(all).out, std::regex("\n  (?:-\\w,)?--([a-z-]+)"));
    EXPECT_GT(options.size(), 5u);
    for (const std::string& option : options) {
      for (const std::string& text : texts) EXPECT_THAT(text, HasSubstr("--" + option));
      EXPECT_THAT(fish, HasSubstr("-l " + option));
    }
  }
  for (const std::string& command : words_like(run_program({"--help"}).out, std::regex("\n  ([a-z]+)  "))) {
    EXPECT_THAT(texts[0], HasSubstr(".SS \"" + command + "\""));
    EXPECT_THAT(fish, HasSubstr("__switchyard_none' -f -a " + command + " "));
  }
  EXPECT_EQ(run_program({"completion", "tcsh"}).exit, 2);
}

// What bash offers after these words.
std::string offered(const std::string& script, const std::string& words) {
  const std::string command = "bash -c '. " + script + "; COMP_WORDS=(" + words +
                              "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _switchyard; echo \" ${COMPREPLY[*]} \"'";
  std::string out;
  FILE* pipe = ::popen(command.c_str(), "r");
  std::array<char, 4096> part;
  for (size_t n = 0; (n = std::fread(part.data(), 1, part.size(), pipe)) > 0;) out.append(part.data(), n);
  EXPECT_EQ(::pclose(pipe), 0) << words;
  return out;
}

TEST(OptionTree, BashCompletes) {
  const TemporaryFolder folder;
  const std::string script = folder.write("switchyard", run_program({"completion", "bash"}).out);
  EXPECT_THAT(offered(script, "switchyard \"\""),
              AllOf(HasSubstr(" run "), HasSubstr(" bench "), Not(HasSubstr("worker"))));
  EXPECT_EQ(offered(script, "switchyard in"), " inspect \n");
  EXPECT_EQ(offered(script, "switchyard run --log w"), " warning \n");
  EXPECT_EQ(offered(script, "switchyard run --file \"\""), "  \n") << "which leaves files to the shell";
  EXPECT_THAT(offered(script, "switchyard run --te"), " --temp \n");
  EXPECT_THAT(offered(script, "switchyard bench --pr"),
              AllOf(HasSubstr(" --prefill "), HasSubstr(" --probe-seconds ")));
  EXPECT_EQ(offered(script, "switchyard bench compare --th"), " --threshold \n");
  EXPECT_EQ(offered(script, "switchyard completion \"f\""), " fish \n");
}

}  // namespace
}  // namespace switchyard::testing
