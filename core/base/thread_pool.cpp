// SPDX-License-Identifier: Apache-2.0
#include "core/base/thread_pool.h"

#include <algorithm>

#include "core/base/affinity.h"
#include "core/base/call_site.h"
#include "core/base/float_controls.h"
#include "core/base/os.h"
#include "core/base/threads.h"

namespace switchyard {
namespace {

constexpr int kSpins = 2000;  // a few microseconds, then the kernel

constinit thread_local const ThreadPool* working_for = nullptr;  // the pool whose member this thread is now

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// False: `word` is still `old`.
bool changes_soon(const std::atomic<uint32_t>& word, uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    if (word.load(std::memory_order_acquire) != old) return true;
    pause();
  }
  return false;
}

// Returns once `word` is no longer `old`.
void wait_for_change(const std::atomic<uint32_t>& word, uint32_t old) {
  if (!changes_soon(word, old)) word.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(uint32_t width) : processors_(std::make_unique<std::atomic<uint32_t>[]>(std::max(width, 1u))) {
  for (uint32_t rank = 0; rank < width; ++rank) processors_[rank] = UINT32_MAX;
  const auto start = [this] { return start_thread(threads_, [this, rank = width_] { member(rank); }); };
  while (width_ < width && start()) ++width_;
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void ThreadPool::barrier(uint32_t rank) {
  const uint32_t phase = phase_.load(std::memory_order_acquire);
  const bool counted = watched_ != nullptr && rank == 0;
  if (counted) ++watched_->barriers;
  note_processor(rank);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == width_) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.fetch_add(1, std::memory_order_release);
    phase_.notify_all();
    return;
  }
  const uint64_t begin = counted ? Os::real().now_ns() : 0;
  if (!changes_soon(phase_, phase)) {
    move_apart(rank);
    phase_.wait(phase, std::memory_order_acquire);
  }
  if (counted) watched_->waited_ns += Os::real().now_ns() - begin;
}

// Members share a cache line of these, so what is known already is not written.
uint32_t ThreadPool::note_processor(uint32_t rank) {
  const uint32_t here = this_processor();
  std::atomic<uint32_t>& known = processors_[rank];
  if (known.load(std::memory_order_relaxed) != here) known.store(here, std::memory_order_relaxed);
  return here;
}

// Two members on one processor take turns there while each waits for the other, five times as long as on two. They
// hardly rest, so that the system's scheduler holds their caches for warm and leaves them together for whole steps. The
// member with the larger rank goes to a processor that has none; later it may run anywhere again.
void ThreadPool::move_apart(uint32_t rank) {
  const std::vector<uint32_t>& allowed = allowed_processors();
  const uint32_t here = note_processor(rank);
  const auto taken = [this](uint32_t processor, uint32_t ranks) {
    return std::any_of(processors_.get(), processors_.get() + ranks,
                       [&](const auto& p) { return p.load(std::memory_order_relaxed) == processor; });
  };
  if (pinned_ || width_ > allowed.size() || !taken(here, rank)) return;
  const auto empty = std::find_if(allowed.begin(), allowed.end(), [&](uint32_t p) { return !taken(p, width_); });
  if (empty == allowed.end() || !pin_this_thread(*empty)) return;
  unpin_this_thread();
  processors_[rank].store(*empty, std::memory_order_relaxed);
}

// An exception that left `fn` would leave the other members at a barrier: noexcept ends the process.
void ThreadPool::work(uint32_t rank) noexcept {
  const swy_team self = team(rank);
  const uint64_t controls = float_controls();
  fn_(arg_, &self);
  if (float_controls() == controls) return;
  set_float_controls(controls);
  note_float_fault();
}

void ThreadPool::run(swy_team_fn fn, void* arg) {
  if (working_for == this) {
    const swy_team alone{sizeof(swy_team), 1, 0, 0, nullptr, [](const swy_team*) {}};
    return fn(arg, &alone);
  }
  const std::lock_guard lock(turn_);
  const ThreadPool* const outer = working_for;
  working_for = this;
  const CallSite& here = this_call_site();
  backend_ = here.backend.load(std::memory_order_relaxed);
  entry_ = here.entry.load(std::memory_order_relaxed);
  fn_ = fn;
  arg_ = arg;
  if (watched_ != nullptr) ++watched_->runs;
  running_.store(width_ - 1, std::memory_order_relaxed);
  note_processor(0);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  work(0);
  working_for = outer;
  for (uint32_t left = running_.load(std::memory_order_acquire); left != 0;
       left = running_.load(std::memory_order_acquire)) {
    const uint64_t begin = watched_ == nullptr ? 0 : Os::real().now_ns();
    wait_for_change(running_, left);
    if (watched_ != nullptr) watched_->waited_ns += Os::real().now_ns() - begin;
  }
}

bool ThreadPool::pin() {
  if (allowed_processors().size() < width_) return false;
  std::atomic<bool> all{true};
  run(
      [](void* ok, const swy_team* team) {
        if (!pin_this_thread(allowed_processors()[team->rank])) static_cast<std::atomic<bool>*>(ok)->store(false);
      },
      &all);
  pinned_ = all;
  return all;
}

swy_team ThreadPool::team(uint32_t rank) {
  return {sizeof(swy_team),
          width_,
          rank,
          0,
          this,
          [](const swy_team* t) { static_cast<ThreadPool*>(t->ctx)->barrier(t->rank); }};
}

void ThreadPool::member(uint32_t rank) {
  working_for = this;
  CallSite& site = this_call_site();
  site.team = true;
  for (uint32_t seen = 0;; ++seen) {
    wait_for_change(generation_, seen);
    if (stop_.load(std::memory_order_relaxed)) return;
    __atomic_store_n(&site.kernel, nullptr, __ATOMIC_RELAXED);
    site.entry.store(entry_, std::memory_order_relaxed);
    site.backend.store(backend_, std::memory_order_relaxed);
    move_apart(rank);
    work(rank);
    site.backend.store(nullptr, std::memory_order_relaxed);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_all();
  }
}

}  // namespace switchyard
