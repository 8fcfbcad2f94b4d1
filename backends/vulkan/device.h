// SPDX-License-Identifier: Apache-2.0
// A Vulkan device as the plugin sees it: one queue that runs steps and copies in order, memory in blocks, and the
// pipelines of its lists.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "api.h"
#include "switchyard/plugin.h"

namespace gpu {

constexpr const char* kVersion = "0.1.0";  // of the plugin

class Pipelines;  // pipelines.h
struct Profile;   // profile.h

// Kinds of memory for blocks.
enum class Memory {
  kDevice,   // fastest for kernels; the host may see it, or not
  kStaging,  // the host writes and reads it; for copies and for results of kernels
};

// One allocation with one buffer over all of it, divided into ranges.
struct Block {
  swy_device* device = nullptr;
  VkDeviceMemory memory = VK_NULL_HANDLE;
  VkBuffer buffer = VK_NULL_HANDLE;
  uint64_t address = 0;
  uint64_t bytes = 0;
  char* mapped = nullptr;              // null: the host cannot see it
  std::map<uint64_t, uint64_t> spare;  // offset, bytes; neighbours are joined

  Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block();
};

// A range of a block.
struct Range {
  Block* block = nullptr;
  uint64_t offset = 0, bytes = 0;
};

// Host-visible memory for one copy, with the commands that make it; free again when the device's progress has reached
// `done`.
struct Staging {
  const Block* block = nullptr;
  uint64_t offset = 0;  // in the block
  VkCommandPool pool = VK_NULL_HANDLE;
  VkCommandBuffer commands = VK_NULL_HANDLE;
  std::atomic<bool> busy{false};  // in use (filled, read, or its commands recorded) without the device's lock
  uint64_t done = 0;
  // A copy to the host in transfer. The first reader that sees it complete fills `to`.
  void* to = nullptr;
  uint64_t bytes = 0;
  const swy_timeline* timeline = nullptr;  // that announces it

  char* mapped() const { return block->mapped + offset; }
};

// All staging memory of a device, used in turns: many small ones for steps and results, and some large ones. Allocated
// when the device is opened, since steps must allocate nothing.
struct StagingRing {
  static constexpr uint64_t kSmall = uint64_t{64} << 10, kLarge = uint64_t{2} << 20;  // bytes of one
  std::unique_ptr<Block> block;
  std::array<Staging, 24> small;
  std::array<Staging, 8> large;
  uint32_t next_small = 0, next_large = 0;
  uint32_t arrivals = 0;  // those with a `to`

  template <class F>
  void for_each(const F& f) {
    for (Staging& s : small) f(s);
    for (Staging& s : large) f(s);
  }
};

}  // namespace gpu

// Progress: the queue raises one timeline semaphore, by one per submission to it. Command buffers wait in `pending`
// until a result is wanted, so that a step is one submission.
struct swy_device {
  const gpu::PhysicalDevice* physical = nullptr;
  gpu::Features features;  // less those that options disable
  gpu::DeviceApi vk;
  VkDevice handle = VK_NULL_HANDLE;
  VkQueue queue = VK_NULL_HANDLE;
  VkSemaphore progress = VK_NULL_HANDLE;
  bool kv_bf16 = true;
  bool pipeline_cache = true;
  bool reversed = false;         // launches between two barriers run last to first
  uint32_t resident_groups = 0;  // workgroups of a launch that may wait for each other; 0: not allowed
  bool exact = false;            // the sampler's arithmetic has the normative bits
  std::vector<swy_kernel> kernels;
  std::unique_ptr<gpu::Pipelines> pipelines;
  std::unique_ptr<gpu::Profile> profile;
  std::atomic<VkResult> loss{VK_SUCCESS};  // the error with which the device was lost

  std::mutex memory_mutex;  // over blocks
  std::vector<std::unique_ptr<gpu::Block>> blocks;

  // Protects everything below, and the queue. Never held during a large copy: other threads read timelines meanwhile.
  std::mutex mutex;
  std::array<VkCommandBuffer, 64> pending{};
  uint32_t pending_count = 0;
  uint64_t submitted = 0;  // the progress that the last submission will raise
  gpu::StagingRing staging;
};

struct swy_buffer {
  gpu::Range range;
  std::unique_ptr<gpu::Block> own;     // of a large buffer, which has a block to itself
  std::map<uint64_t, uint64_t> spare;  // the entry that its block gets back, so that freeing allocates nothing
  uint64_t bytes = 0;
  bool readback = false;
  bool imported = false;  // memory of the host, which must not be written

  uint64_t address() const { return range.block->address + range.offset; }
  char* mapped() const { return range.block->mapped == nullptr ? nullptr : range.block->mapped + range.offset; }
};

// A value of the timeline is reached when the device's progress has reached the mark that goes with it.
struct swy_timeline {
  struct Mark {
    uint64_t value = 0, progress = 0;
  };
  swy_device* device = nullptr;
  std::mutex mutex;
  std::array<Mark, 64> marks;  // a ring; values rise
  uint32_t first = 0, count = 0;
  uint64_t reached = 0;
};

