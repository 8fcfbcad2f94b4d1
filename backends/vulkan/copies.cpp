// Copies between the host and the device, in the order of the steps.
//
// They go through a ring of staging blocks, each with a command buffer of its own. Where the device's memory is the
// host's, large ones are plain copies by the processor.
#include <algorithm>
#include <cstring>

#include "device.h"
#include "switchyard/sdk/error.hpp"

namespace gpu {
namespace {

constexpr uint64_t kPiece = uint64_t{2} << 20;  // of a large copy

swy_status check_range(const swy_buffer& b, uint64_t offset, uint64_t bytes, swy_error* error) {
  if (offset <= b.bytes && bytes <= b.bytes - offset) return SWY_OK;
  return swy::fail(error, SWY_INVALID_ARGUMENT, SWY_REASON_NONE, "bytes %llu+%llu are outside a buffer of %llu",
                   static_cast<unsigned long long>(offset), static_cast<unsigned long long>(bytes),
                   static_cast<unsigned long long>(b.bytes));
}

swy_status make_commands(swy_device& d, Staging& s, swy_error* error) {
  if (s.pool == VK_NULL_HANDLE) {
    const VkCommandPoolCreateInfo info{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, nullptr,
                                       VK_COMMAND_POOL_CREATE_TRANSIENT_BIT, d.features.queue_family};
    SWY_VK_TRY(check(d, d.vk.CreateCommandPool(d.handle, &info, nullptr, &s.pool), "making a command pool", error));
  }
  if (s.commands == VK_NULL_HANDLE) {
    const VkCommandBufferAllocateInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, nullptr, s.pool,
                                           VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
    SWY_VK_TRY(check(d, d.vk.AllocateCommandBuffers(d.handle, &info, &s.commands), "making a command buffer", error));
  }
  return SWY_OK;
}

// The next staging of the ring, once the copy that it carried is done, with its command buffer begun. The device is
// locked.
swy_status take(swy_device& d, uint64_t bytes, Staging** out, swy_error* error) {
  Staging& s = d.staging[d.next_staging];
  d.next_staging = (d.next_staging + 1) % d.staging.size();
  if (s.done > d.submitted) SWY_VK_TRY(flush(d, error));
  SWY_VK_TRY(wait_reached(d, s.done, UINT64_MAX, error));
  if (s.to != nullptr) {
    std::memcpy(s.to, s.block->mapped, s.bytes);
    s.to = nullptr;
    --d.arrivals;
  }
  if (s.block == nullptr || s.block->bytes < bytes) {
    s.block.reset();
    SWY_VK_TRY(make_block(d, Memory::kStaging, std::max<uint64_t>(bytes, 16384), s.block, error));
  }
  SWY_VK_TRY(make_commands(d, s, error));
  SWY_VK_TRY(check(d, d.vk.ResetCommandPool(d.handle, s.pool, 0), "beginning a copy", error));
  const VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, nullptr,
                                       VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT, nullptr};
  SWY_VK_TRY(check(d, d.vk.BeginCommandBuffer(s.commands, &begin), "beginning a copy", error));
  full_barrier(d.vk, s.commands);
  *out = &s;
  return SWY_OK;
}

swy_status put(swy_device& d, Staging& s, swy_error* error) {
  full_barrier(d.vk, s.commands);
  SWY_VK_TRY(check(d, d.vk.EndCommandBuffer(s.commands), "ending a copy", error));
  s.done = d.submitted + 1;
  return enqueue(d, s.commands, error);
}

// Locked. What was put into staging is as good as copied: everything later on the queue sees it.
swy_status write_range(swy_device& d, const Range& to, const void* from, swy_error* error) {
  Staging* s = nullptr;
  SWY_VK_TRY(take(d, to.bytes, &s, error));
  std::memcpy(s->block->mapped, from, to.bytes);
  const VkBufferCopy region{0, to.offset, to.bytes};
  d.vk.CmdCopyBuffer(s->commands, s->block->buffer, to.block->buffer, 1, &region);
  return put(d, *s, error);
}
swy_status write_piece(swy_device& d, const swy_buffer& to, uint64_t offset, const void* from, uint64_t bytes,
                       swy_error* error) {
  return write_range(d, {to.range.block, to.range.offset + offset, bytes}, from, error);
}

swy_status read_piece(swy_device& d, const swy_buffer& from, uint64_t offset, uint64_t bytes, Staging** out,
                      swy_error* error) {
  SWY_VK_TRY(take(d, bytes, out, error));
  const VkBufferCopy region{from.range.offset + offset, 0, bytes};
  d.vk.CmdCopyBuffer((*out)->commands, from.range.block->buffer, (*out)->block->buffer, 1, &region);
  return put(d, **out, error);
}

// Locked. Waits until nothing is under way.
swy_status settle(swy_device& d, swy_error* error) {
  SWY_VK_TRY(flush(d, error));
  return wait_reached(d, d.submitted, UINT64_MAX, error);
}

swy_status write_all(swy_device& d, const swy_buffer& to, uint64_t offset, const char* from, uint64_t bytes,
                     swy_error* error) {
  if (to.mapped() != nullptr && (to.readback || bytes > kPiece)) {
    SWY_VK_TRY(settle(d, error));
    std::memcpy(to.mapped() + offset, from, bytes);
    return SWY_OK;
  }
  for (uint64_t at = 0; at < bytes; at += kPiece) {
    SWY_VK_TRY(write_piece(d, to, offset + at, from + at, std::min(kPiece, bytes - at), error));
    if (bytes > kPiece) SWY_VK_TRY(flush(d, error));
  }
  return SWY_OK;
}

// Several pieces are on their way at a time.
swy_status read_all(swy_device& d, char* to, const swy_buffer& from, uint64_t offset, uint64_t bytes,
                    swy_error* error) {
  if (from.mapped() != nullptr) {
    SWY_VK_TRY(settle(d, error));
    std::memcpy(to, from.mapped() + offset, bytes);
    return SWY_OK;
  }
  constexpr uint64_t kAhead = 4;
  for (uint64_t begin = 0; begin < bytes; begin += kAhead * kPiece) {
    Staging* parts[kAhead] = {};
    for (uint64_t i = 0; i < kAhead && begin + i * kPiece < bytes; ++i) {
      const uint64_t at = begin + i * kPiece;
      SWY_VK_TRY(read_piece(d, from, offset + at, std::min(kPiece, bytes - at), &parts[i], error));
      SWY_VK_TRY(flush(d, error));
    }
    for (uint64_t i = 0; i < kAhead && parts[i] != nullptr; ++i) {
      const uint64_t at = begin + i * kPiece;
      SWY_VK_TRY(wait_reached(d, parts[i]->done, UINT64_MAX, error));
      std::memcpy(to + at, parts[i]->block->mapped, std::min(kPiece, bytes - at));
    }
  }
  return SWY_OK;
}

}  // namespace

