// SPDX-License-Identifier: Apache-2.0
// A device that works while the host goes on: lists and copies wait in a queue that a thread of the plugin empties, in
// order, a little late. And the faults of such queues.
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "tests/plugin/wrong/wrong.h"

struct swy_timeline {
  uint64_t value = 0;
};

namespace wrong {
namespace {

namespace right = swy::detail;

enum class Queueing { kRight, kSignalsEarly, kWaitsIgnored, kFillsUnordered, kReadsUnordered, kTimesOutOtherwise };
Queueing queueing = Queueing::kRight;

std::mutex mutex;  // of everything here
std::condition_variable changed;

using Points = std::vector<swy_timeline_point>;

void raise(const Points& points) {
  for (const swy_timeline_point& p : points) p.timeline->value = p.value;
  changed.notify_all();
}

struct Work {
  Points waits, signals;
  std::function<swy_status()> run;
  bool* done = nullptr;
  swy_status* status = nullptr;
  bool late = false;
};

class Queue {
 public:
  Queue() : thread_([this] { empty(); }) {}
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  ~Queue() {
    {
      const std::lock_guard lock(mutex);
      ends_ = true;
      changed.notify_all();
    }
    thread_.join();
  }
  // Without `submit` it returns when the work is done.
  swy_status add(const swy_submit* submit, std::function<swy_status()> run) {
    Work w;
    w.run = std::move(run);
    w.late = submit != nullptr;
    if (submit != nullptr && queueing != Queueing::kWaitsIgnored) {
      w.waits.assign(submit->waits, submit->waits + submit->wait_count);
    }
    if (submit != nullptr) w.signals.assign(submit->signals, submit->signals + submit->signal_count);
    bool done = false;
    swy_status status = SWY_OK;
    if (submit == nullptr) w.done = &done, w.status = &status;
    std::unique_lock lock(mutex);
    if (queueing == Queueing::kSignalsEarly) raise(w.signals), w.signals.clear();
    work_.push_back(std::move(w));
    changed.notify_all();
    if (submit == nullptr) changed.wait(lock, [&] { return done; });
    return status;
  }

 private:
  static bool reached(const Points& points) {
    for (const swy_timeline_point& p : points) {
      if (p.timeline->value < p.value) return false;
    }
    return true;
  }
  void empty() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return ends_ || !work_.empty(); });
      if (work_.empty()) return;
      const Work w = std::move(work_.front());
      work_.pop_front();
      changed.wait(lock, [&] { return reached(w.waits); });
      lock.unlock();
      if (w.late) std::this_thread::sleep_for(std::chrono::microseconds(500));
      const swy_status s = w.run();
      lock.lock();
      raise(w.signals);
      if (w.status != nullptr) *w.status = s;
      if (w.done != nullptr) *w.done = true;
      changed.notify_all();
    }
  }

  std::deque<Work> work_;
  bool ends_ = false;
  std::thread thread_;
};

std::map<const void*, std::shared_ptr<Queue>>& queues() {  // of devices, and of their lists
  static std::map<const void*, std::shared_ptr<Queue>> all;
  return all;
}
std::shared_ptr<Queue> queue_of(const void* owner) {
  const std::lock_guard lock(mutex);
  return queues().at(owner);
}
std::shared_ptr<Queue> take(const void* owner) {
  const std::lock_guard lock(mutex);
  return std::move(queues().extract(owner).mapped());
}

void devices(swy_plugin& t) {
  t.device_info = [](uint32_t index, swy_device_info* out, swy_error* error) {
    const swy_status s = right::device_info(index, out, error);
    if (s == SWY_OK && out->struct_size >= sizeof *out) out->flags &= ~uint32_t{SWY_DEVICE_SYNCHRONOUS};
    return s;
  };
  t.device_open = [](uint32_t index, const swy_setting* settings, uint32_t count, swy_device** out, swy_error* error) {
    const swy_status s = right::device_open(index, settings, count, out, error);
    if (s != SWY_OK) return s;
    auto queue = std::make_shared<Queue>();
    const std::lock_guard lock(mutex);
    queues()[*out] = std::move(queue);
    return s;
  };
  t.device_close = [](swy_device* d) {
    take(d);
    right::device_close(d);
  };
}

