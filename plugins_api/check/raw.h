// SPDX-License-Identifier: Apache-2.0
// Plain device memory, without the guards and poison of Memory; and timelines.
#pragma once

#include <string>

#include "plugins_api/check/plugin.h"

namespace switchyard::check {

class Raw {
 public:
  Raw(const Plugin& p, swy_memory_type type, uint64_t bytes) : p_(p) {
    PluginError e;
    e.expect_ok(p.api().buffer_alloc(p.device(), type, bytes, &buffer_, e.get()), text("buffer_alloc of ", bytes));
    if (buffer_ == nullptr) throw Failure(text("buffer_alloc of ", bytes, " bytes gave no buffer"));
  }
  Raw(const Raw&) = delete;
  Raw& operator=(const Raw&) = delete;
  ~Raw() { p_.api().buffer_free(p_.device(), buffer_); }
  swy_buffer* get() const { return buffer_; }
  void write(uint64_t at, const void* from, uint64_t bytes, const swy_submit* submit = nullptr) const {
    PluginError e;
    e.expect_ok(p_.api().write(p_.device(), buffer_, at, from, bytes, submit, e.get()), "write");
  }
  void read(void* to, uint64_t at, uint64_t bytes, const swy_submit* submit = nullptr) const {
    PluginError e;
    e.expect_ok(p_.api().read(p_.device(), to, buffer_, at, bytes, submit, e.get()), "read");
  }
  void zero(uint64_t at, uint64_t bytes) const {
    PluginError e;
    e.expect_ok(p_.api().fill_zero(p_.device(), buffer_, at, bytes, e.get()), "fill_zero");
  }

 private:
  const Plugin& p_;
  swy_buffer* buffer_ = nullptr;
};

// Throws Unsupported if the device has none.
class Timeline {
 public:
  explicit Timeline(const Plugin& p) : p_(p) {
    if (p.api().timeline_create == nullptr) throw Unsupported("the device has no timelines: the host emulates them");
    PluginError e;
    e.expect_ok(p.api().timeline_create(p.device(), &timeline_, e.get()), "timeline_create");
  }
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;
  ~Timeline() { p_.api().timeline_free(p_.device(), timeline_); }
  swy_timeline_point at(uint64_t value) const { return {timeline_, value}; }
  uint64_t value() const { return p_.api().timeline_value(timeline_); }
  void wait(uint64_t value) const {
    PluginError e;
    e.expect_ok(p_.api().timeline_wait(timeline_, value, 10'000'000'000, e.get()), text("waiting for ", value));
  }
  swy_timeline* get() const { return timeline_; }

 private:
  const Plugin& p_;
  swy_timeline* timeline_ = nullptr;
};

// A submission that waits for one point, raises another, or does neither. The points must outlive it.
inline swy_submit submission(const swy_timeline_point* waits, const swy_timeline_point* signals) {
  return {sizeof(swy_submit), waits != nullptr ? 1u : 0u, waits, signals != nullptr ? 1u : 0u, 0, signals};
}

}  // namespace switchyard::check
