// SPDX-License-Identifier: Apache-2.0
// Buffers over memory of the host: weights are read where the file is mapped, on devices that share the host's memory.
#include <memory>

#include "device.h"
#include "switchyard/sdk/error.hpp"

namespace gpu {
namespace {

constexpr uint64_t kLeast = 256 << 10;  // less is not worth an allocation of its own: devices allow some 4,096
constexpr uint64_t kWeights = 64;       // the alignment of weights in a file, which shaders rely on
constexpr auto kHost = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;

// The pages that hold some bytes.
struct Pages {
  char* begin = nullptr;
  uint64_t bytes = 0, offset = 0;  // offset: of the first byte in them
};

Pages pages_of(const void* memory, uint64_t bytes, uint64_t page) {
  char* at = static_cast<char*>(const_cast<void*>(memory));  // the device only reads it
  const uint64_t offset = reinterpret_cast<uintptr_t>(at) % page;
  return {at - offset, (offset + bytes + page - 1) / page * page, offset};
}

// If the import is refused, the host copies; only a lost device is an error.
swy_status refused(swy_device& d, VkResult r, const char* what, swy_error* error) {
  const swy_status s = check(d, r, what, error);
  if (s == SWY_OK || s == SWY_DEVICE_LOST) return s;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "%s: %s", what, result_name(r));
}

swy_status make_buffer(swy_device& d, Block& b, swy_error* error) {
  const VkExternalMemoryBufferCreateInfo external{VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO, nullptr, kHost};
  VkBufferCreateInfo info{VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, &external};
  info.size = b.bytes;
  info.usage =
      VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
  info.sharingMode = VK_SHARING_MODE_EXCLUSIVE;
  return refused(d, d.vk.CreateBuffer(d.handle, &info, nullptr, &b.buffer), "making a buffer over host memory", error);
}

swy_status bind_pages(swy_device& d, const Pages& pages, Block& b, swy_error* error) {
  VkMemoryHostPointerPropertiesEXT may{VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT};
  SWY_VK_TRY(refused(d, d.vk.GetMemoryHostPointerPropertiesEXT(d.handle, kHost, pages.begin, &may),
                     "looking at host memory", error));
  VkMemoryRequirements needs{};
  d.vk.GetBufferMemoryRequirements(d.handle, b.buffer, &needs);
  const uint32_t types = may.memoryTypeBits & needs.memoryTypeBits;
  if (types == 0 || needs.size > pages.bytes) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "the device has no buffers over this memory");
  }
  const VkImportMemoryHostPointerInfoEXT host{VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT, nullptr, kHost,
                                              pages.begin};
  const VkMemoryAllocateFlagsInfo flags{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO, &host,
                                        VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT, 0};
  const VkMemoryAllocateInfo info{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, &flags, pages.bytes,
                                  static_cast<uint32_t>(__builtin_ctz(types))};
  SWY_VK_TRY(refused(d, d.vk.AllocateMemory(d.handle, &info, nullptr, &b.memory), "importing host memory", error));
  SWY_VK_TRY(refused(d, d.vk.BindBufferMemory(d.handle, b.buffer, b.memory, 0), "binding host memory", error));
  const VkBufferDeviceAddressInfo where{VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, nullptr, b.buffer};
  b.address = d.vk.GetBufferDeviceAddress(d.handle, &where);
  return SWY_OK;
}

}  // namespace

swy_status buffer_import(swy_device* device, const void* memory, uint64_t bytes, swy_buffer** out, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    if (!device->features.imports) {
      return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "the device does not read the host's memory in place");
    }
    const Pages pages = pages_of(memory, bytes, device->features.import_alignment);
    if (bytes < kLeast || pages.offset % kWeights != 0 || pages.bytes > device->features.largest_allocation) {
      return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "%llu bytes at %llu of a page are not read in place",
                       static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(pages.offset));
    }
    auto buffer = std::make_unique<swy_buffer>();
    buffer->own = std::make_unique<Block>();
    buffer->own->device = device;
    buffer->own->bytes = pages.bytes;
    buffer->imported = true;
    buffer->bytes = bytes;
    buffer->range = {buffer->own.get(), pages.offset, bytes};
    SWY_VK_TRY(make_buffer(*device, *buffer->own, error));
    SWY_VK_TRY(bind_pages(*device, pages, *buffer->own, error));
    *out = buffer.release();
    return SWY_OK;
  });
}

}  // namespace gpu
