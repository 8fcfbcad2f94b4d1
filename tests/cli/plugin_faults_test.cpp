// SPDX-License-Identifier: Apache-2.0
// Faults of a backend in the middle of a run: the user reads one line that names the backend, and the exit code is not
// 0.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <memory>

#include "tests/cli/program.h"

namespace switchyard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kPlugin[] = SWITCHYARD_FIXTURES "/switchyard_faulty.so";

Arguments with_fault(const std::string& fault) {
  return {"run",
          "-n",
          "8",
          "--backend-lib",
          kPlugin,
          "--backend",
          "faulty,reference",
          "--set",
          "faulty.fault=" + fault,
          "--threads",
          "2",
          "Once upon a time"};
}

struct Fault {
  const char* name;
  const char* line;  // how it begins
  int exit;          // minus the signal
};

class Faults : public ::testing::TestWithParam<Fault> {};
constexpr char kKernel[] = "kernel add.faulty)";
INSTANTIATE_TEST_SUITE_P(
    Plugin, Faults,
    ::testing::Values(
        Fault{"exit", "switchyard: backend faulty:0 ended the program by calling exit (list_submit, list ", 1},
        Fault{"quick_exit", "switchyard: backend faulty:0 ended the program by calling exit (list_submit, list ", 1},
        Fault{"_exit", "switchyard: backend faulty:0 ended the program by calling _exit (list_submit, list ", 1},
        Fault{"segv", "switchyard: backend faulty:0 crashed with SIGSEGV, an access to memory that is not there (",
              -SIGSEGV},
        Fault{"stack", "switchyard: backend faulty:0 crashed with SIGSEGV, an access to memory that is not there (",
              -SIGSEGV},
        Fault{"fpe", "switchyard: backend faulty:0 crashed with SIGFPE, a division by zero or the like (", -SIGFPE},
        Fault{"abort", "switchyard: backend faulty:0 aborted the program (SIGABRT) (", -SIGABRT},
        Fault{"throw", "switchyard: backend faulty:0 threw an exception, \"out of ideas\" (", -SIGABRT}),
    [](const auto& one) { return std::string(one.param.name); });

TEST_P(Faults, IsOneLineThatNamesTheKernel) {
  const Ran ran = run_program(with_fault(GetParam().name));
  EXPECT_EQ(ran.exit, GetParam().exit) << ran.err;
  EXPECT_THAT(ran.err, StartsWith(GetParam().line));
  EXPECT_THAT(ran.err, HasSubstr(kKernel));
  EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
}

TEST(PluginFaults, ATrapNamesTheKernel) {  // SIGILL or SIGTRAP, as the processor has it
  const Ran ran = run_program(with_fault("trap"));
  EXPECT_LT(ran.exit, 0);
  if (ran.exit == -SIGILL) {
    EXPECT_THAT(ran.err, HasSubstr(kKernel));
  }
}

TEST(PluginFaults, AThreadOfThePluginThatExitsIsToldOf) {
  const Ran ran = run_program(with_fault("thread_exit"));
  EXPECT_EQ(ran.exit, 1);
  EXPECT_THAT(ran.err, StartsWith("switchyard: a thread of a backend ended the program by calling exit"));
}

TEST(PluginFaults, AnExceptionOfAnEntryIsAnError) {
  const Ran record = run_program(with_fault("record"));
  EXPECT_EQ(record.exit, 1);
  EXPECT_THAT(record.err, HasSubstr("the backend threw an exception in record of kernel add.faulty: out of ideas"));
  const Ran submit = run_program(with_fault("submit_throw"));
  EXPECT_EQ(submit.exit, 1);
  EXPECT_THAT(submit.err, HasSubstr("faulty:0: running a step: the backend threw an exception in list_submit, list "));
}

TEST(PluginFaults, TextOfThePluginIsEscapedAndBounded) {
  const Ran ran = run_program(with_fault("log"));
  EXPECT_EQ(ran.exit, 0);
  EXPECT_THAT(ran.err, HasSubstr("\\x1B[2Jred"));
  EXPECT_THAT(ran.err, Not(HasSubstr(std::string(1000, 'x'))));
}

#if defined(__x86_64__)
TEST(PluginFaults, TheHostRoundsAsBefore) {
  const Ran ran = run_program(with_fault("rounding"));
  EXPECT_EQ(ran.exit, 0);
  const std::string line = "backend faulty:0 changed how floating point rounds or flushes to zero";
  EXPECT_THAT(ran.err, HasSubstr(line));
  EXPECT_EQ(ran.err.find(line), ran.err.rfind(line)) << "said more than once";
}
#endif

// What hangs is told of after ten seconds: these two begin together.
class Hanging : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    hang_ = std::make_unique<Child>(with_fault("hang"));
    deaf_ = std::make_unique<Child>(with_fault("deaf"));
  }
  static void TearDownTestSuite() {
    hang_.reset();
    deaf_.reset();
  }
  static inline std::unique_ptr<Child> hang_, deaf_;
};

TEST_F(Hanging, TheFirstInterruptCancels) {
  ASSERT_TRUE(hang_->wait_until_it_catches(SIGINT));
  ASSERT_TRUE(hang_->wait_for(2, "backend faulty:0 has not returned for 10 s (list_submit, list "));
  hang_->signal(SIGINT);
  EXPECT_EQ(hang_->finish(), 130);
  EXPECT_THAT(hang_->err, HasSubstr("backend faulty:0 is asked to stop (list_submit, list "));
}

TEST_F(Hanging, TheSecondInterruptEndsWhatCannotBeCancelled) {
  ASSERT_TRUE(deaf_->wait_for(2, "backend faulty:0 has not returned for 10 s"));
  deaf_->signal(SIGINT);
  ASSERT_TRUE(deaf_->wait_for(2, "press Ctrl-C again to end the program"));
  deaf_->signal(SIGINT);
  EXPECT_EQ(deaf_->finish(), 130);
  EXPECT_THAT(deaf_->err, Not(HasSubstr("ended the program by calling")));
}

}  // namespace
}  // namespace switchyard::testing
