// SPDX-License-Identifier: Apache-2.0
// Command lists: one command buffer, recorded once and submitted again for every step.
#include "list.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "profile.h"
#include "switchyard/sdk/error.hpp"

namespace gpu {
namespace {

constexpr uint64_t kCounterBytes = 1 << 18, kConstantBytes = 1 << 18;

bool overlap(const Span& a, const Span& b) {
  return a.address < b.address + b.bytes && b.address < a.address + a.bytes;
}
bool any_overlap(std::span<const Span> a, std::span<const Span> b) {
  return std::any_of(a.begin(), a.end(), [&](const Span& x) {
    return std::any_of(b.begin(), b.end(), [&](const Span& y) { return overlap(x, y); });
  });
}

// Makes earlier kernels' writes visible to later kernels.
void kernel_barrier(const DeviceApi& vk, VkCommandBuffer commands) {
  const VkMemoryBarrier all{VK_STRUCTURE_TYPE_MEMORY_BARRIER, nullptr, VK_ACCESS_SHADER_WRITE_BIT,
                            VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT};
  vk.CmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, 0, 1,
                        &all, 0, nullptr, 0, nullptr);
}

swy_status begin(swy_list& list, const swy_list_info& info, swy_error* error) {
  swy_device& d = *list.device;
  list.bucket = *info.bucket;
  list.step = info.step.buffer->address() + info.step.offset;
  if (info.tokens.buffer != nullptr) {
    list.tokens = {info.tokens.buffer->address() + info.tokens.offset, info.tokens.bytes};
  }
  const VkCommandPoolCreateInfo pool{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, nullptr, 0, d.features.queue_family};
  SWY_VK_TRY(check(d, d.vk.CreateCommandPool(d.handle, &pool, nullptr, &list.pool), "beginning a list", error));
  const VkCommandBufferAllocateInfo one{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, nullptr, list.pool,
                                        VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
  return check(d, d.vk.AllocateCommandBuffers(d.handle, &one, &list.commands), "beginning a list", error);
}

void put(const swy_list& list, const Dispatch& dispatch, VkPipeline& bound) {
  const DeviceApi& vk = list.device->vk;
  if (dispatch.waits) kernel_barrier(vk, list.commands);
  if (dispatch.pipeline->handle != bound) {
    bound = dispatch.pipeline->handle;
    vk.CmdBindPipeline(list.commands, VK_PIPELINE_BIND_POINT_COMPUTE, bound);
  }
  vk.CmdPushConstants(list.commands, list.device->pipelines->layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0,
                      dispatch.push_bytes, dispatch.push);
  vk.CmdDispatch(list.commands, dispatch.x, dispatch.y, dispatch.z);
}

// Launches between two barriers may run in any order. On a driver that keeps the recorded order, reversing it shows
// whether a barrier is missing.
void reverse_groups(std::vector<Dispatch>& all) {
  for (auto begin = all.begin(), end = begin; begin != all.end(); begin = end) {
    end = std::find_if(begin + 1, all.end(), [](const Dispatch& d) { return d.waits; });
    const bool waits = std::exchange(begin->waits, false);
    std::reverse(begin, end);
    begin->waits = waits;
  }
}

}  // namespace

swy_status list_begin(swy_device* device, const swy_list_info* info, swy_list** out, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    struct Free {
      void operator()(swy_list* l) const { list_free(l); }
    };
    std::unique_ptr<swy_list, Free> list(new swy_list);
    list->device = device;
    SWY_VK_TRY(begin(*list, *info, error));
    *out = list.release();
    return SWY_OK;
  });
}

swy_status list_finalize(swy_list* list, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    swy_device& d = *list->device;
    for (const Dispatch& dispatch : list->dispatches) SWY_VK_TRY(d.pipelines->wait(*dispatch.pipeline, error));
    if (d.reversed) reverse_groups(list->dispatches);
    const VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, nullptr,
                                         VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT, nullptr};
    SWY_VK_TRY(check(d, d.vk.BeginCommandBuffer(list->commands, &begin), "recording a list", error));
    full_barrier(d.vk, list->commands);
    if (d.profile->spans.on()) {
      SWY_VK_TRY(make_queries(*list, error));
      d.vk.CmdResetQueryPool(list->commands, list->queries, 0, static_cast<uint32_t>(list->ticks.size()));
      d.vk.CmdWriteTimestamp(list->commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, list->queries, 0);
    }
    VkPipeline bound = VK_NULL_HANDLE;
    uint32_t nth = 0;
    for (const Dispatch& dispatch : list->dispatches) {
      put(*list, dispatch, bound);
      if (list->queries == VK_NULL_HANDLE) continue;
      d.vk.CmdWriteTimestamp(list->commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, list->queries, ++nth);
    }
    full_barrier(d.vk, list->commands);
    return check(d, d.vk.EndCommandBuffer(list->commands), "finalizing a list", error);
  });
}

