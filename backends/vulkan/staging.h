// Stagings of the ring, and how a copy takes one.
#pragma once

#include "device.h"

namespace gpu {

// A staging that nobody else touches until this goes out of scope.
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

// Takes a staging for at most StagingRing::kLarge bytes, once the copy that it carried is done, with its command buffer
// begun. Locks, but not while it waits.
swy_status take(swy_device& device, uint64_t bytes, Held& out, swy_error* error);
// Ends its command buffer and puts it behind all before it; `done` says when the copy is.
swy_status put(swy_device& locked, Staging& staging, swy_error* error);

}  // namespace gpu
