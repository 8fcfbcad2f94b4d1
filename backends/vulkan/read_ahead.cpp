// Weights into the device's cache while launches run that leave most of it idle (read_ahead.comp): the delta rule and
// the attention of one row, the router.
//
// A launch behind a barrier begins with loads that take a microsecond from memory, and a third of that from the cache.
// Which weights of dense layers come next does not depend on the step, so that memory need not rest where nothing else
// reads it.
#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels.h"
#include "profile.h"

namespace gpu {
namespace {

#include "read_ahead.comp.h"
constexpr Shader kReadAheadShader = SWY_SHADER(read_ahead_comp);

constexpr uint32_t kMostSpans = 8;                   // of one launch: read_ahead.comp
constexpr uint64_t kMostBytes = uint64_t{16} << 20;  // beside one launch, and of one stream
constexpr size_t kMostPhases = 4;                    // between reading and use, or it may be gone again

// Launches from one barrier to the next.
struct Phase {
  size_t end = 0;  // behind its last launch
  bool roomy = false;
  Span own;  // of the launch that reads ahead by itself, if there is one
  std::vector<Span> ahead;
  uint64_t bytes = 0;
};

std::vector<Phase> phases_of(const std::vector<Dispatch>& all) {
  std::vector<Phase> phases;
  for (size_t i = 0; i < all.size(); ++i) {
    if (phases.empty() || all[i].waits) phases.emplace_back();
    phases.back().end = i + 1;
    phases.back().roomy |= all[i].roomy;
    if (all[i].ahead.bytes != 0) phases.back().own = all[i].ahead;
  }
  return phases;
}

// The last phase before `nth` that has room for so many bytes.
Phase* host_of(std::vector<Phase>& phases, size_t nth, uint64_t bytes) {
  for (size_t back = 1; back <= std::min(nth, kMostPhases); ++back) {
    Phase& p = phases[nth - back];
    const size_t most = p.own.bytes != 0 ? std::size(ReadAhead{}.data) : kMostSpans;
    if (p.roomy && p.bytes + bytes <= kMostBytes && p.ahead.size() < most) return &p;
  }
  return nullptr;
}

void assign(std::vector<Phase>& phases, const std::vector<Dispatch>& all) {
  for (size_t nth = 0, i = 0; nth < phases.size(); ++nth) {
    for (; i < phases[nth].end; ++i) {
      for (uint32_t s = 0; s < all[i].stream_count; ++s) {
        Phase* host = host_of(phases, nth, all[i].streams[s].bytes);
        if (host == nullptr) continue;
        host->ahead.push_back(all[i].streams[s]);
        host->bytes += all[i].streams[s].bytes;
      }
    }
  }
}

// For a launch that reads by itself.
swy_status tell(swy_list& list, const Phase& phase, swy_error* error) {
  ReadAhead told;
  for (size_t i = 0; i < phase.ahead.size(); ++i) {
    told.data[i] = phase.ahead[i].address;
    told.sectors[i] = static_cast<uint32_t>(phase.ahead[i].bytes / 32);
  }
  const Block* block = list.constants.get();
  return write_now(*list.device, {list.constants.get(), phase.own.address - block->address, sizeof told}, &told, error);
}

// A launch beside others.
swy_status dispatch_of(swy_list& list, const Phase& phase, const char* kernel, Dispatch& out, swy_error* error) {
  struct {
    uint64_t sink;
    uint64_t data[kMostSpans];
    uint32_t sectors[kMostSpans];
    uint32_t count, unused;
  } push{};
  static_assert(sizeof push <= kPushBytes);
  Span sink;
  SWY_VK_TRY(take_counters(list, 1, sink, error));
  push.sink = sink.address;
  for (const Span& s : phase.ahead) {
    push.data[push.count] = s.address;
    push.sectors[push.count++] = static_cast<uint32_t>(s.bytes / 32);
  }
  const uint32_t groups = static_cast<uint32_t>(phase.bytes / (32 * kThreads * 8)) + 1;
  out.pipeline = list.device->pipelines->get(kReadAheadShader, {});
  out.push_bytes = sizeof push;
  std::memcpy(out.push, &push, sizeof push);
  out.x = at_most(groups, std::max(list.device->features.processors, 8u));
  out.kernel = span_name(*list.device, kernel, kReadAheadShader.name, false);
  return SWY_OK;
}

}  // namespace

swy_status read_ahead(swy_list& list, swy_error* error) {
  std::vector<Phase> phases = phases_of(list.dispatches);
  assign(phases, list.dispatches);
  std::vector<Dispatch> all;
  all.reserve(list.dispatches.size() + phases.size());
  auto from = list.dispatches.begin();
  for (const Phase& phase : phases) {
    const auto to = list.dispatches.begin() + static_cast<std::ptrdiff_t>(phase.end);
    all.insert(all.end(), from, to);
    from = to;
    if (phase.ahead.empty()) continue;
    if (phase.own.bytes != 0) {
      SWY_VK_TRY(tell(list, phase, error));
      continue;
    }
    Dispatch d;
    SWY_VK_TRY(dispatch_of(list, phase, all.back().kernel, d, error));
    all.push_back(d);
  }
  list.dispatches = std::move(all);
  return SWY_OK;
}

}  // namespace gpu
