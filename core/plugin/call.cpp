// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/call.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <mutex>
#include <set>

#include "core/base/printable.h"

namespace switchyard {

const char* lasting(const std::string& text) {
  static std::mutex mutex;
  static auto* const texts = new std::set<std::string>;  // never freed
  const std::lock_guard lock(mutex);
  return texts->insert(text).first->c_str();
}

void PluginCall::warn_of_float_fault(const char* backend) {
  static std::mutex mutex;
  static auto* const told = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  if (!told->insert(backend).second) return;
  spdlog::warn(
      "backend {} changed how floating point rounds or flushes to zero in a thread of the host; that was undone, but "
      "results of its own may differ (was it linked with -ffast-math?)",
      backend);
}

namespace {
struct FirstException {
  std::mutex mutex;
  std::string text;
};
FirstException& first() {
  static auto* const one = new FirstException;
  return *one;
}
}  // namespace

std::string first_exception() {
  const std::lock_guard lock(first().mutex);
  return first().text;
}

swy_status exception_left(const char* entry, const char* kernel, const char* what, swy_error* error) {
  {
    const std::lock_guard lock(first().mutex);
    if (first().text.empty()) first().text = fmt::format("{}: {}", entry, printable(what, 200));
  }
  if (error == nullptr || error->message == nullptr || error->capacity == 0) return SWY_INTERNAL;
  const std::string in = kernel == nullptr ? "" : fmt::format(" of kernel {}", printable(kernel));
  const std::string line = fmt::format("the backend threw an exception in {}{}: {}", entry, in, printable(what, 200));
  std::snprintf(error->message, error->capacity, "%s", line.c_str());
  return SWY_INTERNAL;
}

}  // namespace switchyard
