// SPDX-License-Identifier: Apache-2.0
// DeviceBuffer: memory of a device, freed with its owner; and the copies in and out of it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "core/base/status.h"
#include "core/plugin/device.h"

namespace switchyard {

// A buffer for a plugin's error text, and its translation. Use one per call.
class PluginError {
 public:
  swy_error* get() { return &error_; }
  // Status of a call that returned `status`: "what: the plugin's text".
  Status status(swy_status status, const std::string& what) const;
  // The same for the step loop: [no-alloc] unless it failed.
  Status status(swy_status status, const char* what) const {
    return status == SWY_OK ? Status() : this->status(status, std::string(what));
  }
  // "device: what: the plugin's text"
  Status status(swy_status status, const std::string& device, const char* what) const {
    return status == SWY_OK ? Status() : this->status(status, device + ": " + what);
  }

 private:
  char text_[512] = {};
  swy_error error_{sizeof(swy_error), sizeof text_, text_, SWY_REASON_NONE, 0};
};

// Bytes in DeviceBuffers on devices other than the host's processor. [thread-safe]
struct DeviceMemory {
  uint64_t now = 0, most = 0;  // bytes; most: at any time so far
};
DeviceMemory device_memory();

class DeviceBuffer {
 public:
  // Zero-filled. Errors: out_of_device_memory, with the size and the purpose `what`.
  static Result<DeviceBuffer> allocate(const PlanDevice& device, swy_memory_type type, uint64_t bytes,
                                       const std::string& what);
  // Reads memory that outlives the buffer. Errors: unsupported where the device cannot.
  static Result<DeviceBuffer> import(const PlanDevice& device, std::span<const std::byte> memory);

  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  uint64_t bytes() const { return bytes_; }
  swy_binding slice(uint64_t offset, uint64_t bytes) const { return {buffer_, offset, bytes}; }
  swy_binding all() const { return slice(0, bytes_); }
  // NULL: not visible to the host. On an asynchronous device the contents may not be written yet.
  std::byte* map() const { return mapped_; }

  // Blocking; ordered after earlier submissions. [device-serial]
  Status write(uint64_t offset, std::span<const std::byte> from) const;
  Status read(uint64_t offset, std::span<std::byte> to) const;
  // As `write`, but it may return earlier: `from` stays as it is until something that was submitted later is known to
  // be done. [device-serial, no-alloc]
  Status write_later(uint64_t offset, std::span<const std::byte> from) const;

 private:
  Status write(uint64_t offset, std::span<const std::byte> from, const swy_submit* submit) const;

  const swy_plugin* api_ = nullptr;
  swy_device* device_ = nullptr;
  const char* label_ = nullptr;  // of the device
  swy_buffer* buffer_ = nullptr;
  uint64_t bytes_ = 0;
  std::byte* mapped_ = nullptr;
  bool counted_ = false;      // in device_memory
  bool synchronous_ = false;  // nothing that was submitted is still running
};

}  // namespace switchyard
