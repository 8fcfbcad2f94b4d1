// SPDX-License-Identifier: Apache-2.0
#include "bench/probes.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "bench/clock.h"
#include "bench/machine.h"

namespace switchyard::bench {
namespace {

constexpr uint64_t kPage = uint64_t{2} << 20;  // huge pages: reads must not wait for translations
constexpr uint64_t kLeastRead = uint64_t{1} << 30;
constexpr int kPasses = 4;
constexpr double kReadSeconds = 0.3;  // after which no other pass begins
constexpr double kBurstSeconds = 0.08;

class Team {
 public:
  explicit Team(const swy_executor& executor) : executor_(executor) {}
  uint32_t width() const { return executor_.width(executor_.ctx); }

  // Seconds that `work(rank)` takes on the first `members`, all at the same time.
  double time(uint32_t members, const std::function<void(uint32_t)>& work) const {
    struct Job {
      uint32_t members;
      const std::function<void(uint32_t)>& work;
      double seconds;
    } job{members, work, 0};
    const auto member = [](void* arg, const swy_team* team) {
      Job& j = *static_cast<Job*>(arg);
      team->barrier(team);
      const double begin = now();
      if (team->rank < j.members) j.work(team->rank);
      team->barrier(team);
      if (team->rank == 0) j.seconds = now() - begin;
    };
    executor_.run(executor_.ctx, member, &job);
    return job.seconds;
  }

 private:
  const swy_executor& executor_;
};

// Anonymous memory in huge pages; empty if there is none.
class Buffer {
 public:
  explicit Buffer(uint64_t bytes) : bytes_(bytes) {
    data_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) {
      data_ = nullptr;
      bytes_ = 0;
    } else {
      ::madvise(data_, bytes, MADV_HUGEPAGE);
    }
  }
  ~Buffer() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  uint64_t bytes() const { return bytes_; }
  // The part of member `rank` of `members`, in whole huge pages.
  char* part(uint32_t rank, uint32_t members, uint64_t& bytes) const {
    const uint64_t pages = bytes_ / kPage, begin = pages * rank / members;
    bytes = (pages * (rank + 1) / members - begin) * kPage;
    return static_cast<char*>(data_) + begin * kPage;
  }

 private:
  void* data_ = nullptr;
  uint64_t bytes_ = 0;
};

// Bytes per second that the first `members` read together.
double read_rate(const Team& team, const Buffer& buffer, uint32_t members) {
  double best = 0;
  const double end = now() + kReadSeconds;
  for (int pass = 0; pass < kPasses && (pass == 0 || now() < end); ++pass) {
    const double seconds = team.time(members, [&](uint32_t rank) {
      uint64_t bytes = 0;
      const char* part = buffer.part(rank, members, bytes);
      bursts::read(part, bytes);
    });
    best = std::max(best, static_cast<double>(buffer.bytes()) / seconds);
  }
  return best;
}

void probe_memory(const Team& team, Probes& p) {
  const Machine machine = describe_machine();
  const uint64_t wanted = std::max(4 * machine.last_cache_bytes, kLeastRead);
  const uint64_t allowed = machine.memory_free_bytes == 0 ? kLeastRead : machine.memory_free_bytes / 4;
  const Buffer buffer(std::max(std::min(wanted, allowed) / kPage, uint64_t{1}) * kPage);
  if (buffer.bytes() == 0) return;
  p.read_bytes = buffer.bytes();
  team.time(p.threads, [&](uint32_t rank) {  // every member touches its own
    uint64_t bytes = 0;
    char* part = buffer.part(rank, p.threads, bytes);
    std::memset(part, 1, bytes);
  });
  p.read_gbs_one = read_rate(team, buffer, 1) / 1e9;
  p.read_gbs = read_rate(team, buffer, p.threads) / 1e9;
}

// 1e12 operations per second of the whole team.
double burst_rate(const Team& team, const Burst& burst) {
  if (burst.run == nullptr) return 0;
  double best = 0;
  for (int pass = 0; pass < 2; ++pass) {
    std::vector<double> rates(team.width());
    team.time(team.width(), [&](uint32_t rank) {
      const double begin = now();
      double done = 0, seconds = 0;
      while (seconds < kBurstSeconds) {
        burst.run();
        done += burst.operations;
        seconds = now() - begin;
      }
      rates[rank] = done / seconds;
    });
    double sum = 0;
    for (const double r : rates) sum += r;
    best = std::max(best, sum);
  }
  return best / 1e12;
}

Probes probe(const swy_executor& executor) {
  const Team team(executor);
  const double begin = now();
  Probes p;
  p.threads = team.width();
  probe_memory(team, p);
  p.fp32_tflops = burst_rate(team, bursts::fp32());
  p.vnni_tops = burst_rate(team, bursts::vnni());
  p.amx_int8_tops = burst_rate(team, bursts::amx_int8());
  p.amx_bf16_tflops = burst_rate(team, bursts::amx_bf16());
  p.seconds = now() - begin;
  return p;
}

}  // namespace

Probes::Ceiling Probes::matrix() const {
  Ceiling best{"fp32", fp32_tflops};
  for (const Ceiling& c : {Ceiling{"VNNI", vnni_tops}, {"AMX int8", amx_int8_tops}, {"AMX bf16", amx_bf16_tflops}}) {
    if (c.tops > best.tops) best = c;
  }
  return best;
}

const Probes& probe_machine(const swy_executor& team) {
  static const Probes probes = probe(team);
  return probes;
}

#ifdef SWITCHYARD_NO_X86_PROBES
namespace bursts {
Burst fp32() { return {}; }
Burst vnni() { return {}; }
Burst amx_int8() { return {}; }
Burst amx_bf16() { return {}; }
void read(const void* data, uint64_t bytes) {
  const auto* words = static_cast<const uint64_t*>(data);
  uint64_t sum = 0;
  for (uint64_t i = 0; i < bytes / 8; ++i) sum += words[i];
  static volatile uint64_t sink;
  sink = sum;
}
}  // namespace bursts
#endif

}  // namespace switchyard::bench