swy_status write(swy_device* device, swy_buffer* to, uint64_t offset, const void* from, uint64_t bytes,
                 const swy_submit* submit, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    SWY_VK_TRY(check_range(*to, offset, bytes, error));
    uint64_t done = 0;
    {
      const std::lock_guard lock(device->mutex);
      if (bytes != 0) SWY_VK_TRY(write_all(*device, *to, offset, static_cast<const char*>(from), bytes, error));
      done = progress_of_all(*device);
    }
    return signal_at(submit, done, error);
  });
}

swy_status read(swy_device* device, void* to, swy_buffer* from, uint64_t offset, uint64_t bytes,
                const swy_submit* submit, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    SWY_VK_TRY(check_range(*from, offset, bytes, error));
    uint64_t done = 0;
    {
      const std::lock_guard lock(device->mutex);
      if (submit != nullptr && submit->signal_count != 0 && bytes != 0 && bytes <= kPiece) {
        Staging* s = nullptr;
        SWY_VK_TRY(read_piece(*device, *from, offset, bytes, &s, error));
        SWY_VK_TRY(flush(*device, error));  // first: nobody waits for a copy that failed, and `to` may be gone
        s->to = to;
        s->bytes = bytes;
        s->timeline = submit->signals[0].timeline;
        ++device->arrivals;
      } else if (bytes != 0) {
        SWY_VK_TRY(read_all(*device, static_cast<char*>(to), *from, offset, bytes, error));
      } else if (submit == nullptr) {
        SWY_VK_TRY(settle(*device, error));
      }
      done = progress_of_all(*device);
    }
    return signal_at(submit, done, error);
  });
}

