// SPDX-License-Identifier: Apache-2.0
// Buffers and copies.
//
// The host's memory is pageable, so every copy goes through page-locked staging memory: small copies in the order of
// the steps, large ones (weights) on streams of their own, two pieces at a time per calling thread. Staging memory of
// small copies grows as needed, which takes longer than copying; so where the caller waits anyway, copies of some
// hundred KiB are large ones.
#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

#include "device.h"
#include "reply.h"
#include "switchyard/sdk/error.hpp"

namespace gpu {
namespace {

constexpr uint64_t kPiece = uint64_t{4} << 20;        // of a large copy; of a small one that nothing waits for, at most
constexpr uint64_t kMostSmall = uint64_t{256} << 10;  // of a small copy that the caller waits for
constexpr size_t kSmallSlots = 32;                    // small copies under way
// Bytes of a slot at first: eight rows of 2,048 floats, as a step with guesses reads. Growing waits for the device.
constexpr uint64_t kLeastSlot = uint64_t{64} << 10;

uint64_t most_small(const swy_submit* submit) { return submit == nullptr ? kMostSmall : kPiece; }

swy_status check_range(const swy_buffer& b, uint64_t offset, uint64_t bytes, swy_error* error) {
  if (offset <= b.bytes && bytes <= b.bytes - offset) return SWY_OK;
  return swy::fail(error, SWY_INVALID_ARGUMENT, SWY_REASON_NONE, "bytes %llu+%llu are outside a buffer of %llu",
                   static_cast<unsigned long long>(offset), static_cast<unsigned long long>(bytes),
                   static_cast<unsigned long long>(b.bytes));
}

swy_status grow(Staging& s, uint64_t bytes, swy_error* error) {
  if (s.done == nullptr) {
    if (const swy_status e =
            check(cudaEventCreateWithFlags(&s.done, cudaEventDisableTiming), "creating an event", error);
        e != SWY_OK) {
      return e;
    }
  }
  if (s.bytes >= bytes) return SWY_OK;
  cudaFreeHost(s.memory);
  s.memory = nullptr;
  s.bytes = 0;
  const uint64_t size = std::bit_ceil(std::max(bytes, kLeastSlot));
  if (const cudaError_t e = cudaHostAlloc(&s.memory, size, cudaHostAllocDefault); e != cudaSuccess) {
    cudaGetLastError();
    return swy::fail(error, SWY_OUT_OF_HOST_MEMORY, SWY_REASON_NONE, "%llu bytes of page-locked memory: %s",
                     static_cast<unsigned long long>(size), cudaGetErrorString(e));
  }
  s.bytes = size;
  return SWY_OK;
}

// Delivers the copy that used this staging memory, so that it can be used again. The caller holds the device's mutex.
void deliver(swy_device& d, const Staging* staging) {
  for (auto it = d.arrivals.begin(); it != d.arrivals.end();) {
    if (it->from != staging) {
      ++it;
      continue;
    }
    std::memcpy(it->to, it->from->memory, it->bytes);
    it = d.arrivals.erase(it);
  }
}

// The next staging memory for a small copy, once its previous copy is done. The caller holds the device's mutex.
swy_status small_staging(swy_device& d, uint64_t bytes, Staging** out, swy_error* error) {
  if (d.small.size() < kSmallSlots) {
    d.small.push_back(std::make_unique<Staging>());
    *out = d.small.back().get();
    return grow(**out, bytes, error);
  }
  Staging& s = *d.small[d.next_small++ % kSmallSlots];
  // A reply has no event, which between two kernels would keep the second from beginning early; so the whole stream is
  // waited for.
  const auto awaited = [&](const Arrival& a) {
    const uint64_t reached = a.timeline->value->load(std::memory_order_acquire);
    return a.from == &s && (reached < a.value || reached == SWY_TIMELINE_FAILED);
  };
  const bool replies = std::any_of(d.arrivals.begin(), d.arrivals.end(), awaited);
  const cudaError_t done = replies ? cudaStreamSynchronize(d.stream) : cudaEventSynchronize(s.done);
  if (const swy_status e = check(done, "waiting for a copy", error); e != SWY_OK) return e;
  deliver(d, &s);
  *out = &s;
  return grow(s, bytes, error);
}

// Page-locked memory and a stream for the pieces of one large copy; given back at the end.
class Lane {
 public:
  explicit Lane(swy_device& d) : d_(d) {}
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane() {
    if (s_ == nullptr) return;
    cudaStreamSynchronize(s_->stream);
    const std::lock_guard lock(d_.mutex);
    d_.free_large.push_back(s_);
  }
  swy_status take(swy_error* error) {
    {
      const std::lock_guard lock(d_.mutex);
      if (d_.free_large.empty()) {
        d_.free_large.reserve(d_.large.size() + 1);  // giving it back allocates nothing, and so cannot fail
        d_.large.push_back(std::make_unique<Staging>());
        s_ = d_.large.back().get();
      } else {
        s_ = d_.free_large.back();
        d_.free_large.pop_back();
      }
    }
    if (s_->stream == nullptr) {
      const cudaError_t e = cudaStreamCreateWithFlags(&s_->stream, cudaStreamNonBlocking);
      if (e != cudaSuccess) return check(e, "creating a stream", error);
    }
    return grow(*s_, kPiece, error);
  }
  Staging& operator*() { return *s_; }

