// SPDX-License-Identifier: Apache-2.0
// Buffers: ranges of blocks, each block one allocation with one buffer and one device address.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

#include "device.h"
#include "switchyard/sdk/error.hpp"

namespace gpu {
namespace {

constexpr uint64_t kAlign = 256;
constexpr uint64_t kBlock = uint64_t{64} << 20;  // small buffers share blocks of this size
constexpr uint64_t kLarge = uint64_t{8} << 20;   // from here on a buffer has a block to itself

uint64_t aligned(uint64_t bytes) { return (std::max<uint64_t>(bytes, 1) + kAlign - 1) / kAlign * kAlign; }

VkPhysicalDeviceMemoryProperties types_of(const PhysicalDevice& p) {
  VkPhysicalDeviceMemoryProperties2 m{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
  instance().GetPhysicalDeviceMemoryProperties2(p.handle, &m);
  return m.memoryProperties;
}

// The best type for a kind of memory among those of `mask`, or -1.
int type_for(const swy_device& d, Memory kind, uint32_t mask) {
  const VkPhysicalDeviceMemoryProperties m = types_of(*d.physical);
  constexpr VkMemoryPropertyFlags kVisible = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  int best = -1, best_points = -1;
  for (uint32_t i = 0; i < m.memoryTypeCount; ++i) {
    const VkMemoryPropertyFlags flags = m.memoryTypes[i].propertyFlags;
    if ((mask >> i & 1) == 0) continue;
    const bool local = (flags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT) != 0, visible = (flags & kVisible) == kVisible;
    const bool cached = (flags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT) != 0;
    int points = 0;
    if (kind == Memory::kStaging) {
      if (!visible) continue;
      points = (cached ? 2 : 0) + (local && !d.features.unified ? 0 : 1);
    } else {
      points = (local ? 4 : 0) + (visible == d.features.unified ? 1 : 0);
    }
    if (points > best_points) best = static_cast<int>(i), best_points = points;
  }
  return best;
}

swy_status too_little(const swy_device& d, uint64_t bytes, swy_error* error) {
  constexpr double kMiB = 1u << 20;
  uint64_t free = 0, total = 0;
  memory_of(*d.physical, free, total);
  char left[64] = "more than is left";  // without a budget, `free` is the total
  if (d.features.memory_budget) std::snprintf(left, sizeof left, "%.1f are left", static_cast<double>(free) / kMiB);
  return swy::fail(
      error, SWY_OUT_OF_DEVICE_MEMORY, SWY_REASON_NONE,
      "%.1f MiB are needed, %s of the device's %.1f; a smaller encoding of the weights, a shorter --ctx or "
      "fewer sessions need less",
      static_cast<double>(bytes) / kMiB, left, static_cast<double>(total) / kMiB);
}

swy_status bind_memory(swy_device& d, Memory kind, Block& b, swy_error* error) {
  VkMemoryRequirements needs{};
  d.vk.GetBufferMemoryRequirements(d.handle, b.buffer, &needs);
  const int type = type_for(d, kind, needs.memoryTypeBits);
  if (type < 0) return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "the device has no memory for buffers");
  const VkMemoryAllocateFlagsInfo flags{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO, nullptr,
                                        VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT, 0};
  const VkMemoryAllocateInfo info{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, &flags, needs.size,
                                  static_cast<uint32_t>(type)};
  const VkResult r = d.vk.AllocateMemory(d.handle, &info, nullptr, &b.memory);
  if (r == VK_ERROR_OUT_OF_DEVICE_MEMORY || r == VK_ERROR_OUT_OF_HOST_MEMORY) return too_little(d, needs.size, error);
  SWY_VK_TRY(check(d, r, "allocating", error));
  SWY_VK_TRY(check(d, d.vk.BindBufferMemory(d.handle, b.buffer, b.memory, 0), "binding memory", error));
  const VkMemoryPropertyFlags has = types_of(*d.physical).memoryTypes[type].propertyFlags;
  constexpr VkMemoryPropertyFlags kVisible = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  if (kind == Memory::kStaging || (d.features.unified && (has & kVisible) == kVisible)) {
    void* at = nullptr;
    SWY_VK_TRY(check(d, d.vk.MapMemory(d.handle, b.memory, 0, VK_WHOLE_SIZE, 0, &at), "mapping memory", error));
    b.mapped = static_cast<char*>(at);
  }
  const VkBufferDeviceAddressInfo where{VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, nullptr, b.buffer};
  b.address = d.vk.GetBufferDeviceAddress(d.handle, &where);
  return SWY_OK;
}

// Takes a range out of a block, if it has room.
bool cut(Block& b, uint64_t bytes, Range& out) {
  for (auto it = b.spare.begin(); it != b.spare.end(); ++it) {
    if (it->second < bytes) continue;
    out = {&b, it->first, bytes};
    if (it->second > bytes) {
      auto node = b.spare.extract(it);  // keeps its memory: nothing is allocated
      node.key() += bytes;
      node.mapped() -= bytes;
      b.spare.insert(std::move(node));
    } else {
      b.spare.erase(it);
    }
    return true;
  }
  return false;
}

void give_back(swy_buffer& buffer) {
  auto& spare = buffer.range.block->spare;
  auto node = buffer.spare.extract(buffer.spare.begin());
  node.key() = buffer.range.offset;
  node.mapped() = buffer.range.bytes;
  auto it = spare.insert(std::move(node)).position;
  if (const auto next = std::next(it); next != spare.end() && it->first + it->second == next->first) {
    it->second += next->second;
    spare.erase(next);
  }
  if (it != spare.begin()) {
    const auto before = std::prev(it);
    if (before->first + before->second == it->first) {
      before->second += it->second;
      spare.erase(it);
    }
  }
}

swy_status find_room(swy_device& d, uint64_t bytes, swy_buffer& out, swy_error* error) {
  if (out.readback || bytes >= kLarge) {
    SWY_VK_TRY(make_block(d, out.readback ? Memory::kStaging : Memory::kDevice, bytes, out.own, error));
    out.range = {out.own.get(), 0, bytes};
    return SWY_OK;
  }
  out.spare.emplace(0, 0);
  const std::lock_guard lock(d.memory_mutex);
  for (const auto& b : d.blocks) {
    if (cut(*b, bytes, out.range)) return SWY_OK;
  }
  std::unique_ptr<Block> fresh;
  swy_status s = make_block(d, Memory::kDevice, kBlock, fresh, error);
  if (s == SWY_OUT_OF_DEVICE_MEMORY) s = make_block(d, Memory::kDevice, bytes, fresh, error);  // the last of it
  SWY_VK_TRY(s);
  fresh->spare.emplace(0, fresh->bytes);
  d.blocks.push_back(std::move(fresh));
  cut(*d.blocks.back(), bytes, out.range);
  return SWY_OK;
}

}  // namespace

Block::~Block() {
  if (device == nullptr) return;
  if (buffer != VK_NULL_HANDLE) device->vk.DestroyBuffer(device->handle, buffer, nullptr);
  if (memory != VK_NULL_HANDLE) device->vk.FreeMemory(device->handle, memory, nullptr);
}

swy_status make_block(swy_device& d, Memory kind, uint64_t bytes, std::unique_ptr<Block>& out, swy_error* error) {
  if (bytes > d.features.largest_allocation) {
    return swy::fail(error, SWY_OUT_OF_DEVICE_MEMORY, SWY_REASON_NONE,
                     "one buffer of %llu bytes; the driver allows %llu", static_cast<unsigned long long>(bytes),
                     static_cast<unsigned long long>(d.features.largest_allocation));
  }
  auto b = std::make_unique<Block>();
  b->device = &d;
  b->bytes = bytes;
  VkBufferCreateInfo info{VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
  info.size = bytes;
  info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
               VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
  info.sharingMode = VK_SHARING_MODE_EXCLUSIVE;
  const VkResult r = d.vk.CreateBuffer(d.handle, &info, nullptr, &b->buffer);
  if (r == VK_ERROR_OUT_OF_DEVICE_MEMORY || r == VK_ERROR_OUT_OF_HOST_MEMORY) return too_little(d, bytes, error);
  SWY_VK_TRY(check(d, r, "making a buffer", error));
  SWY_VK_TRY(bind_memory(d, kind, *b, error));
  out = std::move(b);
  return SWY_OK;
}

void memory_of(const PhysicalDevice& physical, uint64_t& free, uint64_t& total) {
  VkPhysicalDeviceMemoryBudgetPropertiesEXT budget{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
  VkPhysicalDeviceMemoryProperties2 m{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
  if (physical.features.memory_budget) m.pNext = &budget;
  instance().GetPhysicalDeviceMemoryProperties2(physical.handle, &m);
  free = total = 0;
  for (uint32_t h = 0; h < m.memoryProperties.memoryHeapCount; ++h) {
    const VkMemoryHeap& heap = m.memoryProperties.memoryHeaps[h];
    if ((heap.flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) == 0 || heap.size <= total) continue;
    total = heap.size;
    const uint64_t used = budget.heapUsage[h], may = budget.heapBudget[h];
    free = physical.features.memory_budget ? (may > used ? may - used : 0) : heap.size;
  }
}

swy_status buffer_alloc(swy_device* device, swy_memory_type type, uint64_t bytes, swy_buffer** out, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    if (bytes > device->features.largest_allocation) return too_little(*device, bytes, error);
    auto buffer = std::make_unique<swy_buffer>();
    buffer->bytes = bytes;
    buffer->readback = type == SWY_MEMORY_READBACK;
    const uint64_t size = aligned(bytes);
    SWY_VK_TRY(find_room(*device, size, *buffer, error));
    swy_status s = SWY_OK;
    if (buffer->readback) {
      std::memset(buffer->mapped(), 0, size);
    } else {
      s = clear_now(*device, buffer->range, error);
    }
    if (s != SWY_OK) {
      buffer_free(device, buffer.release());
      return s;
    }
    *out = buffer.release();
    return SWY_OK;
  });
}

void buffer_free(swy_device* device, swy_buffer* buffer) {
  drain(*device);  // copies that were put off may still use it
  if (buffer->own == nullptr) {
    const std::lock_guard lock(device->memory_mutex);
    give_back(*buffer);
  }
  delete buffer;
}

void* buffer_map(swy_device*, swy_buffer* buffer) { return buffer->readback ? buffer->mapped() : nullptr; }

}  // namespace gpu