swy_status fill_zero(swy_device* device, swy_buffer* buffer, uint64_t offset, uint64_t bytes, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    SWY_VK_TRY(check_range(*buffer, offset, bytes, error));
    if (bytes == 0) return SWY_OK;
    const std::lock_guard lock(device->mutex);
    if (buffer->readback) {
      SWY_VK_TRY(settle(*device, error));
      std::memset(buffer->mapped() + offset, 0, bytes);
      return SWY_OK;
    }
    // Whole words by the device; the bytes around them are written.
    constexpr char kZeros[4] = {};
    const uint64_t begin = (offset + 3) / 4 * 4, end = (offset + bytes) / 4 * 4;
    if (begin >= end) {
      for (uint64_t at = offset; at < offset + bytes; ++at)
        SWY_VK_TRY(write_piece(*device, *buffer, at, kZeros, 1, error));
      return SWY_OK;
    }
    if (begin != offset) SWY_VK_TRY(write_piece(*device, *buffer, offset, kZeros, begin - offset, error));
    if (end != offset + bytes) SWY_VK_TRY(write_piece(*device, *buffer, end, kZeros, offset + bytes - end, error));
    Staging* s = nullptr;
    SWY_VK_TRY(take(*device, 16, &s, error));
    device->vk.CmdFillBuffer(s->commands, buffer->range.block->buffer, buffer->range.offset + begin, end - begin, 0);
    return put(*device, *s, error);
  });
}

swy_status clear_now(swy_device& d, const Range& range, swy_error* error) {
  const std::lock_guard lock(d.mutex);
  Staging* s = nullptr;
  SWY_VK_TRY(take(d, 16, &s, error));
  d.vk.CmdFillBuffer(s->commands, range.block->buffer, range.offset, range.bytes, 0);
  SWY_VK_TRY(put(d, *s, error));
  return settle(d, error);
}

swy_status write_now(swy_device& d, const Range& range, const void* from, swy_error* error) {
  const std::lock_guard lock(d.mutex);
  return write_range(d, range, from, error);
}

swy_status timestamp_now(swy_device& d, uint64_t* ticks, swy_error* error) {
  const std::lock_guard lock(d.mutex);
  if (d.clock == VK_NULL_HANDLE) {
    VkQueryPoolCreateInfo info{VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO};
    info.queryType = VK_QUERY_TYPE_TIMESTAMP;
    info.queryCount = 1;
    SWY_VK_TRY(check(d, d.vk.CreateQueryPool(d.handle, &info, nullptr, &d.clock), "making a timestamp", error));
  }
  Staging* s = nullptr;
  SWY_VK_TRY(take(d, 16, &s, error));
  d.vk.CmdResetQueryPool(s->commands, d.clock, 0, 1);
  d.vk.CmdWriteTimestamp(s->commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, d.clock, 0);
  SWY_VK_TRY(put(d, *s, error));
  SWY_VK_TRY(settle(d, error));
  return check(
      d,
      d.vk.GetQueryPoolResults(d.handle, d.clock, 0, 1, 8, ticks, 8, VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT),
      "reading a timestamp", error);
}

void free_staging(swy_device& d) {
  if (d.clock != VK_NULL_HANDLE) d.vk.DestroyQueryPool(d.handle, d.clock, nullptr);
  for (Staging& s : d.staging) {
    if (s.pool != VK_NULL_HANDLE) d.vk.DestroyCommandPool(d.handle, s.pool, nullptr);
    s = Staging{};
  }
}

}  // namespace gpu
