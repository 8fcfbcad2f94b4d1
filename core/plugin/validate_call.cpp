// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/validate_call.h"

#include <algorithm>

namespace switchyard {

thread_local NoAlloc* no_alloc = nullptr;

Call::~Call() {
  const std::lock_guard lock(v_.mutex_);
  if (device_ != nullptr) {
    if (const auto d = v_.devices_.find(device_); d != v_.devices_.end()) d->second.busy = nullptr;
  }
  if (list_ != nullptr) {
    if (const auto l = v_.lists_.find(list_); l != v_.lists_.end()) l->second.busy = nullptr;
  }
  rule(!no_alloc_.allocated, "allocated memory of the host in a [no-alloc] entry");
  if (!violation_.empty() && !reported_ && v_.pending_.empty()) v_.pending_ = violation_;
}

void Call::broken(const std::string& rule) {
  violation_ = fmt::format("validation: plugin {}, {}: {}", v_.id_, entry_, rule);
  {
    const std::lock_guard lock(v_.first_mutex_);
    if (v_.first_.empty()) v_.first_ = fmt::format("{}: {}", entry_, rule);
  }
  spdlog::error("{}", violation_);
}

void Call::known(swy_device* device) {
  const std::lock_guard lock(v_.mutex_);
  rule(v_.devices_.contains(device), "the device is not open");
}

void Call::known(swy_device* device, swy_buffer* buffer) {
  known(device);
  const std::lock_guard lock(v_.mutex_);
  const auto b = v_.buffers_.find(buffer);
  rule(b != v_.buffers_.end(), "the buffer is foreign or was freed");
  if (ok()) rule(b->second.device == device, "the buffer belongs to another device");
}

void Call::known(swy_timeline* timeline) {
  const std::lock_guard lock(v_.mutex_);
  rule(v_.timelines_.contains(timeline), "the timeline is foreign or was freed");
}

void Call::serial(swy_device* device) {
  known(device);
  const std::lock_guard lock(v_.mutex_);
  if (!ok()) return;
  const char*& busy = v_.devices_[device].busy;
  rule(busy == nullptr, "[device-serial] entered while {} runs on the device", busy == nullptr ? "" : busy);
  if (!ok()) return;
  busy = entry_;
  device_ = device;
}

void Call::serial(swy_list* list) {
  swy_device* device = nullptr;
  {
    const std::lock_guard lock(v_.mutex_);
    const auto l = v_.lists_.find(list);
    rule(l != v_.lists_.end(), "the list is foreign or was freed");
    if (!ok()) return;
    device = l->second.device;
  }
  serial(device);
}

void Call::recording(swy_list* list, bool finalized) {
  const std::lock_guard lock(v_.mutex_);
  const auto l = v_.lists_.find(list);
  rule(l != v_.lists_.end(), "the list is foreign or was freed");
  if (!ok()) return;
  Validator::ListState& state = l->second;
  rule(state.finalized == finalized, "{}", finalized ? "the list is not finalized" : "[recording] after list_finalize");
  rule(!state.failed, "next_step failed on this list, which can only be freed");
  rule(state.busy == nullptr, "[recording] entered while {} runs on the list", state.busy == nullptr ? "" : state.busy);
  if (!ok()) return;
  state.busy = entry_;
  list_ = list;
}

void Call::bound_alive(swy_list* list) {
  const std::lock_guard lock(v_.mutex_);
  if (!ok()) return;
  for (swy_buffer* buffer : v_.lists_[list].buffers) {
    rule(v_.buffers_.contains(buffer), "a buffer that the list uses was freed");
  }
}

void Call::inside(swy_device* device, const swy_binding& b, const char* what, uint64_t index) {
  if (b.buffer == nullptr) return rule(b.bytes == 0, "{} {} has {} bytes and no buffer", what, index, b.bytes);
  const std::lock_guard lock(v_.mutex_);
  const auto found = v_.buffers_.find(b.buffer);
  rule(found != v_.buffers_.end(), "the buffer of {} {} is foreign or was freed", what, index);
  if (!ok()) return;
  const Validator::BufferState& state = found->second;
  rule(state.device == device, "the buffer of {} {} belongs to another device", what, index);
  rule(b.offset <= state.bytes && b.bytes <= state.bytes - b.offset, "{} {} is bytes {}+{} of a buffer of {}", what,
       index, b.offset, b.bytes, state.bytes);
}

void Call::aligned(swy_device* device, const swy_binding& b, const char* what, uint64_t index) {
  inside(device, b, what, index);
  const std::lock_guard lock(v_.mutex_);
  if (!ok()) return;
  const uint64_t alignment = v_.devices_[device].alignment;
  rule(b.offset % alignment == 0, "{} {} begins at byte {}, which is not a multiple of {}", what, index, b.offset,
       alignment);
}

void Call::filled(uint32_t given, uint32_t now) {
  rule(now >= sizeof(uint32_t) && now <= given, "filled a struct_size of {} where {} was given", now, given);
}

void Call::answered(swy_status status) {
  rule(status >= SWY_OK && status <= SWY_ABI_MISMATCH, "returned the unknown status {}", status);
  const bool beyond = std::any_of(text_ + kCapacity, text_ + sizeof text_, [](char c) { return c != kUnwritten; });
  const size_t length = ::strnlen(text_, kCapacity);
  text_[sizeof text_ - 1] = '\0';
  rule(!beyond, "wrote beyond the error text's capacity of {}", kCapacity);
  rule(length < kCapacity, "the error text does not end in NUL");
  if (status == SWY_OK) return;
  rule(length > 0, "failed with status {} and no error text", status);
  rule(std::strchr(text_, '\n') == nullptr, "the error text is more than one line");
}

swy_status Call::report(swy_status status) {
  reported_ = true;
  rule(!no_alloc_.allocated, "allocated memory of the host in a [no-alloc] entry");
  {
    const std::lock_guard lock(v_.mutex_);
    if (violation_.empty()) violation_.swap(v_.pending_);
  }
  const std::string& text = violation_.empty() ? text_ : violation_;
  if (caller_ != nullptr) {
    caller_->reason = violation_.empty() ? error_.reason : swy_reason{SWY_REASON_NONE};
    if (caller_->message != nullptr && caller_->capacity > 0) {
      const size_t length = std::min<size_t>(text.size(), caller_->capacity - 1);
      std::memcpy(caller_->message, text.data(), length);
      caller_->message[length] = '\0';
    }
  }
  return violation_.empty() ? status : SWY_INTERNAL;
}

}  // namespace switchyard
