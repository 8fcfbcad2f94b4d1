// SPDX-License-Identifier: Apache-2.0
// Copies between the host and the device, in the order of the steps.
//
// They go through the staging memory of the device. If the device's memory is the host's, large copies are made by the
// processor. The device is locked for moments only, never while many bytes are copied.
#include <algorithm>
#include <cstring>

#include "staging.h"
#include "switchyard/sdk/error.hpp"

namespace gpu {
namespace {

constexpr uint64_t kPiece = StagingRing::kLarge;  // of a large copy

swy_status check_range(const swy_buffer& b, uint64_t offset, uint64_t bytes, swy_error* error) {
  if (offset <= b.bytes && bytes <= b.bytes - offset) return SWY_OK;
  return swy::fail(error, SWY_INVALID_ARGUMENT, SWY_REASON_NONE, "bytes %llu+%llu are outside a buffer of %llu",
                   static_cast<unsigned long long>(offset), static_cast<unsigned long long>(bytes),
                   static_cast<unsigned long long>(b.bytes));
}

swy_status check_writable(const swy_buffer& b, swy_error* error) {
  if (!b.imported) return SWY_OK;
  return swy::fail(error, SWY_INVALID_ARGUMENT, SWY_REASON_NONE, "imported memory is only read");
}

Range part_of(const swy_buffer& b, uint64_t offset, uint64_t bytes) {
  return {b.range.block, b.range.offset + offset, bytes};
}

// Enqueues a staging; `now`: and submits it.
swy_status send(swy_device& d, Staging& s, bool now, swy_error* error) {
  const std::lock_guard lock(d.mutex);
  SWY_VK_TRY(put(d, s, error));
  return now ? flush(d, error) : SWY_OK;
}

// At most kPiece bytes. Once the bytes are in staging memory the copy counts as done: everything later on the queue
// sees it.
swy_status write_piece(swy_device& d, const Range& to, const void* from, bool now, swy_error* error) {
  Held s;
  SWY_VK_TRY(take(d, to.bytes, s, error));
  std::memcpy(s->mapped(), from, to.bytes);
  const VkBufferCopy region{s->offset, to.offset, to.bytes};
  d.vk.CmdCopyBuffer(s->commands, s->block->buffer, to.block->buffer, 1, &region);
  return send(d, *s, now, error);
}

// The same from the device; not yet enqueued.
swy_status read_piece(swy_device& d, const Range& from, Held& out, swy_error* error) {
  SWY_VK_TRY(take(d, from.bytes, out, error));
  const VkBufferCopy region{from.offset, out->offset, from.bytes};
  d.vk.CmdCopyBuffer(out->commands, from.block->buffer, out->block->buffer, 1, &region);
  return SWY_OK;
}

swy_status write_all(swy_device& d, const swy_buffer& to, uint64_t offset, const char* from, uint64_t bytes,
                     swy_error* error) {
  if (to.mapped() != nullptr && (to.readback || bytes > kPiece)) {
    SWY_VK_TRY(settle(d, error));
    std::memcpy(to.mapped() + offset, from, bytes);
    return SWY_OK;
  }
  for (uint64_t at = 0; at < bytes; at += kPiece) {
    const Range piece = part_of(to, offset + at, std::min(kPiece, bytes - at));
    SWY_VK_TRY(write_piece(d, piece, from + at, bytes > kPiece, error));
  }
  return SWY_OK;
}

// Several pieces are in transfer at a time.
swy_status read_all(swy_device& d, char* to, const swy_buffer& from, uint64_t offset, uint64_t bytes,
                    swy_error* error) {
  if (from.mapped() != nullptr) {
    SWY_VK_TRY(settle(d, error));
    std::memcpy(to, from.mapped() + offset, bytes);
    return SWY_OK;
  }
  constexpr uint64_t kAhead = 4;
  for (uint64_t begin = 0; begin < bytes; begin += kAhead * kPiece) {
    Held parts[kAhead];
    const auto size_of = [&](uint64_t i) { return std::min(kPiece, bytes - begin - i * kPiece); };
    for (uint64_t i = 0; i < kAhead && begin + i * kPiece < bytes; ++i) {
      SWY_VK_TRY(read_piece(d, part_of(from, offset + begin + i * kPiece, size_of(i)), parts[i], error));
      SWY_VK_TRY(send(d, *parts[i], true, error));
    }
    for (uint64_t i = 0; i < kAhead && parts[i]; ++i) {
      SWY_VK_TRY(wait_reached(d, parts[i]->done, UINT64_MAX, error));
      std::memcpy(to + begin + i * kPiece, parts[i]->mapped(), size_of(i));
    }
  }
  return SWY_OK;
}

// At most kPiece bytes to `to`; they have arrived when `timeline` says so.
swy_status read_later(swy_device& d, void* to, const Range& from, const swy_timeline* timeline, swy_error* error) {
  Held s;
  SWY_VK_TRY(read_piece(d, from, s, error));
  const std::lock_guard lock(d.mutex);
  SWY_VK_TRY(put(d, *s, error));
  SWY_VK_TRY(flush(d, error));  // first: a copy that failed is not waited for, and `to` may be gone
  s->to = to;
  s->bytes = from.bytes;
  s->timeline = timeline;
  ++d.staging.arrivals;
  return SWY_OK;
}

// Zeros whole words; returns before they are written.
swy_status clear(swy_device& d, const Range& range, swy_error* error) {
  Held s;
  SWY_VK_TRY(take(d, 0, s, error));
  d.vk.CmdFillBuffer(s->commands, range.block->buffer, range.offset, range.bytes, 0);
  return send(d, *s, false, error);
}

swy_status signal_all(swy_device& d, const swy_submit* submit, swy_error* error) {
  uint64_t done = 0;
  {
    const std::lock_guard lock(d.mutex);
    done = progress_of_all(d);
  }
  return signal_at(submit, done, error);
}

}  // namespace

swy_status write(swy_device* device, swy_buffer* to, uint64_t offset, const void* from, uint64_t bytes,
                 const swy_submit* submit, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    SWY_VK_TRY(check_range(*to, offset, bytes, error));
    SWY_VK_TRY(check_writable(*to, error));
    SWY_VK_TRY(await_points(*device, submit, error));
    if (bytes != 0) SWY_VK_TRY(write_all(*device, *to, offset, static_cast<const char*>(from), bytes, error));
    return signal_all(*device, submit, error);
  });
}