// If nothing is running it starts at once; otherwise it goes with the next submission, so that a step is one
// submission.
swy_status list_submit(swy_list* list, const swy_submit* submit, swy_error* error) {
  swy_device& d = *list->device;
  SWY_VK_TRY(await_points(d, submit, error));
  uint64_t done = 0;
  {
    const std::lock_guard lock(d.mutex);
    SWY_VK_TRY(enqueue(d, list->commands, error));
    if (progress_now(d) == d.submitted) SWY_VK_TRY(flush(d, error));
    done = progress_of_all(d);
  }
  if (list->queries != VK_NULL_HANDLE && d.profile->spans.on()) SWY_VK_TRY(keep_spans(*list, error));
  return signal_at(submit, done, error);
}

void list_free(swy_list* list) {
  swy_device& d = *list->device;
  drain(d);
  if (list->queries != VK_NULL_HANDLE) d.vk.DestroyQueryPool(d.handle, list->queries, nullptr);
  if (list->pool != VK_NULL_HANDLE) d.vk.DestroyCommandPool(d.handle, list->pool, nullptr);
  delete list;
}

swy_status add_dispatch(swy_list& list, const Launch& launch, const void* push, uint32_t push_bytes, const char* kernel,
                        swy_error* error) {
  if (launch.x == 0 || launch.y == 0 || launch.z == 0) return SWY_OK;
  if (launch.x > 65535 || launch.y > 65535 || launch.z > 65535) {
    return swy::fail(error, SWY_INTERNAL, SWY_REASON_NONE, "%s: a grid of %u x %u x %u", launch.shader.name, launch.x,
                     launch.y, launch.z);
  }
  Dispatch d;
  d.pipeline = list.device->pipelines->get(launch.shader, launch.constants);
  d.push_bytes = push_bytes;
  std::memcpy(d.push, push, push_bytes);
  d.x = launch.x;
  d.y = launch.y;
  d.z = launch.z;
  d.kernel = span_name(*list.device, kernel, launch.shader.name, list.begins_operation);
  list.begins_operation = false;
  d.waits = any_overlap(launch.reads, list.written) || any_overlap(launch.writes, list.written) ||
            any_overlap(launch.writes, list.read);
  if (d.waits) {
    list.written.clear();
    list.read.clear();
  }
  list.read.insert(list.read.end(), launch.reads.begin(), launch.reads.end());
  list.written.insert(list.written.end(), launch.writes.begin(), launch.writes.end());
  list.dispatches.push_back(d);
  return SWY_OK;
}

swy_status take_counters(swy_list& list, uint32_t n, Span& out, swy_error* error) {
  swy_device& d = *list.device;
  const uint64_t bytes = (uint64_t{n} * 4 + 63) / 64 * 64;
  if (list.counters.empty() || list.counters_used + bytes > list.counters.back()->bytes) {
    const uint64_t size = std::max(bytes, kCounterBytes);
    std::unique_ptr<Block> block;
    SWY_VK_TRY(make_block(d, Memory::kDevice, size, block, error));
    SWY_VK_TRY(clear_now(d, {block.get(), 0, size}, error));
    list.counters.push_back(std::move(block));
    list.counters_used = 0;
  }
  out = {list.counters.back()->address + list.counters_used, bytes};
  list.counters_used += bytes;
  return SWY_OK;
}

swy_status put_constants(swy_list& list, const void* data, uint64_t bytes, Span& out, swy_error* error) {
  swy_device& d = *list.device;
  if (list.constants == nullptr) SWY_VK_TRY(make_block(d, Memory::kDevice, kConstantBytes, list.constants, error));
  if (list.constants_used + bytes > kConstantBytes) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "a list has room for %llu bytes of constants",
                     static_cast<unsigned long long>(kConstantBytes));
  }
  SWY_VK_TRY(write_now(d, {list.constants.get(), list.constants_used, bytes}, data, error));
  out = {list.constants->address + list.constants_used, bytes};
  list.constants_used += (bytes + 63) / 64 * 64;
  return SWY_OK;
}

}  // namespace gpu
