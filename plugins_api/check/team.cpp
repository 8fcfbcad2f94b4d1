#include "plugins_api/check/team.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "plugins_api/check/random.h"

namespace switchyard::check {
namespace {

using Clock = std::chrono::steady_clock;

// Longer than a member works between two barriers of a small case; a member that spins for another must get on.
constexpr auto kTurn = std::chrono::microseconds(1500);

uint32_t asked_width = 2;

void pause_here(int) {
  const timespec t{0, 60'000};
  nanosleep(&t, nullptr);
}

class Team {
 public:
  explicit Team(uint32_t width) : width_(width), start_(width), members_(width), end_(width), handles_(width) {
    struct sigaction action {};
    action.sa_handler = pause_here;
    action.sa_flags = SA_RESTART;
    sigaction(SIGUSR2, &action, nullptr);
    for (uint32_t rank = 1; rank < width_; ++rank) {
      threads_.emplace_back([this, rank] {
        while (true) {
          start_.arrive_and_wait();
          part(rank);
        }
      });
      handles_[rank] = threads_.back().native_handle();
    }
  }
  uint32_t width() const { return width_; }
  void pace(Pace p, uint64_t seed) {
    pace_ = p;
    random_ = Random(seed);
  }
  void run(swy_team_fn fn, void* arg) {
    fn_ = fn;
    arg_ = arg;
    new_order();
    if (pace_ == Pace::kInterrupted) {
      handles_[0] = pthread_self();
      interrupting_ = true;
      std::thread interrupter([this] { interrupt(); });
      once();
      interrupting_ = false;
      interrupter.join();
    } else {
      once();
    }
  }

 private:
  void once() {
    start_.arrive_and_wait();
    part(0);
  }
  void part(uint32_t rank) {
    const swy_team self{sizeof(swy_team),
                        width_,
                        rank,
                        0,
                        this,
                        [](const swy_team* t) {
                          static_cast<Team*>(t->ctx)->barrier(t->rank); }};
    await_turn(rank);
    fn_(arg_, &self);
    end_turn();
    end_.arrive_and_wait();
  }
  void barrier(uint32_t rank) {
    end_turn();
    members_.arrive_and_wait();
    if (pace_ != Pace::kTurns) return;
    if (rank == 0) new_order();
    members_.arrive_and_wait();
    await_turn(rank);
  }

  // ---- turns
  void new_order() {
    if (pace_ != Pace::kTurns) return;
    order_ = random_.permutation(width_);
    const std::lock_guard lock(mutex_);
    ended_ = 0;
  }
  void await_turn(uint32_t rank) {
    if (pace_ != Pace::kTurns) return;
    std::unique_lock lock(mutex_);
    turn_.wait_for(lock, order_[rank] * kTurn, [&] { return ended_ >= order_[rank]; });
  }
  void end_turn() {
    if (pace_ != Pace::kTurns) return;
    const std::lock_guard lock(mutex_);
    ++ended_;
    turn_.notify_all();
  }

  // ---- interruptions
  void interrupt() {
    while (interrupting_) {
      pthread_kill(handles_[random_.below(width_)], SIGUSR2);
      std::this_thread::sleep_for(std::chrono::microseconds(random_.below(40)));
    }
  }

  const uint32_t width_;
  std::barrier<> start_, members_, end_;
  std::vector<pthread_t> handles_;
  std::vector<std::thread> threads_;
  swy_team_fn fn_ = nullptr;
  void* arg_ = nullptr;
  Pace pace_ = Pace::kFree;
  Random random_{0};
  std::atomic<bool> interrupting_{false};
  std::mutex mutex_;
  std::condition_variable turn_;
  std::vector<uint32_t> order_;
  uint32_t ended_ = 0;
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

}  // namespace switchyard::check