swy_status read(swy_device* device, void* to, swy_buffer* from, uint64_t offset, uint64_t bytes,
                const swy_submit* submit, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    SWY_VK_TRY(check_range(*from, offset, bytes, error));
    SWY_VK_TRY(await_points(*device, submit, error));
    if (submit != nullptr && submit->signal_count != 0 && bytes != 0 && bytes <= kPiece) {
      SWY_VK_TRY(read_later(*device, to, part_of(*from, offset, bytes), submit->signals[0].timeline, error));
    } else if (bytes != 0) {
      SWY_VK_TRY(read_all(*device, static_cast<char*>(to), *from, offset, bytes, error));
    } else if (submit == nullptr) {
      SWY_VK_TRY(settle(*device, error));
    }
    return signal_all(*device, submit, error);
  });
}

swy_status fill_zero(swy_device* device, swy_buffer* buffer, uint64_t offset, uint64_t bytes, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    SWY_VK_TRY(check_range(*buffer, offset, bytes, error));
    SWY_VK_TRY(check_writable(*buffer, error));
    if (bytes == 0) return SWY_OK;
    if (buffer->readback) {
      SWY_VK_TRY(settle(*device, error));
      std::memset(buffer->mapped() + offset, 0, bytes);
      return SWY_OK;
    }
    // Whole words by the device; the bytes at both ends by a write.
    constexpr char kZeros[8] = {};
    const uint64_t begin = (offset + 3) / 4 * 4, end = (offset + bytes) / 4 * 4;
    if (begin >= end) return write_piece(*device, part_of(*buffer, offset, bytes), kZeros, false, error);
    if (begin != offset) {
      SWY_VK_TRY(write_piece(*device, part_of(*buffer, offset, begin - offset), kZeros, false, error));
    }
    if (end != offset + bytes) {
      SWY_VK_TRY(write_piece(*device, part_of(*buffer, end, offset + bytes - end), kZeros, false, error));
    }
    return clear(*device, part_of(*buffer, begin, end - begin), error);
  });
}

swy_status clear_now(swy_device& d, const Range& range, swy_error* error) {
  SWY_VK_TRY(clear(d, range, error));
  return settle(d, error);
}

swy_status write_now(swy_device& d, const Range& range, const void* from, swy_error* error) {
  return write_piece(d, range, from, false, error);
}

}  // namespace gpu
