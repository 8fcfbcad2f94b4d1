// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/team.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "plugins_api/check/floating.h"
#include "plugins_api/check/random.h"

namespace switchyard::check {
namespace {

using Clock = std::chrono::steady_clock;

// Longer than a member works between two barriers of a small case; a member that spins for another must get on.
constexpr auto kTurn = std::chrono::microseconds(1500);

constexpr uint64_t kUnknown = 10'000;  // ns that a segment is taken to last before it was timed

constexpr uint32_t kHalts = 24;  // of a segment
constexpr uint64_t kWorthAHalt =
    200;  // ns that a segment lasts at least: the halt itself comes between two instructions

uint32_t asked_width = 2;

uint64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

std::atomic<bool> halted{false};

void halt_here(int) {
  const int kept = errno;  // of whatever code this interrupts
  const timespec t{0, 400'000};
  halted = true;
  nanosleep(&t, nullptr);
  errno = kept;
}

// Halts the calling thread for a while, once, some time from now, wherever it is then.
class Halt {
 public:
  static constexpr uint64_t kAhead = 50'000;  // ns: setting a timer takes longer than many segments do

  // Sets the timer, and spins for so many ns at most. Gives the ns that the thread had spun when it was halted.
  uint64_t arm_and_spin(uint64_t spin_ns) {
    const uint64_t begin = now_ns();
    arm(kAhead);
    uint64_t spun = 0;
    for (uint64_t now = 0; !halted && now < spin_ns; now = now_ns() - begin) spun = now;
    return spun;
  }
  void arm(uint64_t after_ns) {
    if (!made_) make();
    set(after_ns + 1);
  }
  void disarm() { set(0); }

 private:
  void make() {
    struct sigaction action {};
    action.sa_handler = halt_here;
    action.sa_flags = SA_RESTART;
    sigaction(SIGUSR2, &action, nullptr);
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGUSR2;
    event._sigev_un._tid = gettid();
    made_ = timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
  }
  void set(uint64_t ns) {
    itimerspec when{};
    when.it_value.tv_sec = static_cast<time_t>(ns / 1'000'000'000u);
    when.it_value.tv_nsec = static_cast<long>(ns % 1'000'000'000u);
    if (made_) timer_settime(timer_, 0, &when, nullptr);
  }
  timer_t timer_{};
  bool made_ = false;
};

thread_local Halt halt;

class Team {
 public:
  explicit Team(uint32_t width) : width_(width), start_(width), members_(width), end_(width), mine_(width) {
    for (uint32_t rank = 1; rank < width_; ++rank) {
      threads_.emplace_back([this, rank] {
        while (true) {
          start_.arrive_and_wait();
          part(rank);
        }
      });
    }
  }
  uint32_t width() const { return width_; }
  void pace(Pace p, uint64_t seed) {
    pace_ = p;
    random_ = Random(seed);
    halts_.clear();
    if (p == Pace::kInterrupted) time_halts();
  }
  bool halted_everywhere() const {  // between runs
    for (size_t i = 0; i < halts_.size(); ++i) {
      if (sought(i)) return false;
    }
    return true;
  }
  uint64_t runs() const { return runs_; }
  void run(swy_team_fn fn, void* arg) {
    const std::lock_guard one_at_a_time(run_);
    ++runs_;
    fn_ = fn;
    arg_ = arg;
    for (Member& m : mine_) m.segment = 0;
    new_segment(0);
    start_.arrive_and_wait();
    part(0);
  }

 private:
  // Data of one member.
  struct Member {
    size_t segment = 0;  // barriers so far in this run
    uint64_t begin_ns = 0;
    std::vector<uint64_t> took_ns;  // per segment: the shortest time without a halt
  };

  void part(uint32_t rank) {
    const swy_team self{sizeof(swy_team),
                        width_,
                        rank,
                        0,
                        this,
                        [](const swy_team* t) {
                          static_cast<Team*>(t->ctx)->barrier(t->rank); }};
    begin_segment(rank);
    fn_(arg_, &self);
    note_floating();
    end_segment(rank);
    end_.arrive_and_wait();
  }
  void barrier(uint32_t rank) {
    end_segment(rank);
    ++mine_[rank].segment;
    members_.arrive_and_wait();
    if (pace_ != Pace::kFree) {
      if (rank == 0) new_segment(mine_[rank].segment);
      members_.arrive_and_wait();
    }
    begin_segment(rank);
  }

  // ---- segments: what members do between two barriers

  // Decides the order of the members, and which are interrupted. One thread calls it while the others wait.
  void new_segment(size_t segment) {
    if (pace_ == Pace::kFree) return;
    order_ = random_.permutation(width_);
    when_ = random_.uniform();
    halts_after_ = halts_after_ns_[random_.below(halts_after_ns_.size())];
    halted = halted_early_ = false;
    if (pace_ == Pace::kInterrupted) {
      halts_.resize(std::max(halts_.size(), segment + 1));
      halting_ = sought(segment);
    }
    const std::lock_guard lock(mutex_);
    ended_ = 0;
  }
  // What a thread has done of a spin when a timer halts it differs from machine to machine.
  void time_halts() {
    for (uint64_t& ns : halts_after_ns_) {
      halted = false;
      ns = halt.arm_and_spin(100 * Halt::kAhead);
      halt.disarm();
    }
  }
  static uint64_t expected_ns(const Member& m, size_t segment) {
    return segment < m.took_ns.size() ? m.took_ns[segment] : kUnknown;
  }
  // Whether the segment must be halted more often.
  bool sought(size_t segment) const {
    uint64_t longest = 0;
    for (const Member& m : mine_) longest = std::max(longest, expected_ns(m, segment));
    return halts_[segment] < kHalts && longest >= kWorthAHalt;
  }
  void begin_segment(uint32_t rank) {
    Member& m = mine_[rank];
    if (pace_ == Pace::kTurns) {
      std::unique_lock lock(mutex_);
      turn_.wait_for(lock, order_[rank] * kTurn, [&] { return ended_ >= order_[rank]; });
    } else if (pace_ == Pace::kInterrupted && halting_) {
      if (order_[rank] == 0) {
        halt_within(expected_ns(m, m.segment));
        halted_early_ = halted;
      } else {
        await_halt();
      }
    }
    m.begin_ns = now_ns();
  }
  // Sets the timer first and begins the segment when it is about to run out. Of a long segment it is simply set.
  void halt_within(uint64_t took_ns) const {
    const auto at = static_cast<uint64_t>(when_ * static_cast<double>(took_ns));
    if (took_ns > Halt::kAhead) return halt.arm(at);
    halt.arm_and_spin(halts_after_ - std::min(halts_after_, at));
  }
  void end_segment(uint32_t rank) {
    Member& m = mine_[rank];
    const bool halts = pace_ == Pace::kInterrupted && halting_ && order_[rank] == 0;
    const bool halted_amid = halts && halted && !halted_early_;  // not while the clock is read and the timer disarmed
    const uint64_t took = now_ns() - m.begin_ns;
    if (halts) halt.disarm();
    if (halted_amid) {
      ++halts_[m.segment];
    } else {
      m.took_ns.resize(std::max(m.took_ns.size(), m.segment + 1), took);
      m.took_ns[m.segment] = std::min(m.took_ns[m.segment], took);
    }
    if (pace_ == Pace::kFree) return;
    const std::lock_guard lock(mutex_);
    ++ended_;
    turn_.notify_all();
  }
  // The others begin while the first is halted, or has ended.
  void await_halt() {
    const uint64_t begin = now_ns();
    while (!halted && now_ns() - begin < 1'500'000) {
      std::unique_lock lock(mutex_);
      if (turn_.wait_for(lock, std::chrono::microseconds(10), [&] { return ended_ > 0; })) return;
    }
  }

  const uint32_t width_;
  std::barrier<> start_, members_, end_;
  std::vector<Member> mine_;
  std::vector<std::thread> threads_;
  swy_team_fn fn_ = nullptr;
  void* arg_ = nullptr;
  std::mutex run_;
  std::atomic<uint64_t> runs_ = 0;
  Pace pace_ = Pace::kFree;
  Random random_{0};
  std::mutex mutex_;
  std::condition_variable turn_;
  std::vector<uint32_t> order_;
  uint32_t ended_ = 0;
  uint64_t halts_after_ = 0;                   // one of halts_after_ns_
  double when_ = 0;                            // of a segment's time the first is halted
  bool halting_ = false;                       // this segment
  bool halted_early_ = false;                  // before its work began
  std::array<uint64_t, 16> halts_after_ns_{};  // spun by a thread when it was halted, with a timer set to kAhead
  std::vector<uint32_t> halts_;                // amid its work, per segment, since the pace was set
};

Team& team() {
  static auto* t = new Team(asked_width);  // for ever: a plugin that ends the process must not wait for its own team
  return *t;
}

}  // namespace

void set_team_width(uint32_t width) { asked_width = width; }

const swy_executor* the_team() {
  static const swy_executor executor{
      sizeof(swy_executor), 0, &team(), [](void* ctx) { return static_cast<Team*>(ctx)->width(); },
      [](void* ctx, swy_team_fn fn, void* arg) { static_cast<Team*>(ctx)->run(fn, arg); }};
  return &executor;
}

void set_pace(Pace pace, uint64_t seed) { team().pace(pace, seed); }

bool halted_everywhere() { return team().halted_everywhere(); }

uint64_t team_runs() { return team().runs(); }

}  // namespace switchyard::check
