// SPDX-License-Identifier: Apache-2.0
// A worker process, and the outcome if it dies or does not answer.
#include "bench/worker_process.h"

#include <gmock/gmock.h>

#include <thread>

#include "core/base/os.h"

namespace switchyard::bench {
namespace {

using ::testing::HasSubstr;
const auto kGoOn = [] { return true; };

std::unique_ptr<WorkerProcess> shell(const std::string& script) {
  auto w = WorkerProcess::start("/bin/sh", {"sh", "-c", script});
  EXPECT_TRUE(w.ok()) << w.status().message();
  return std::move(*w);
}

TEST(Worker, AnswersAreItsLines) {
  const auto w = shell(
      "read line <&3; echo '{\"x\": 7}' >&3; read line <&3; echo '{\"error\": \"no\", \"code\": 4}' >&3; "
      "read line <&3");
  const Reply r = w->call({{"do", "x"}}, 60, "x", kGoOn);
  ASSERT_TRUE(r.ok()) << r.reason;
  EXPECT_EQ(r.value["x"], 7);
  const Reply no = w->call({{"do", "x"}}, 60, "x", kGoOn);
  EXPECT_EQ(no.state, State::unsupported) << "code 4";
  EXPECT_EQ(no.reason, "no");
  EXPECT_TRUE(w->alive());
}

TEST(Worker, TellsHowItEnded) {
  const auto crashed = shell("read line <&3; kill -SEGV $$");
  const Reply r = crashed->call({}, 60, "decode", kGoOn);
  EXPECT_EQ(r.state, State::crashed);
  EXPECT_THAT(r.reason, HasSubstr("crashed in decode: Segmentation fault"));
  EXPECT_EQ(crashed->call({}, 60, "prefill", kGoOn).reason, r.reason) << "it stays so";
  EXPECT_THAT(shell("read line <&3; exit 3")->call({}, 60, "decode", kGoOn).reason, HasSubstr("exit code 3"));
  EXPECT_EQ(shell("read line <&3; kill -KILL $$")->call({}, 60, "decode", kGoOn).state, State::out_of_memory);
  EXPECT_EQ(shell("exec 3>&-; sleep 60")->call({}, 60, "decode", kGoOn).state, State::crashed);
}

TEST(Worker, EndsWhatDoesNotAnswer) {
  const auto hangs = shell("sleep 60");
  const uint64_t begin = Os::real().now_ns();
  const Reply r = hangs->call({}, 0.3, "decode", kGoOn);
  EXPECT_EQ(r.state, State::time_limit);
  EXPECT_LT(Os::real().now_ns() - begin, 20'000'000'000u);
  EXPECT_FALSE(hangs->alive());
  EXPECT_EQ(shell("sleep 60")->call({}, 60, "decode", [] { return false; }).state, State::interrupted);
}

TEST(Worker, NonsenseIsAFailure) {
  EXPECT_EQ(shell("read line <&3; echo nonsense >&3; sleep 60")->call({}, 60, "x", kGoOn).state, State::failed);
}

// While another is measured, an idle worker must not take its processor: its threads sleep.
TEST(Worker, SleepsWhileItIsIdle) {
  auto w = WorkerProcess::start(SWITCHYARD_BINARY, {"switchyard", "bench-worker"});
  ASSERT_TRUE(w.ok());
  const nlohmann::json settings = {{"settings",
                                    {{"model", SWITCHYARD_DEMO_MODEL},
                                     {"backend", "reference"},
                                     {"backend_libs", nlohmann::json::array()},
                                     {"backend_path", ""},
                                     {"backend_allow", ""},
                                     {"sets", nlohmann::json::array()},
                                     {"variants", nlohmann::json::array()},
                                     {"threads", 2},
                                     {"pin", false},
                                     {"context", 128},
                                     {"chunk", 64},
                                     {"deterministic", false},
                                     {"exact", false},
                                     {"verify", false},
                                     {"validate", false},
                                     {"tuning", "off"},
                                     {"no_tuned", true},
                                     {"probe_seconds", 10.0},
                                     {"probe_anew", false},
                                     {"sessions", 3},
                                     {"device_sampling", true},
                                     {"speculate", "off"},
                                     {"log", "warning"}}},
                                   {"sampling",
                                    {{"temperature", 0.0},
                                     {"top_p", 1.0},
                                     {"min_p", 0.0},
                                     {"top_k", 0},
                                     {"repetition_penalty", 1.0},
                                     {"presence_penalty", 0.0},
                                     {"frequency_penalty", 0.0}}},
                                   {"random", true}};
  const auto ask = [&](const nlohmann::json& request) {
    Reply r = (*w)->call(request, 300, "a test", kGoOn);
    EXPECT_TRUE(r.ok()) << r.reason;
    return r.value;
  };
  ask({{"do", "open"}, {"settings", settings}});
  ask({{"do", "load"}});
  ask({{"do", "cell"},
       {"id", 0},
       {"metric", "decode"},
       {"at", 4},
       {"batch", 1},
       {"sampling", ""},
       {"decode", 4},
       {"most", 20},
       {"tokens", 4},
       {"text", 64},
       {"seconds", 300}});
  ask({{"do", "turn"}, {"id", 0}, {"warm", 1}, {"steps", 2}});
  const double before = ask({{"do", "usage"}})["cpu_seconds"];
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const double after = ask({{"do", "usage"}})["cpu_seconds"];
  EXPECT_LT(after - before, 0.05) << "of half a second";
}

}  // namespace
}  // namespace switchyard::bench