namespace gpu {

// What Vulkan returned, as a status with one line of text. A lost device stays lost.
swy_status check(swy_device& device, VkResult result, const char* what, swy_error* error);

// Marks the device as lost. Every later request fails with the first error.
void lose(swy_device& device, VkResult result);
bool is_lost(const swy_device& device);
swy_status lost_earlier(const swy_device& device, swy_error* error);

swy_status device_count(uint32_t* count, swy_error* error);
swy_status device_info(uint32_t index, swy_device_info* out, swy_error* error);
swy_status device_open(uint32_t index, const swy_setting* settings, uint32_t count, swy_device** out, swy_error* error);
void device_close(swy_device* device);

swy_status buffer_alloc(swy_device* device, swy_memory_type type, uint64_t bytes, swy_buffer** out, swy_error* error);
swy_status buffer_import(swy_device* device, const void* memory, uint64_t bytes, swy_buffer** out, swy_error* error);
void buffer_free(swy_device* device, swy_buffer* buffer);
void* buffer_map(swy_device* device, swy_buffer* buffer);
// A block of its own. The host sees kStaging.
swy_status make_block(swy_device& device, Memory kind, uint64_t bytes, std::unique_ptr<Block>& out, swy_error* error);
// Bytes of device memory: free, and in all.
void memory_of(const PhysicalDevice& physical, uint64_t& free, uint64_t& total);

swy_status write(swy_device* device, swy_buffer* to, uint64_t offset, const void* from, uint64_t bytes,
                 const swy_submit* submit, swy_error* error);
swy_status read(swy_device* device, void* to, swy_buffer* from, uint64_t offset, uint64_t bytes,
                const swy_submit* submit, swy_error* error);
swy_status fill_zero(swy_device* device, swy_buffer* buffer, uint64_t offset, uint64_t bytes, swy_error* error);
// Writes zeros over new memory, and returns when they are there.
swy_status clear_now(swy_device& device, const Range& range, swy_error* error);
// Writes a small range; later submissions see it.
swy_status write_now(swy_device& device, const Range& range, const void* from, swy_error* error);
swy_status make_staging(swy_device& device, swy_error* error);
void free_staging(swy_device& device);

// ---- the queue (queue.cpp). `mutex` is held where a function takes the device as "locked".

// Everything before happens before everything after, copies and kernels alike; results are visible to the host.
void full_barrier(const DeviceApi& vk, VkCommandBuffer commands);
// Adds a command buffer after all earlier ones. It runs when the queue is flushed.
swy_status enqueue(swy_device& locked, VkCommandBuffer commands, swy_error* error);
swy_status flush(swy_device& locked, swy_error* error);
// The progress at which everything enqueued is done.
uint64_t progress_of_all(const swy_device& locked);
uint64_t progress_now(swy_device& device);
// Waits until the device uses nothing any more, even if the work failed: then its memory may be freed. Locks.
void drain(swy_device& device);
// Waits until everything enqueued is done. Locks, but not while it waits.
swy_status settle(swy_device& device, swy_error* error);
// Waits for a progress, and flushes if it has not been submitted. SWY_CANCELLED after `timeout_ns`.
swy_status wait_for(swy_device& device, uint64_t progress, uint64_t timeout_ns, swy_error* error);
// The same without flushing: the work of that progress has been submitted.
swy_status wait_reached(swy_device& device, uint64_t progress, uint64_t timeout_ns, swy_error* error);
// Delivers the copies to the host that have arrived. Locks the device.
void deliver(swy_device& device);
// Delivers one.
void hand_over(swy_device& locked, Staging& staging);

swy_status list_begin(swy_device* device, const swy_list_info* info, swy_list** out, swy_error* error);
swy_status list_finalize(swy_list* list, swy_error* error);
swy_status list_submit(swy_list* list, const swy_submit* submit, swy_error* error);
void list_free(swy_list* list);

swy_status timeline_create(swy_device* device, swy_timeline** out, swy_error* error);
void timeline_free(swy_device* device, swy_timeline* timeline);
uint64_t timeline_value(swy_timeline* timeline);
swy_status timeline_wait(swy_timeline* timeline, uint64_t value, uint64_t timeout_ns, swy_error* error);
// Waits for the points of other devices that `submit` names. Those of this device are on the same queue, and were put
// there before. Before any lock is taken.
swy_status await_points(const swy_device& device, const swy_submit* submit, swy_error* error);
// Raises the timelines of `submit` at a progress. NULL: none to raise.
swy_status signal_at(const swy_submit* submit, uint64_t progress, swy_error* error);

}  // namespace gpu

// Returns from the calling function if the status of an expression is not SWY_OK.
#define SWY_VK_TRY(expression)                                                      \
  do {                                                                              \
    if (const swy_status status_ = (expression); status_ != SWY_OK) return status_; \
  } while (false)
