// SPDX-License-Identifier: Apache-2.0
// What a Ticket and the loop share: the queue of one request's events, and the bell that wakes the loop.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "core/serve/service.h"

namespace switchyard {

// Wakes the loop when it has nothing to compute.
class Bell {
 public:
  void ring() {
    {
      const std::lock_guard lock(mutex_);
      rung_ = true;
    }
    changed_.notify_one();
  }
  // Until it was rung since the last wait, or `timeout_ns` have passed.
  void wait(uint64_t timeout_ns);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool rung_ = false;
};

struct Ticket::Shared {
  Shared(uint64_t ticket, std::shared_ptr<Bell> loop, uint32_t most) : id(ticket), bell(std::move(loop)), limit(most) {}

  void push(Event event);

  // The reader's side, as the functions of Ticket.
  std::optional<Event> pop();
  bool take(std::deque<Event>& to);
  bool arm();

  const uint64_t id;
  uint64_t seed = 0;  // set before the ticket is given out
  const std::shared_ptr<Bell> bell;
  const uint32_t limit;  // events
  std::atomic<bool> cancelled = false;
  std::atomic<size_t> waiting = 0;  // events in the queue

  std::mutex mutex;  // of all below
  std::condition_variable came;
  std::deque<Event> events;
  bool starved = true;    // the reader found no event, and wants to be woken
  bool sleeping = false;  // it waits for `came`
  bool paused = false;    // the loop waits for the reader
  bool over = false;      // the last event was pushed

  std::mutex wake_mutex;  // held while `wake` runs; taken before `mutex`
  std::function<void()> wake;

 private:
  void call_wake();
  bool removed();  // under `mutex`, after events were taken: whether the loop is to go on with the request
};

}  // namespace switchyard
