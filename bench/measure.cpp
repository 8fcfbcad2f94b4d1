#include "bench/measure.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>

namespace switchyard::bench {
namespace {

constexpr uint32_t kWarmTokens = 4;

double seconds_of(const std::function<Status()>& work, Status& status) {
  const uint64_t begin = Os::real().now_ns();
  status = work();
  return static_cast<double>(Os::real().now_ns() - begin) / 1e9;
}

void add_kernel(void* ctx, const char* name, uint64_t begin_ns, uint64_t end_ns) {
  KernelTime& k = (*static_cast<std::map<std::string, KernelTime>*>(ctx))[name];
  ++k.calls;
  k.seconds += static_cast<double>(end_ns - begin_ns) / 1e9;
}

// While it lives, kernels are counted.
class Tracing {
 public:
  Tracing(Host& host, std::map<std::string, KernelTime>& kernels) : host_(host) {
    host.set_trace(add_kernel, &kernels);
  }
  ~Tracing() { host_.set_trace(nullptr, nullptr); }
  Tracing(const Tracing&) = delete;
  Tracing& operator=(const Tracing&) = delete;

 private:
  Host& host_;
};

Status stopped() { return error(Code::cancelled, "the benchmark was stopped"); }

}  // namespace

double Samples::at(double share) const {
  if (seconds.empty()) return 0;
  std::vector<double> sorted = seconds;
  std::sort(sorted.begin(), sorted.end());
  return sorted[static_cast<size_t>(std::lround(share * static_cast<double>(sorted.size() - 1)))];
}

Result<Measurement> measure_prefill(Model& model, Host& host, std::span<const int32_t> prompt, uint32_t runs,
                                    const KeepGoing& keep_going) {
  SWY_LET(const auto session, model.session());
  Measurement m;
  Status status;
  const auto once = [&]() -> Status {
    session->reset();
    return session->feed(prompt).status();
  };
  SWY_TRY(once());
  for (uint32_t i = 0; i < runs; ++i) {
    if (!keep_going()) return stopped();
    m.samples.seconds.push_back(seconds_of(once, status));
    SWY_TRY(status);
  }
  const Tracing tracing(host, m.kernels);
  m.kernel_steps = 1;
  SWY_TRY(once());
  return m;
}

Result<Measurement> measure_decode(Model& model, Host& host, std::span<const int32_t> context, uint32_t tokens,
                                   const KeepGoing& keep_going) {
  SWY_LET(const auto session, model.session());
  Measurement m;
  Status status;
  int32_t id = 1;
  if (!context.empty()) SWY_TRY(session->feed(context).status());
  const auto once = [&]() -> Status {
    SWY_LET(const auto logits, session->feed({&id, 1}));
    id = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    return {};
  };
  for (uint32_t i = 0; i < kWarmTokens; ++i) SWY_TRY(once());
  for (uint32_t i = 0; i < tokens; ++i) {
    if (!keep_going()) return stopped();
    m.samples.seconds.push_back(seconds_of(once, status));
    SWY_TRY(status);
  }
  const Tracing tracing(host, m.kernels);
  for (m.kernel_steps = 0; m.kernel_steps < std::min<uint64_t>(tokens, 16); ++m.kernel_steps) SWY_TRY(once());
  return m;
}

uint64_t peak_memory_bytes() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace switchyard::bench