 private:
  swy_device& d_;
  Staging* s_ = nullptr;
};

// Copies, and returns when the copy is done.
swy_status large_write(swy_device& d, char* to, const char* from, uint64_t bytes, swy_error* error) {
  if (const swy_status s = check(cudaStreamSynchronize(d.stream), "waiting for a step", error); s != SWY_OK) return s;
  Lane lanes[2] = {Lane(d), Lane(d)};
  for (Lane& l : lanes) {
    if (const swy_status s = l.take(error); s != SWY_OK) return s;
  }
  for (uint64_t at = 0, i = 0; at < bytes; at += kPiece, ++i) {
    Staging& s = *lanes[i % 2];
    const uint64_t n = std::min(kPiece, bytes - at);
    cudaError_t e = cudaStreamSynchronize(s.stream);
    if (e == cudaSuccess) {
      std::memcpy(s.memory, from + at, n);
      e = cudaMemcpyAsync(to + at, s.memory, n, cudaMemcpyHostToDevice, s.stream);
    }
    if (e != cudaSuccess) return check(e, "copying to the device", error);
  }
  for (Lane& l : lanes) {
    if (const swy_status s = check(cudaStreamSynchronize((*l).stream), "copying to the device", error); s != SWY_OK) {
      return s;
    }
  }
  return SWY_OK;
}

// waits: for the copy.
swy_status small_write(swy_device& d, char* to, const void* from, uint64_t bytes, bool waits, swy_error* error) {
  if (!waits && can_bring(to, bytes)) return bring(d, to, from, bytes, error);
  const std::lock_guard lock(d.mutex);
  Staging* s = nullptr;
  if (const swy_status e = small_staging(d, bytes, &s, error); e != SWY_OK) return e;
  std::memcpy(s->memory, from, bytes);
  cudaError_t e = cudaMemcpyAsync(to, s->memory, bytes, cudaMemcpyHostToDevice, d.stream);
  if (e == cudaSuccess) e = cudaEventRecord(s->done, d.stream);
  if (e == cudaSuccess && waits) e = cudaEventSynchronize(s->done);
  return check(e, "copying to the device", error);
}

// Reads in pieces, waiting for each.
swy_status large_read(swy_device& d, char* to, const char* from, uint64_t bytes, swy_error* error) {
  Lane lane(d);
  if (const swy_status s = lane.take(error); s != SWY_OK) return s;
  for (uint64_t at = 0; at < bytes; at += kPiece) {
    const uint64_t n = std::min(kPiece, bytes - at);
    cudaError_t e = cudaMemcpyAsync((*lane).memory, from + at, n, cudaMemcpyDeviceToHost, d.stream);
    if (e == cudaSuccess) e = cudaStreamSynchronize(d.stream);
    if (e != cudaSuccess) return check(e, "copying from the device", error);
    std::memcpy(to + at, (*lane).memory, n);
  }
  return SWY_OK;
}

}  // namespace

// Without a pool, each buffer above 1 MiB has whole pages of 2 MiB: for a model of 40 layers 200 MiB stay empty. In the
// driver's pool buffers share pages.
cudaError_t take_memory(const swy_device& d, uint64_t bytes, void** out) {
  return d.pooled ? cudaMallocAsync(out, bytes, d.stream) : cudaMalloc(out, bytes);
}
void give_memory_back(const swy_device& d, void* memory) {
  if (!d.pooled) {
    cudaFree(memory);
    return;
  }
  cudaFreeAsync(memory, d.stream);
  cudaStreamSynchronize(d.stream);  // then the pool returns memory it does not need, as by default
}

swy_status buffer_alloc(swy_device* device, swy_memory_type type, uint64_t bytes, swy_buffer** out, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    if (const swy_status s = use(*device, error); s != SWY_OK) return s;
    auto buffer = std::make_unique<swy_buffer>();
    buffer->bytes = bytes;
    buffer->on_host = type == SWY_MEMORY_READBACK;
    const uint64_t size = std::max<uint64_t>(bytes, 256);
    void* memory = nullptr;
    cudaError_t e =
        buffer->on_host ? cudaHostAlloc(&memory, size, cudaHostAllocDefault) : take_memory(*device, size, &memory);
    if (e == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      size_t free = 0, total = 0;
      cudaMemGetInfo(&free, &total);
      return swy::fail(
          error, SWY_OUT_OF_DEVICE_MEMORY, SWY_REASON_NONE,
          "%.2f GiB are needed, %.2f of %.2f GiB are free; a smaller encoding of the weights, a shorter --ctx "
          "or fewer sessions need less",
          static_cast<double>(size) / (1u << 30), static_cast<double>(free) / (1u << 30),
          static_cast<double>(total) / (1u << 30));
    }
    if (e != cudaSuccess) return check(e, "allocating", error);
    buffer->data = static_cast<char*>(memory);
    if (buffer->on_host) {
      std::memset(memory, 0, size);
    } else {
      e = cudaMemsetAsync(memory, 0, size, device->stream);
      if (e == cudaSuccess) e = cudaStreamSynchronize(device->stream);
    }
    if (e != cudaSuccess) {
      buffer_free(device, buffer.release());
      return check(e, "clearing new memory", error);
    }
    *out = buffer.release();
    return SWY_OK;
  });
}

