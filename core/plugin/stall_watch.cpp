// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/stall_watch.h"

#include <fmt/format.h>

#include <chrono>
#include <map>

#include "core/base/call_site.h"
#include "core/base/os.h"
#include "core/base/threads.h"
#include "core/plugin/cancel.h"

namespace switchyard {
namespace {

using std::chrono_literals::operator""ms;
constexpr auto kLook = 100ms;

// One thread's present call.
struct Watched {
  uint64_t calls = 0;  // which call it is
  double since = 0;    // when it was seen first
  double next = 0;     // seconds in it, when it is told of
  bool asked = false;  // to end
};

std::string described(const CallSite& site, const std::string& did, const char* advice) {
  char text[1024];
  const size_t size = describe_call(site, did.c_str(), advice, text, sizeof text);
  return {text, size - 1};  // without the line end
}

class Look {
 public:
  explicit Look(const StallWatch::Options& options) : o_(options) {}

  void at(const CallSite& site) {
    const char* backend = site.backend.load(std::memory_order_acquire);
    if (site.team || backend == nullptr) {
      calls_.erase(&site);
      return;
    }
    const double now = static_cast<double>(Os::real().now_ns()) / 1e9;
    Watched& w = calls_[&site];
    const uint64_t calls = site.calls.load(std::memory_order_relaxed);
    if (w.calls != calls) w = {calls, now, o_.seconds, false};
    const double in_it = now - w.since;
    if (!w.asked && in_it >= o_.patience && o_.interrupted && o_.interrupted()) {
      w.asked = true;
      const bool can = cancel_device(backend);
      o_.say(described(site, can ? "is asked to stop" : "does not stop by itself",
                       can ? "; Ctrl-C ends the program at once" : "; press Ctrl-C again to end the program"));
    }
    if (in_it < w.next) return;
    w.next *= 2;
    o_.say(described(site, fmt::format("has not returned for {:.0f} s", in_it), "; Ctrl-C stops it"));
  }

 private:
  const StallWatch::Options& o_;
  std::map<const CallSite*, Watched> calls_;
};

}  // namespace

StallWatch::StallWatch(Options options) : options_(std::move(options)) {
  start_thread(thread_, [this] { watch(); });
}

StallWatch::~StallWatch() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ended_.notify_all();
  for (std::thread& t : thread_) t.join();
}

void StallWatch::watch() {
  Look look(options_);
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, kLook, [this] { return end_; })) {
    for_each_call_site([&](const CallSite& site) { look.at(site); });
  }
}

}  // namespace switchyard
