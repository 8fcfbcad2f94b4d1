// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/cancel.h"

#include <map>
#include <mutex>
#include <string_view>

namespace switchyard {
namespace {

struct Cancellable {
  const char* label;
  const swy_cancel* cancel;
};

std::mutex devices_mutex;  // held while a device is asked, so that it is not closed meanwhile
std::map<swy_device*, Cancellable>& devices() {
  static auto* const all = new std::map<swy_device*, Cancellable>;  // never freed: a thread may look while all ends
  return *all;
}

}  // namespace

void keep_cancel(const PlanDevice& device) {
  if (device.api->get_extension == nullptr) return;
  const auto* cancel = static_cast<const swy_cancel*>(device.api->get_extension(device.handle, SWY_EXT_CANCEL));
  if (cancel == nullptr || !SWY_HAS(swy_cancel, cancel, cancel) || cancel->cancel == nullptr) return;
  const std::lock_guard lock(devices_mutex);
  devices()[device.handle] = {device.label, cancel};
}

void forget_cancel(const PlanDevice& device) {
  const std::lock_guard lock(devices_mutex);
  devices().erase(device.handle);
}

bool cancel_device(const char* label) {
  const std::lock_guard lock(devices_mutex);
  bool asked = false;
  for (const auto& [handle, c] : devices()) {
    if (std::string_view(c.label) != label) continue;
    c.cancel->cancel(handle);
    asked = true;
  }
  return asked;
}

}  // namespace switchyard