void buffer_free(swy_device* device, swy_buffer* buffer) {
  cudaSetDevice(device->ordinal);
  if (buffer->on_host) {
    cudaFreeHost(buffer->data);
  } else {
    device->derived.freed(buffer->data, buffer->bytes);
    give_memory_back(*device, buffer->data);
  }
  cudaGetLastError();
  delete buffer;
}

void* buffer_map(swy_device*, swy_buffer* buffer) { return buffer->on_host ? buffer->data : nullptr; }

swy_status write(swy_device* device, swy_buffer* to, uint64_t offset, const void* from, uint64_t bytes,
                 const swy_submit* submit, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    if (const swy_status s = check_range(*to, offset, bytes, error); s != SWY_OK) return s;
    if (const swy_status s = await_points(*device, submit, error); s != SWY_OK) return s;
    if (const swy_status s = use(*device, error); s != SWY_OK) return s;
    if (bytes == 0) return signal(*device, submit, error);
    char* place = to->data + offset;
    const swy_status s = bytes <= most_small(submit)
                             ? small_write(*device, place, from, bytes, submit == nullptr, error)
                             : large_write(*device, place, static_cast<const char*>(from), bytes, error);
    // Not before the copy: a list that is recorded meanwhile may have read it already. Nor after the signal: who waits
    // for it may start a list.
    device->derived.written(place, bytes);
    return s == SWY_OK ? signal(*device, submit, error) : s;
  });
}

swy_status read(swy_device* device, void* to, swy_buffer* from, uint64_t offset, uint64_t bytes,
                const swy_submit* submit, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    if (const swy_status s = check_range(*from, offset, bytes, error); s != SWY_OK) return s;
    if (const swy_status s = await_points(*device, submit, error); s != SWY_OK) return s;
    if (const swy_status s = use(*device, error); s != SWY_OK) return s;
    if (bytes > most_small(submit)) {
      if (const swy_status s = large_read(*device, static_cast<char*>(to), from->data + offset, bytes, error);
          s != SWY_OK) {
        return s;
      }
      return signal(*device, submit, error);
    }
    const std::lock_guard lock(device->mutex);
    Staging* s = nullptr;
    if (const swy_status e = small_staging(*device, std::max<uint64_t>(bytes, 1), &s, error); e != SWY_OK) return e;
    const char* place = from->data + offset;
    if (submit != nullptr && submit->signal_count == 1 && !from->on_host && can_reply(place, bytes)) {
      const swy_timeline_point& point = submit->signals[0];
      if (const swy_status r = reply(*device, s->memory, place, bytes, *point.timeline, point.value, error);
          r != SWY_OK) {
        return r;
      }
      device->arrivals.push_back({point.timeline, point.value, to, s, bytes});
      return SWY_OK;
    }
    cudaError_t e = cudaMemcpyAsync(s->memory, place, bytes, cudaMemcpyDefault, device->stream);
    if (e == cudaSuccess) e = cudaEventRecord(s->done, device->stream);
    if (e == cudaSuccess && submit == nullptr) e = cudaEventSynchronize(s->done);
    if (e != cudaSuccess) return check(e, "copying from the device", error);
    if (submit == nullptr || submit->signal_count == 0) {
      if (submit != nullptr) e = cudaEventSynchronize(s->done);
      if (e != cudaSuccess) return check(e, "copying from the device", error);
      std::memcpy(to, s->memory, bytes);
      return SWY_OK;
    }
    device->arrivals.push_back({submit->signals[0].timeline, submit->signals[0].value, to, s, bytes});
    return signal(*device, submit, error);
  });
}

swy_status fill_zero(swy_device* device, swy_buffer* buffer, uint64_t offset, uint64_t bytes, swy_error* error) {
  if (const swy_status s = check_range(*buffer, offset, bytes, error); s != SWY_OK) return s;
  if (const swy_status s = use(*device, error); s != SWY_OK) return s;
  const cudaError_t e = cudaMemsetAsync(buffer->data + offset, 0, bytes, device->stream);
  device->derived.written(buffer->data + offset, bytes);
  return check(e, "clearing memory", error);
}

}  // namespace gpu
