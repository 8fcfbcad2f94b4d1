// SPDX-License-Identifier: Apache-2.0
// What commands read and write that is no plain file, or is in use, and what signals and closed streams do to them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <csignal>
#include <cstdio>

#include "tests/cli/program.h"
#include "tests/support/files.h"

namespace switchyard::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Runs a script of bash, in which $S is the program. Its output, and its exit code.
Ran shell(const std::string& script) {
  const std::string quoted = "exec bash -c '" + script + "'";
  ::setenv("S", SWITCHYARD_BINARY, 1);
  ::setenv("SWITCHYARD_BACKEND", "reference", 1);
  Ran ran;
  FILE* pipe = ::popen(quoted.c_str(), "r");
  std::array<char, 4096> part;
  for (size_t n = 0; (n = std::fread(part.data(), 1, part.size(), pipe)) > 0;) ran.out.append(part.data(), n);
  const int status = ::pclose(pipe);
  ran.exit = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return ran;
}

std::string small_program(const TemporaryFolder& folder) {
  const std::string path = folder.path("m.swy");
  EXPECT_EQ(run_program({"convert", SWITCHYARD_TEST_DATA "/tiny/half-rotary", "-o", path}).exit, 0);
  return path;
}

TEST(Outputs, GoThroughLinksPipesAndDevices) {
  const TemporaryFolder folder;
  const std::string model = small_program(folder), at = folder.path();
  const std::string logits = "$S logits " + model + " --ids 1 --out ";
  EXPECT_THAT(shell(logits + "/dev/stdout | head -c 6").out, StartsWith("\x93NUMPY"));
  EXPECT_THAT(shell(logits + "- | head -c 6").out, StartsWith("\x93NUMPY"));
  EXPECT_EQ(shell(logits + "/dev/null 2>&1").exit, 0);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_EQ(shell("cd " + at + "; mkfifo pipe; cat pipe > got & " + logits + "pipe 2>&1; wait").exit, 0);
  EXPECT_TRUE(fs::is_fifo(folder.path("pipe")));
  EXPECT_THAT(read_file(folder.path("got")), StartsWith("\x93NUMPY"));
  fs::create_symlink("target", folder.path("link"));
  EXPECT_EQ(run_program({"inspect", model, "--dequantize", folder.path("link")}).exit, 0);
  EXPECT_TRUE(fs::is_symlink(folder.path("link")));
  EXPECT_GT(fs::file_size(folder.path("target")), 1000u);
  EXPECT_EQ(shell("$S synth --config " SWITCHYARD_TEST_DATA "/tiny/half-rotary/config.json --no-histogram -o >(cat >" +
                  at + "/s.swy) 2>/dev/null; sleep 0.3; $S inspect " + at + "/s.swy --verify")
                .exit,
            0)
      << "what is written out of order arrives in order";
}

TEST(Outputs, AreNotWhatIsRead) {
  const TemporaryFolder folder;
  const std::string model = small_program(folder), before = read_file(model);
  const std::string text = folder.write("a.txt", "It was"), report = SWITCHYARD_TEST_DATA "/bench/demo.json";
  fs::create_hard_link(model, folder.path("same"));
  const std::string copy = folder.write("report.json", read_file(report));
  for (const Arguments& arguments : std::vector<Arguments>{{"inspect", model, "--dequantize", model},
                                                           {"inspect", model, "--dequantize", folder.path("same")},
                                                           {"logits", "-m", model, "--ids", "1", "--out", model},
                                                           {"run", "-f", text, "-n", "2", "--trace", text},
                                                           {"bench", "compare", copy, report, "-o", copy},
                                                           {"bench", "-o", copy, "--html", copy}}) {
    const Ran ran = run_program(arguments);
    EXPECT_EQ(ran.exit, 2) << arguments[0];
    EXPECT_THAT(ran.err, HasSubstr("; name ")) << arguments[0];
  }
  EXPECT_EQ(read_file(model), before);
  EXPECT_EQ(read_file(text), "It was");
  EXPECT_EQ(read_file(copy), read_file(report));
}

const Arguments kLong = {"run", "-n", "4000", "--temp", "2", "--ignore-eos"};

