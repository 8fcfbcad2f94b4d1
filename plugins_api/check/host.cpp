#include "plugins_api/check/host.h"

#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <thread>
#include <vector>

namespace switchyard::check {
namespace {

std::atomic<uint64_t> allocations{0};

// Threads that sleep between runs, and in barriers: tests share their machine.
class Team {
 public:
  explicit Team(uint32_t width) : width_(width), start_(width), members_(width), end_(width) {
    for (uint32_t rank = 1; rank < width_; ++rank) {
      threads_.emplace_back([this, rank] {
        while (true) {
          start_.arrive_and_wait();
          if (fn_ == nullptr) return;
          part(rank);
        }
      });
    }
  }
  ~Team() {
    fn_ = nullptr;
    start_.arrive_and_wait();
    for (std::thread& t : threads_) t.join();
  }
  uint32_t width() const { return width_; }
  void run(swy_team_fn fn, void* arg) {
    fn_ = fn;
    arg_ = arg;
    start_.arrive_and_wait();
    part(0);
  }

 private:
  void part(uint32_t rank) {
    const swy_team self{sizeof(swy_team), width_, rank, 0, this, [](const swy_team* t) {
                          static_cast<Team*>(t->ctx)->members_.arrive_and_wait();
                        }};
    fn_(arg_, &self);
    end_.arrive_and_wait();
  }

  const uint32_t width_;
  std::barrier<> start_, members_, end_;
  swy_team_fn fn_ = nullptr;
  void* arg_ = nullptr;
  std::vector<std::thread> threads_;
};

uint32_t team_width() {
  const char* asked = std::getenv("SWITCHYARD_CHECK_THREADS");
  const long n = asked == nullptr ? 2 : std::strtol(asked, nullptr, 10);
  return n < 1 ? 1 : n > 256 ? 256 : static_cast<uint32_t>(n);
}

void log_line(void*, swy_log_level level, const char* message) {
  if (level >= SWY_LOG_WARNING) std::fprintf(stderr, "plugin: %s\n", message == nullptr ? "" : message);
}
void* allocate(void*, uint64_t bytes, uint64_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return ::operator new(bytes, std::align_val_t(alignment), std::nothrow);
}
void release(void*, void* p, uint64_t, uint64_t alignment) { ::operator delete(p, std::align_val_t(alignment)); }

}  // namespace

const swy_host* the_host() {
  static Team team(team_width());
  static const swy_executor executor{
      sizeof(swy_executor), 0, &team, [](void* ctx) { return static_cast<Team*>(ctx)->width(); },
      [](void* ctx, swy_team_fn fn, void* arg) { static_cast<Team*>(ctx)->run(fn, arg); }};
  static const swy_host host{sizeof(swy_host), SWY_ABI_VERSION,
                             "check",          nullptr,
                             log_line,         nullptr,
                             allocate,         release,
                             &executor,        [](void*, const char*) {
                               return static_cast<const void*>(nullptr); }};
  return &host;
}

uint64_t host_allocations() { return allocations.load(std::memory_order_relaxed); }

}  // namespace switchyard::check
