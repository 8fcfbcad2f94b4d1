// SPDX-License-Identifier: Apache-2.0
// The pool that CPU backends compute on.
#include "core/base/thread_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <thread>
#include <vector>

#include "core/base/affinity.h"
#include "core/base/float_controls.h"
#include "core/base/threads.h"

namespace switchyard {
namespace {

class Widths : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(ThreadPool, Widths, ::testing::Values(1u, 2u, 4u));

TEST_P(Widths, EveryMemberRunsOnce) {
  ThreadPool pool(GetParam());
  ASSERT_EQ(pool.width(), GetParam());
  std::vector<std::atomic<int>> calls(GetParam());
  constexpr int kRuns = 2000;
  for (int i = 0; i < kRuns; ++i) {
    pool.run(
        [](void* arg, const swy_team* member) {
          (*static_cast<std::vector<std::atomic<int>>*>(arg))[member->rank].fetch_add(1);
        },
        &calls);
    for (const auto& c : calls) ASSERT_EQ(c.load(), i + 1);
  }
}

// Members write their own plain cell, wait at a barrier, and read all cells: a barrier that opens early shows a cell of
// the round before.
TEST_P(Widths, ABarrierWaitsForAllAndShowsWhatTheyWrote) {
  struct Rounds {
    std::vector<int> cells;
    std::atomic<int> wrong{0};
  } rounds;
  rounds.cells.assign(GetParam(), -1);
  ThreadPool pool(GetParam());
  for (int run = 0; run < 5; ++run) {
    pool.run(
        [](void* arg, const swy_team* member) {
          auto& r = *static_cast<Rounds*>(arg);
          for (int round = 0; round < 500; ++round) {
            r.cells[member->rank] = round;
            member->barrier(member);
            for (const int cell : r.cells) {
              if (cell != round) r.wrong.fetch_add(1);
            }
            member->barrier(member);
          }
        },
        &rounds);
  }
  EXPECT_EQ(rounds.wrong.load(), 0);
}

TEST_P(Widths, StartsAndStopsManyTimes) {
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(GetParam());
    std::atomic<uint32_t> members{0};
    if (i % 2 == 0) continue;  // a pool that never ran ends as well
    pool.run([](void* arg, const swy_team*) { static_cast<std::atomic<uint32_t>*>(arg)->fetch_add(1); }, &members);
    EXPECT_EQ(members.load(), GetParam());
  }
}

// Ends with the test's own thread free again, whatever happens in between.
TEST(ThreadPool, PinnedMembersStayOnAProcessorEach) {
  const size_t processors = allowed_processors().size();
  EXPECT_FALSE(ThreadPool(static_cast<uint32_t>(processors) + 1).pin()) << "fewer processors than members";
  ThreadPool pool(static_cast<uint32_t>(std::min<size_t>(processors, 2)));
  const bool pinned = pool.pin();
  std::vector<int> allowed(pool.width());
  pool.run(
      [](void* out, const swy_team* member) {
        cpu_set_t set;
        ::sched_getaffinity(0, sizeof set, &set);
        (*static_cast<std::vector<int>*>(out))[member->rank] = CPU_COUNT(&set);
      },
      &allowed);
  unpin_this_thread();
  ASSERT_TRUE(pinned);
  for (const int n : allowed) EXPECT_EQ(n, 1);
  cpu_set_t set;
  ::sched_getaffinity(0, sizeof set, &set);
  EXPECT_EQ(static_cast<size_t>(CPU_COUNT(&set)), processors);
}

TEST(ThreadPool, MembersOnOneProcessorMoveApart) {
  ThreadPool pool(2);
  pool.run([](void*, const swy_team*) { pin_this_thread(allowed_processors()[0]); }, nullptr);
  std::vector<uint32_t> at(pool.width());
  pool.run([](void* out,
              const swy_team* member) { (*static_cast<std::vector<uint32_t>*>(out))[member->rank] = this_processor(); },
           &at);
  unpin_this_thread();
  ASSERT_EQ(at.size(), 2u);
  EXPECT_EQ(at[0] != at[1], allowed_processors().size() > 1) << "the only processor is shared";
}

int processors_of_this_thread() {
  cpu_set_t set;
  ::sched_getaffinity(0, sizeof set, &set);
  return CPU_COUNT(&set);
}

// Both are tied to one processor in the midst of a run, and member 1 waits there. Whoever moves away is tied no longer.
TEST(ThreadPool, MembersOnOneProcessorMoveApartAtABarrier) {
  struct Run {
    std::atomic<bool> waits{false};
    std::vector<int> processors;
  } run;
  ThreadPool pool(2);
  run.processors.resize(pool.width());
  pool.run(
      [](void* arg, const swy_team* member) {
        Run& r = *static_cast<Run*>(arg);
        pin_this_thread(allowed_processors()[0]);
        member->barrier(member);
        pin_this_thread(allowed_processors()[0]);  // again, where this barrier parted them already
        if (member->rank == 1) r.waits = true;
        while (!r.waits) std::this_thread::yield();
        if (member->rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
        member->barrier(member);
        r.processors[member->rank] = processors_of_this_thread();
      },
      &run);
  unpin_this_thread();
  EXPECT_THAT(run.processors, ::testing::ElementsAre(1, static_cast<int>(allowed_processors().size())));
}

// As in the server: the thread that pins is not the one that computes.
TEST(ThreadPool, PinnedMembersStayWhereAnotherThreadComputes) {
  if (allowed_processors().size() < 2) GTEST_SKIP() << "needs two processors";
  ThreadPool pool(2);
  ASSERT_TRUE(pool.pin());
  int allowed = 0;
  std::thread([&] {
    pin_this_thread(allowed_processors()[1]);
    pool.run(
        [](void* out, const swy_team* member) {
          if (member->rank == 1) *static_cast<int*>(out) = processors_of_this_thread();
        },
        &allowed);
  }).join();
  unpin_this_thread();
  EXPECT_EQ(allowed, 1);
}

TEST(ThreadPool, AWidthOfZeroIsOne) { EXPECT_EQ(ThreadPool(0).width(), 1u); }

// No system has room for stacks of this size, so that it refuses every thread.
class NoThreads {
 public:
  NoThreads() {
    ::pthread_getattr_default_np(&old_);
    pthread_attr_t huge;
    ::pthread_getattr_default_np(&huge);
    ::pthread_attr_setstacksize(&huge, size_t{1} << 50);
    ::pthread_setattr_default_np(&huge);
    ::pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    ::pthread_setattr_default_np(&old_);
    ::pthread_attr_destroy(&old_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t old_;
};

TEST(ThreadPool, GoesOnWithTheThreadsThatThereAre) {
  const NoThreads refused;
  ThreadPool pool(4);
  EXPECT_EQ(pool.width(), 1u);
  uint32_t seen = 0;
  pool.run([](void* arg, const swy_team* team) { *static_cast<uint32_t*>(arg) += team->size; }, &seen);
  EXPECT_EQ(seen, 1u);
}

TEST(Threads, DoTheWorkOnFewerWhereTheSystemRefusesMore) {
  const NoThreads refused;
  int runs = 0;
  on_threads(4, [&] { ++runs; });
  EXPECT_EQ(runs, 1);
}

TEST_P(Widths, CallsOfSeveralThreadsTakeTurns) {
  ThreadPool pool(GetParam());
  std::atomic<int> inside{0}, runs{0};
  std::atomic<bool> mixed{false};
  struct Run {
    std::atomic<int>*inside, *runs;
    std::atomic<bool>* mixed;
    uint32_t width;
  } run{&inside, &runs, &mixed, GetParam()};
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    ASSERT_TRUE(start_thread(callers, [&] {
      for (int i = 0; i < 200; ++i) {
        pool.run(
            [](void* arg, const swy_team* team) {
              const Run& r = *static_cast<Run*>(arg);
              if (r.inside->fetch_add(1) >= static_cast<int>(r.width)) r.mixed->store(true);
              team->barrier(team);
              r.inside->fetch_sub(1);
              if (team->rank == 0) r.runs->fetch_add(1);
            },
            &run);
      }
    }));
  }
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(runs.load(), 800);
  EXPECT_FALSE(mixed.load()) << "two runs were under way at the same time";
}

TEST_P(Widths, ARunWithinARunIsATeamOfOne) {
  ThreadPool pool(GetParam());
  struct Inner {
    ThreadPool* pool;
    std::atomic<int> calls{0}, wrong{0};
  } inner{&pool};
  pool.run(
      [](void* arg, const swy_team*) {
        static_cast<Inner*>(arg)->pool->run(
            [](void* a, const swy_team* team) {
              auto& i = *static_cast<Inner*>(a);
              i.calls.fetch_add(1);
              team->barrier(team);
              if (team->size != 1 || team->rank != 0) i.wrong.fetch_add(1);
            },
            arg);
      },
      &inner);
  EXPECT_EQ(inner.calls.load(), static_cast<int>(GetParam()));
  EXPECT_EQ(inner.wrong.load(), 0);
}

TEST_P(Widths, MembersRoundAfterARunAsBefore) {
  ThreadPool pool(GetParam());
  std::vector<uint64_t> before(GetParam()), after(GetParam());
  const auto note = [](void* arg, const swy_team* team) {
    (*static_cast<std::vector<uint64_t>*>(arg))[team->rank] = float_controls();
  };
  pool.run(note, &before);
  pool.run([](void*, const swy_team*) { std::fesetround(FE_UPWARD); }, nullptr);
  pool.run(note, &after);
  EXPECT_EQ(before, after);
}

}  // namespace
}  // namespace switchyard