void lists(swy_plugin& t) {
  t.list_begin = [](swy_device* d, const swy_list_info* info, swy_list** out, swy_error* error) {
    const swy_status s = right::list_begin(d, info, out, error);
    if (s != SWY_OK) return s;
    const std::lock_guard lock(mutex);
    queues()[*out] = queues().at(d);
    return s;
  };
  t.list_submit = [](swy_list* l, const swy_submit* submit, swy_error*) {
    return queue_of(l)->add(submit, [l] { return right::list_submit(l, nullptr, nullptr); });
  };
  t.list_free = [](swy_list* l) {
    take(l)->add(nullptr, [] { return swy_status{SWY_OK}; });
    right::list_free(l);
  };
}

void copies(swy_plugin& t) {
  t.write = [](swy_device* d, swy_buffer* to, uint64_t at, const void* from, uint64_t bytes, const swy_submit* submit,
               swy_error* error) {
    const swy_status s = right::check_range(*static_cast<right::Buffer*>(to), at, bytes, error);
    if (s != SWY_OK) return s;
    // The host keeps `from` until the copy is done.
    return queue_of(d)->add(submit, [=] { return right::write(nullptr, to, at, from, bytes, nullptr, nullptr); });
  };
  t.read = [](swy_device* d, void* to, swy_buffer* from, uint64_t at, uint64_t bytes, const swy_submit* submit,
              swy_error* error) {
    const auto read = [=](swy_error* e) { return right::read(nullptr, to, from, at, bytes, nullptr, e); };
    if (queueing == Queueing::kReadsUnordered) return read(error);
    const swy_status s = right::check_range(*static_cast<right::Buffer*>(from), at, bytes, error);
    return s != SWY_OK ? s : queue_of(d)->add(submit, [=] { return read(nullptr); });
  };
  t.fill_zero = [](swy_device* d, swy_buffer* buffer, uint64_t at, uint64_t bytes, swy_error* error) {
    const auto fill = [=](swy_error* e) { return right::fill_zero(nullptr, buffer, at, bytes, e); };
    if (queueing == Queueing::kFillsUnordered) return fill(error);
    const swy_status s = right::check_range(*static_cast<right::Buffer*>(buffer), at, bytes, error);
    return s != SWY_OK ? s : queue_of(d)->add(nullptr, [=] { return fill(nullptr); });
  };
}

void timelines(swy_plugin& t) {
  t.timeline_create = [](swy_device*, swy_timeline** out, swy_error*) {
    *out = new swy_timeline;
    return swy_status{SWY_OK};
  };
  t.timeline_free = [](swy_device* d, swy_timeline* timeline) {
    queue_of(d)->add(nullptr, [] { return swy_status{SWY_OK}; });
    delete timeline;
  };
  t.timeline_value = [](swy_timeline* timeline) {
    const std::lock_guard lock(mutex);
    return timeline->value;
  };
  t.timeline_wait = [](swy_timeline* timeline, uint64_t value, uint64_t timeout_ns, swy_error* error) {
    const auto longest = std::chrono::nanoseconds(std::min<uint64_t>(timeout_ns, 3'600'000'000'000));
    std::unique_lock lock(mutex);
    if (changed.wait_for(lock, longest, [&] { return timeline->value >= value; })) return swy_status{SWY_OK};
    const bool otherwise = queueing == Queueing::kTimesOutOtherwise;
    return swy::fail(error, otherwise ? SWY_INTERNAL : SWY_CANCELLED, SWY_REASON_NONE,
                     "the value was not reached in time");
  };
}

template <Queueing how>
void queued(swy_plugin& t) {
  queueing = how;
  devices(t);
  lists(t);
  copies(t);
  timelines(t);
}

constexpr Fault kFaults[] = {
    {"queued", "timelines", "", 0, nullptr, nullptr, queued<Queueing::kRight>},
    {"queued_signals_before_it_ran", "timelines/lists_signal", "before the list had run", 0, nullptr, nullptr,
     queued<Queueing::kSignalsEarly>},
    {"queued_copies_signal_before_they_ran", "timelines/order", "does not have what write", 0, nullptr, nullptr,
     queued<Queueing::kSignalsEarly>},
    {"queued_ignores_waits", "timelines/waits", "did not wait for", 0, nullptr, nullptr,
     queued<Queueing::kWaitsIgnored>},
    {"queued_fills_at_once", "timelines/fills", "fill_zero", 0, nullptr, nullptr, queued<Queueing::kFillsUnordered>},
    {"queued_reads_at_once", "timelines/order", "does not have what write", 0, nullptr, nullptr,
     queued<Queueing::kReadsUnordered>},
    {"queued_times_out_otherwise", "timelines", "instead of SWY_CANCELLED", 0, nullptr, nullptr,
     queued<Queueing::kTimesOutOtherwise>},
};

}  // namespace

std::span<const Fault> faults_of_queues() { return kFaults; }

}  // namespace wrong
