#include "letters.h"

#include <cstring>

#include "device.h"
#include "device_code.cuh"
#include "switchyard/sdk/error.hpp"

namespace gpu {
namespace {

constexpr uint32_t kOpenThreads = kLetterBytes / 16;

// The read comes first. Nothing of a letter may come from a cache: its place is used again.
__global__ void __launch_bounds__(kOpenThreads)
    open_letter(Letter* letters, uint64_t count, uint64_t* turn, volatile uint64_t* opened) {
  const uint64_t n = __ldcg(turn);
  Letter& l = letters[n % count];
  const uint32_t i = threadIdx.x;
  const uint4 mine = __ldcv(reinterpret_cast<const uint4*>(l.payload) + i);
  const volatile Letter& head = l;
  char* to = static_cast<char*>(head.to);
  const auto* from = static_cast<const uint32_t*>(head.from);
  const uint32_t bytes = head.bytes, reply_bytes = head.reply_bytes;
  uint64_t* timeline = head.timeline;
  const uint64_t value = head.value;
  if (i < reply_bytes / 4) reinterpret_cast<volatile uint32_t*>(l.reply)[i] = __ldcg(from + i);
  __threadfence_system();
  __syncthreads();
  if (16 * i + 16 <= bytes) {
    reinterpret_cast<uint4*>(to)[i] = mine;
  } else if (16 * i < bytes) {
    const uint32_t words[4] = {mine.x, mine.y, mine.z, mine.w};
#pragma unroll
    for (uint32_t b = 0; b < 16; ++b) {
      if (16 * i + b < bytes) to[16 * i + b] = static_cast<char>(words[b / 4] >> (8 * (b % 4)));
    }
  }
  if (i != 0) return;
  if (reply_bytes != 0) *static_cast<volatile uint64_t*>(timeline) = value;
  *turn = n + 1;
  *opened = n + 1;
}

bool aligned(const void* p, uint64_t to) { return reinterpret_cast<uint64_t>(p) % to == 0; }

}  // namespace

swy_status Letters::open(swy_error* error) {
  void *letters = nullptr, *opened = nullptr, *turn = nullptr;
  cudaError_t e = cudaHostAlloc(&letters, kCount * sizeof(Letter), cudaHostAllocMapped);
  letters_ = static_cast<Letter*>(letters);
  if (e == cudaSuccess) e = cudaHostAlloc(&opened, 64, cudaHostAllocMapped);
  opened_ = static_cast<uint64_t*>(opened);
  if (e == cudaSuccess) e = cudaMalloc(&turn, sizeof(uint64_t));
  turn_ = static_cast<uint64_t*>(turn);
  if (e == cudaSuccess) e = cudaMemset(turn_, 0, sizeof(uint64_t));
  if (e == cudaSuccess) {
    *opened_ = 0;
    e = cudaFuncSetAttribute(open_letter, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared);
  }
  if (e == cudaSuccess) e = cudaDeviceSynchronize();
  return check(e, "making room for letters", error);
}

void Letters::close() {
  cudaFreeHost(letters_);
  cudaFreeHost(const_cast<uint64_t*>(opened_));
  cudaFree(turn_);
}

// Makes the next letter ready, once the one that had its place has been opened.
swy_status Letters::clear(swy_device& d, swy_error* error) {
  if (clear_) return SWY_OK;
  for (uint32_t turn = 1; sent_ >= kCount && *opened_ + kCount <= sent_; ++turn) {
    if (turn % 65536 != 0) continue;
    const cudaError_t e = cudaStreamQuery(d.stream);
    if (e != cudaSuccess && e != cudaErrorNotReady) return check(e, "running a step", error);
    cudaGetLastError();
  }
  Letter& l = next();
  for (auto it = d.arrivals.begin(); it != d.arrivals.end();) {
    if (it->at != l.reply) {
      ++it;
      continue;
    }
    std::memcpy(it->to, it->at, it->bytes);
    it = d.arrivals.erase(it);
  }
  l.bytes = l.reply_bytes = 0;
  awaited_ = nullptr;
  clear_ = true;
  return SWY_OK;
}

bool Letters::takes_write(swy_device& d, void* to, const void* from, uint64_t bytes, swy_status* status,
                          swy_error* error) {
  if (clear_ && next().bytes != 0) {
    *status = send(d, error);
    if (*status != SWY_OK) return true;
  }
  if (bytes > kLetterBytes || !aligned(to, 16)) {
    *status = send(d, error);
    return *status != SWY_OK;
  }
  *status = clear(d, error);
  if (*status != SWY_OK) return true;
  Letter& l = next();
  std::memcpy(l.payload, from, bytes);
  l.to = to;
  l.bytes = static_cast<uint32_t>(bytes);
  return true;
}

bool Letters::takes_read(swy_device& d, void* to, const void* from, uint64_t bytes, const swy_submit* submit,
                         swy_status* status, swy_error* error) {
  if (clear_ && (next().bytes != 0 || next().reply_bytes != 0)) {
    *status = send(d, error);
    if (*status != SWY_OK) return true;
  }
  if (submit == nullptr || submit->signal_count != 1 || bytes == 0 || bytes > kReplyBytes || bytes % 4 != 0 ||
      !aligned(from, 4)) {
    *status = send(d, error);
    return *status != SWY_OK;
  }
  *status = clear(d, error);
  if (*status != SWY_OK) return true;
  Letter& l = next();
  const swy_timeline_point& point = submit->signals[0];
  l.from = from;
  l.reply_bytes = static_cast<uint32_t>(bytes);
  l.timeline = reinterpret_cast<uint64_t*>(point.timeline->value);
  l.value = point.value;
  point.timeline->signalled = point.value;
  awaited_ = point.timeline;
  d.arrivals.push_back({point.timeline, point.value, to, nullptr, l.reply, bytes});
  return true;
}

swy_status Letters::send(swy_device& d, swy_error* error) {
  if (!clear_ || (next().bytes == 0 && next().reply_bytes == 0)) return SWY_OK;
  if (const swy_status s = record(d.stream, error); s != SWY_OK) return s;
  clear_ = false;
  ++sent_;
  return SWY_OK;
}

swy_status Letters::send_for(swy_device& d, const swy_timeline* timeline, uint64_t value, swy_error* error) {
  if (!clear_ || awaited_ != timeline || next().value > value) return SWY_OK;
  return send(d, error);
}

swy_status Letters::record(cudaStream_t stream, swy_error* error) const {
  open_letter<<<1, kOpenThreads, 0, stream>>>(letters_, kCount, turn_, opened_);
  return check(cudaGetLastError(), "opening a letter", error);
}

swy_status Letters::take(swy_device& d, swy_error* error) {
  if (const swy_status s = clear(d, error); s != SWY_OK) return s;
  clear_ = false;
  ++sent_;
  return SWY_OK;
}

}  // namespace gpu