Arguments long_run(const Arguments& more) {
  Arguments all = kLong;
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(Signals, ThatEndTheProgramLeaveNoUnfinishedFile) {
  for (const int signal : {SIGQUIT, SIGUSR1, SIGALRM, SIGABRT}) {
    const TemporaryFolder folder;
    Child run(long_run({"--trace", folder.path("t.json"), "Once"}));
    ASSERT_TRUE(run.wait_for_bytes(20));
    ASSERT_FALSE(fs::is_empty(folder.path()));
    run.signal(signal);
    EXPECT_EQ(run.finish(), -signal);
    EXPECT_TRUE(fs::is_empty(folder.path())) << signal;
  }
}

TEST(Signals, AreTheExitCode) {
  const std::string text = SWITCHYARD_TEST_DATA "/demo/val16.txt";
  for (const Arguments& arguments :
       std::vector<Arguments>{long_run({"Once"}), {"perplexity", "-f", text, "--window", "32"}}) {
    for (const auto& [signal, exit] : {std::pair{SIGINT, 130}, {SIGTERM, 143}}) {
      Child child(arguments);
      ASSERT_TRUE(child.wait_until_it_catches(signal));
      ::usleep(50000);
      child.signal(signal);
      EXPECT_EQ(child.finish(), exit) << arguments[0] << child.err;
    }
  }
}

TEST(Signals, EndAPromptThatDoesNotCome) {
  Child run({"run", "-n", "2"});
  ASSERT_TRUE(run.wait_until_it_catches(SIGTERM));
  run.signal(SIGTERM);
  EXPECT_TRUE(run.wait_for(2, "interrupted while reading standard input"));
  EXPECT_EQ(run.finish(), 143);
}

TEST(Signals, ThatAreIgnoredStayIgnored) {
  EXPECT_EQ(shell("trap \"\" HUP; $S run -n 20 --threads 1 --ignore-eos Once >/dev/null 2>&1 & sleep 0.3; kill -HUP "
                  "$!; wait $!")
                .exit,
            0)
      << "nohup";
}

TEST(Streams, ThatAreClosedOrFullDoNotAbort) {
  const TemporaryFolder folder;
  EXPECT_EQ(shell("$S run -n 2 hi 2>&-").exit, 0);
  EXPECT_EQ(shell("$S run -n 2 hi 2>/dev/full").exit, 0);
  EXPECT_EQ(shell("$S run -m /none hi 2>&-").exit, 1);
  EXPECT_EQ(shell("$S run --warp 2>&-").exit, 2);
  EXPECT_EQ(shell("$S logits --ids 1 --out " + folder.path("x") + " 2>&-").exit, 0);
  EXPECT_THAT(read_file(folder.path("x")), StartsWith("\x93NUMPY"));
  for (const char* command : {"inspect >&-", "--help >/dev/full", "run --help >/dev/full", "--version >/dev/full"}) {
    EXPECT_EQ(shell(std::string("$S ") + command).exit, 1) << command;
  }
}

TEST(Inputs, MayBeStandardInputOrAPipe) {
  const std::string expected = run_program({"run", "--temp", "0", "-n", "5", "The ship"}).out;
  const std::string run = "$S run --temp 0 -n 5 -f ";
  for (const std::string& script : {"printf \"The ship\" | " + run + "-", "printf \"The ship\" | " + run + "/dev/stdin",
                                    run + "<(printf \"The ship\")"}) {
    const Ran ran = shell(script + " 2>&1");
    EXPECT_EQ(ran.exit, 0);
    EXPECT_THAT(ran.out, StartsWith(expected)) << script;
  }
  const Ran large = shell("head -c 17000000 /dev/zero | $S run 2>&1");
  EXPECT_EQ(large.exit, 1);
  EXPECT_THAT(large.out, HasSubstr("standard input has more than 16 MiB, the most that is read from it; name a file"));
}

TEST(Json, AnErrorIsAnObjectOnStandardOutput) {
  for (const Arguments& arguments :
       std::vector<Arguments>{{"run", "--json", "-m", "/none.swy", "hi"},
                              {"logits", "--json", "--ids", "1", "--out", "/none/x", "-m", "/none.swy"},
                              {"synth", "--json", "-o", "/none/x.swy", "--layers", "1"},
                              {"bench", "compare", "/none", "/none", "--format", "json"},
                              {"inspect", "--json", "--tensers"},
                              {"backends", "--json", "--backend-path"}}) {
    const Ran ran = run_program(arguments);
    const nlohmann::json parsed = nlohmann::json::parse(ran.out, nullptr, false);
    ASSERT_TRUE(parsed.is_object()) << arguments[0] << ran.out;
    EXPECT_EQ(parsed["error"]["exit_code"], ran.exit);
    EXPECT_GT(ran.exit, 0);
    EXPECT_EQ(ran.err, "switchyard: " + parsed["error"]["message"].get<std::string>() + "\n");
    EXPECT_THAT(parsed["error"]["code"].get<std::string>(), ::testing::AnyOf("usage", "not_found"));
  }
}

TEST(Json, OfLogitsAndSynth) {
  const TemporaryFolder folder;
  const nlohmann::json logits = run_json({"logits", "--json", "--ids", "1 2", "--out", folder.path("x")});
  EXPECT_EQ(logits["shape"], nlohmann::json::array({2, 4096}));
  const nlohmann::json made =
      run_json({"synth", "--json", "--config", SWITCHYARD_TEST_DATA "/tiny/half-rotary/config.json", "-o",
                folder.path("s.swy")});
  EXPECT_EQ(made["bytes"], fs::file_size(folder.path("s.swy")));
  EXPECT_FALSE(made["experts"]["layers"].empty());
}

}  // namespace
}  // namespace switchyard::testing
