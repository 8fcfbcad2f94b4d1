// SPDX-License-Identifier: Apache-2.0
// Spans: a device's data for swy.profile/1: the spans of finished lists until the host collects them, and the names
// that they point to. One thread at a time, except name().
#pragma once

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "switchyard/extensions.h"

namespace swy {

class Spans {
 public:
  bool on() const { return on_; }
  uint64_t lost() const { return lost_; }  // that did not fit

  // Switched on, it begins empty. Throws std::bad_alloc.
  void enable(bool on) {
    on_ = on;
    if (!on) return;
    spans_.clear();
    spans_.reserve(SWY_PROFILE_SPANS);
    lost_ = 0;
  }
  // `kernel` outlives the device: a kernel's own name, or one of name(). Ticks are the device's.
  void keep(const char* kernel, uint64_t begin, uint64_t end) {
    if (spans_.size() == SWY_PROFILE_SPANS) {
      ++lost_;
    } else {
      spans_.push_back({kernel, begin, end});
    }
  }
  // Moves the oldest, `most` of them at most, to `to`, and returns how many.
  uint32_t collect(swy_profile_span* to, uint32_t most) {
    const size_t n = std::min<size_t>(most, spans_.size());
    std::copy_n(spans_.begin(), n, to);
    spans_.erase(spans_.begin(), spans_.begin() + static_cast<std::ptrdiff_t>(n));
    return static_cast<uint32_t>(n);
  }
  // The same text, for as long as this lives. Lists may be recorded by several threads. Throws std::bad_alloc.
  const char* name(std::string text) {
    const std::lock_guard lock(mutex_);
    return names_.insert(std::move(text)).first->c_str();
  }

 private:
  bool on_ = false;
  uint64_t lost_ = 0;
  std::vector<swy_profile_span> spans_;
  std::mutex mutex_;  // over names_
  std::set<std::string> names_;
};

}  // namespace swy
