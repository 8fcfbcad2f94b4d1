#include "bench/probes.h"

#include <sys/mman.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

namespace switchyard::bench {
namespace {

constexpr uint64_t kBytes = uint64_t{256} << 20;  // per thread: beyond its share of any cache
constexpr double kSeconds = 0.2;
constexpr int kPasses = 2;

// The sum over threads that run `loop` at the same time; the best of several passes.
double all_threads(uint32_t threads, const std::function<double(uint32_t)>& loop) {
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    std::vector<double> rates(threads);
    std::barrier start(static_cast<std::ptrdiff_t>(threads));
    std::vector<std::thread> team;
    for (uint32_t t = 0; t < threads; ++t) {
      team.emplace_back([&, t] {
        start.arrive_and_wait();
        rates[t] = loop(t);
      });
    }
    for (std::thread& t : team) t.join();
    double sum = 0;
    for (const double r : rates) sum += r;
    best = std::max(best, sum);
  }
  return best;
}

}  // namespace

double Probes::matrix_tops() const { return std::max({amx_int8_tops, amx_bf16_tflops, vnni_tops, fp32_tflops}); }

Probes probe_machine(uint32_t threads) {
  Probes p;
  p.threads = threads;
  std::vector<void*> buffers(threads, nullptr);
  for (void*& b : buffers) {
    b = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b == MAP_FAILED) b = nullptr;
    if (b != nullptr) ::madvise(b, kBytes, MADV_HUGEPAGE);
  }
  all_threads(threads, [&](uint32_t t) {  // every thread touches its own
    if (buffers[t] != nullptr) std::memset(buffers[t], 1, kBytes);
    return 0.0;
  });
  const auto read = [&](uint32_t t) { return buffers[t] == nullptr ? 0.0 : loops::read(buffers[t], kBytes, kSeconds); };
  p.read_gbs_one = all_threads(1, read) / 1e9;
  p.read_gbs = all_threads(threads, read) / 1e9;
  for (void* b : buffers) {
    if (b != nullptr) ::munmap(b, kBytes);
  }
  p.fp32_tflops = all_threads(threads, [](uint32_t) { return loops::fp32(kSeconds / 2); }) / 1e12;
  p.vnni_tops = all_threads(threads, [](uint32_t) { return loops::vnni(kSeconds / 2); }) / 1e12;
  p.amx_int8_tops = all_threads(threads, [](uint32_t) { return loops::amx_int8(kSeconds / 2); }) / 1e12;
  p.amx_bf16_tflops = all_threads(threads, [](uint32_t) { return loops::amx_bf16(kSeconds / 2); }) / 1e12;
  return p;
}

#ifdef SWITCHYARD_NO_X86_PROBES
namespace loops {
double read(const void* data, uint64_t bytes, double seconds) {
  const auto* words = static_cast<const volatile uint64_t*>(data);
  const auto begin = std::chrono::steady_clock::now();
  double elapsed = 0, total = 0;
  uint64_t sum = 0;
  while (elapsed < seconds) {
    for (uint64_t i = 0; i < bytes / 8; ++i) sum += words[i];
    total += static_cast<double>(bytes);
    elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  return total / elapsed;
}
double fp32(double) { return 0; }
double vnni(double) { return 0; }
double amx_int8(double) { return 0; }
double amx_bf16(double) { return 0; }
}  // namespace loops
#endif

}  // namespace switchyard::bench
