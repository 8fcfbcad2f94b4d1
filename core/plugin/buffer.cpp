// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/buffer.h"

#include <atomic>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/plugin/call.h"

namespace switchyard {
namespace {

std::atomic<uint64_t> bytes_now = 0, bytes_most = 0;

void count(uint64_t bytes) {
  const uint64_t now = bytes_now.fetch_add(bytes) + bytes;
  for (uint64_t most = bytes_most.load(); most < now && !bytes_most.compare_exchange_weak(most, now);) continue;
}

}  // namespace

DeviceMemory device_memory() { return {bytes_now.load(), bytes_most.load()}; }

Status PluginError::status(swy_status status, const std::string& what) const {
  if (status == SWY_OK) return {};
  const size_t length = ::strnlen(text_, sizeof text_);  // a plugin that fills it may leave no room for the end
  const std::string_view text = length > 0 ? std::string_view(text_, length) : "the backend gave no reason";
  switch (status) {
    case SWY_UNSUPPORTED:
      return error(Code::unsupported, "{}: {}", what, text);
    case SWY_OUT_OF_HOST_MEMORY:
      return error(Code::out_of_host_memory, "{}: {}", what, text);
    case SWY_OUT_OF_DEVICE_MEMORY:
      return error(Code::out_of_device_memory, "{}: {}", what, text);
    case SWY_DEVICE_LOST:
      return error(Code::device_lost, "{}: {}; this process cannot use the device any more: start the program again",
                   what, text);
    case SWY_INVALID_ARGUMENT:
      return error(Code::internal, "{}: {}", what, text);
    case SWY_CANCELLED:
      return error(Code::cancelled, "{}: {}", what, text);
    default:
      return error(Code::internal, "{}: {} (status {})", what, text, status);
  }
}

Result<DeviceBuffer> DeviceBuffer::allocate(const PlanDevice& device, swy_memory_type type, uint64_t bytes,
                                            const std::string& what) {
  DeviceBuffer b;
  b.api_ = device.api;
  b.device_ = device.handle;
  b.label_ = device.label;
  b.bytes_ = bytes;
  b.synchronous_ = (device.info.flags & SWY_DEVICE_SYNCHRONOUS) != 0;
  PluginError e;
  const auto alloc = [&](swy_error* x) { return device.api->buffer_alloc(device.handle, type, bytes, &b.buffer_, x); };
  SWY_TRY(e.status(call_plugin(device, "buffer_alloc", e.get(), alloc),
                   fmt::format("{}: {} bytes for {}", device.name, bytes, what)));
  b.mapped_ = static_cast<std::byte*>(device.api->buffer_map(device.handle, b.buffer_));
  b.counted_ = device.info.type != SWY_DEVICE_CPU;
  if (b.counted_) count(bytes);
  return b;
}

Result<DeviceBuffer> DeviceBuffer::import(const PlanDevice& device, std::span<const std::byte> memory) {
  if (device.api->buffer_import == nullptr) return error(Code::unsupported, "{} imports no memory", device.name);
  DeviceBuffer b;
  b.api_ = device.api;
  b.device_ = device.handle;
  b.label_ = device.label;
  b.bytes_ = memory.size();
  PluginError e;
  SWY_TRY(e.status(device.api->buffer_import(device.handle, memory.data(), memory.size(), &b.buffer_, e.get()),
                   device.name + ": importing memory"));
  return b;
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : api_(other.api_),
      device_(other.device_),
      label_(other.label_),
      buffer_(std::exchange(other.buffer_, nullptr)),
      bytes_(other.bytes_),
      mapped_(other.mapped_),
      counted_(std::exchange(other.counted_, false)),
      synchronous_(other.synchronous_) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(api_, other.api_);
  std::swap(device_, other.device_);
  std::swap(label_, other.label_);
  std::swap(buffer_, other.buffer_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapped_, other.mapped_);
  std::swap(counted_, other.counted_);
  std::swap(synchronous_, other.synchronous_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (counted_) bytes_now.fetch_sub(bytes_);
  if (buffer_ != nullptr) api_->buffer_free(device_, buffer_);
}

Status DeviceBuffer::write(uint64_t offset, std::span<const std::byte> from) const {
  return write(offset, from, nullptr);
}

Status DeviceBuffer::write_later(uint64_t offset, std::span<const std::byte> from) const {
  const swy_submit submit{sizeof(swy_submit), 0, nullptr, 0, 0, nullptr};
  return write(offset, from, &submit);
}

Status DeviceBuffer::write(uint64_t offset, std::span<const std::byte> from, const swy_submit* submit) const {
  if (mapped_ != nullptr && synchronous_) {
    std::memcpy(mapped_ + offset, from.data(), from.size());
    return {};
  }
  PluginError e;
  const auto copy = [&](swy_error* x) {
    return api_->write(device_, buffer_, offset, from.data(), from.size(), submit, x);
  };
  return e.status(call_plugin(label_, "write", nullptr, e.get(), copy), "copying to a device");
}

Status DeviceBuffer::read(uint64_t offset, std::span<std::byte> to) const {
  PluginError e;
  const auto copy = [&](swy_error* x) {
    return api_->read(device_, to.data(), buffer_, offset, to.size(), nullptr, x);
  };
  return e.status(call_plugin(label_, "read", nullptr, e.get(), copy), "copying from a device");
}

}  // namespace switchyard
