// SPDX-License-Identifier: Apache-2.0
#include "core/serve/ticket.h"

#include <chrono>
#include <iterator>

namespace switchyard {
namespace {

// A year is as good as never.
std::chrono::steady_clock::time_point time_after(uint64_t timeout_ns) {
  constexpr uint64_t kYear = uint64_t{365} * 86400 * 1'000'000'000;
  return std::chrono::steady_clock::now() + std::chrono::nanoseconds(std::min(timeout_ns, kYear));
}

}  // namespace

void Bell::wait(uint64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, time_after(timeout_ns), [&] { return rung_; });
  rung_ = false;
}

void Ticket::Shared::push(Event event) {
  bool wakes = false;
  {
    const std::lock_guard lock(mutex);
    over = event.finish != nullptr;
    events.push_back(std::move(event));
    waiting.store(events.size());
    paused = events.size() >= limit;
    wakes = std::exchange(starved, false) || over;
    if (sleeping) came.notify_one();
  }
  if (wakes) call_wake();
}

void Ticket::Shared::call_wake() {
  const std::lock_guard lock(wake_mutex);
  if (wake) wake();
}

std::optional<Event> Ticket::Shared::pop() {
  bool resumes = false;
  std::optional<Event> event;
  {
    const std::lock_guard lock(mutex);
    if (events.empty()) {
      starved = true;
      return event;
    }
    event = std::move(events.front());
    events.pop_front();
    resumes = removed();
  }
  if (resumes) bell->ring();
  return event;
}

bool Ticket::Shared::take(std::deque<Event>& to) {
  bool resumes = false;
  {
    const std::lock_guard lock(mutex);
    if (events.empty()) return false;
    to.insert(to.end(), std::move_iterator(events.begin()), std::move_iterator(events.end()));
    events.clear();
    resumes = removed();
  }
  if (resumes) bell->ring();
  return true;
}

bool Ticket::Shared::arm() {
  const std::lock_guard lock(mutex);
  starved = events.empty();
  return starved;
}

bool Ticket::Shared::removed() {
  waiting.store(events.size());
  if (!paused || events.size() > limit / 2) return false;
  paused = false;
  return true;
}

Ticket::Ticket(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

Ticket::~Ticket() {
  on_event({});
  cancel();
}

uint64_t Ticket::id() const { return shared_->id; }
uint64_t Ticket::seed() const { return shared_->seed; }

std::optional<Event> Ticket::poll() { return shared_->pop(); }
bool Ticket::take(std::deque<Event>& events) { return shared_->take(events); }
bool Ticket::arm() { return shared_->arm(); }

std::optional<Event> Ticket::wait(uint64_t timeout_ns) {
  if (auto event = shared_->pop()) return event;
  {
    std::unique_lock lock(shared_->mutex);
    shared_->sleeping = true;
    const auto ready = [&] { return !shared_->events.empty() || shared_->over; };
    shared_->came.wait_until(lock, time_after(timeout_ns), ready);
    shared_->sleeping = false;
  }
  return shared_->pop();
}

void Ticket::on_event(std::function<void()> wake) {
  const std::lock_guard lock(shared_->wake_mutex);
  shared_->wake = std::move(wake);
  if (!shared_->wake) return;
  bool now = false;
  {
    const std::lock_guard events(shared_->mutex);
    now = !shared_->events.empty();
    shared_->starved = !now;
  }
  if (now) shared_->wake();
}

void Ticket::cancel() {
  if (!shared_->cancelled.exchange(true)) shared_->bell->ring();
}

}  // namespace switchyard
