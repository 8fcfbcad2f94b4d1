// SPDX-License-Identifier: Apache-2.0
// Calls of plugins: each is noted, so that a crash, an exit or a hang in it can be told of; exceptions end here; and
// the way in which the thread's floating point rounds is restored afterwards.
#pragma once

#include <exception>
#include <string>

#include "core/base/call_site.h"
#include "core/base/float_controls.h"
#include "core/plugin/buffer.h"

namespace switchyard {

// `text` for as long as the process lives, so that it can be told of at any time. One copy of each text.
const char* lasting(const std::string& text);

// While it exists, this thread is in `entry` of a plugin. The texts live for ever, and as long as the plugin.
class PluginCall {
 public:
  PluginCall(const char* backend, const char* entry, const char* kernel = nullptr)
      : site_(this_call_site()),
        outer_backend_(site_.backend.load(std::memory_order_relaxed)),
        outer_entry_(site_.entry.load(std::memory_order_relaxed)),
        float_controls_(float_controls()) {
    __atomic_store_n(&site_.kernel, kernel, __ATOMIC_RELAXED);
    site_.entry.store(entry, std::memory_order_relaxed);
    site_.calls.store(site_.calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    site_.backend.store(backend, std::memory_order_release);
  }
  ~PluginCall() {
    if (float_controls() != float_controls_) {
      set_float_controls(float_controls_);
      note_float_fault();
    }
    site_.entry.store(outer_entry_, std::memory_order_relaxed);
    site_.backend.store(outer_backend_, std::memory_order_release);
    if (const char* backend = take_float_fault()) warn_of_float_fault(backend);
  }
  PluginCall(const PluginCall&) = delete;
  PluginCall& operator=(const PluginCall&) = delete;

 private:
  static void warn_of_float_fault(const char* backend);

  CallSite& site_;
  const char *outer_backend_, *outer_entry_;
  uint64_t float_controls_;
};

// "ENTRY: WHAT" of the first exception that a plugin let out in this process; "": none.
std::string first_exception();

// Writes "the backend threw an exception in ENTRY: WHAT" and returns SWY_INTERNAL.
swy_status exception_left(const char* entry, const char* kernel, const char* what, swy_error* error);

// call(swy_error*), which enters the plugin, and its status.
template <class Call>
swy_status call_plugin(const char* backend, const char* entry, const char* kernel, swy_error* error, Call call) {
  const PluginCall now(backend, entry, kernel);
  try {
    return call(error);
  } catch (const std::exception& e) {
    return exception_left(entry, kernel, e.what(), error);
  } catch (...) {
    return exception_left(entry, kernel, "of an unknown type", error);
  }
}
template <class Call>
swy_status call_plugin(const PlanDevice& device, const char* entry, swy_error* error, Call call) {
  return call_plugin(device.label, entry, nullptr, error, call);
}

}  // namespace switchyard
