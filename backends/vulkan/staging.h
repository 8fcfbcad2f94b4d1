// SPDX-License-Identifier: Apache-2.0
// Staging memory of the ring, and how a copy takes one.
#pragma once

#include "device.h"

namespace gpu {

// Staging memory that only the holder touches, until this goes out of scope.
class Held {
 public:
  Held() = default;
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    if (staging_ != nullptr) staging_->busy.store(false, std::memory_order_release);
  }
  Staging& operator*() const { return *staging_; }
  Staging* operator->() const { return staging_; }
  explicit operator bool() const { return staging_ != nullptr; }

 private:
  friend swy_status take(swy_device& device, uint64_t bytes, Held& out, swy_error* error);
  Staging* staging_ = nullptr;
};

// Takes staging memory for at most StagingRing::kLarge bytes, once its previous copy is done, with its command buffer
// begun. Locks, but not while it waits.
swy_status take(swy_device& device, uint64_t bytes, Held& out, swy_error* error);
// Ends its command buffer and enqueues it; `done` says when the copy is complete.
swy_status put(swy_device& locked, Staging& staging, swy_error* error);

}  // namespace gpu
