// SPDX-License-Identifier: Apache-2.0
// An open device as the scheduler sees it, and how devices are ranked.
#pragma once

#include <memory>
#include <string>

#include "switchyard/extensions.h"
#include "switchyard/plugin.h"

namespace switchyard {

class Tuning;

// An open device. Borrows `api` and `handle`.
struct PlanDevice {
  std::string name;     // "cpu:0"
  std::string backend;  // "cpu"
  std::string version;  // of the backend
  const swy_plugin* api = nullptr;
  swy_device* handle = nullptr;
  swy_device_info info{};

  const swy_range* range() const;
};

// How devices are ranked. `ordered`: each operation goes to the earliest device that supports it (with one device: to
// that one). Otherwise cost decides among all, and a device named `last_resort` is used only if no other device can.
struct PlanPolicy {
  bool ordered = true;
  std::string last_resort = "reference";
  // Measurements of this machine (core/plan/tuning.h) that decide between the kernels of one device. NULL: estimates.
  std::shared_ptr<const Tuning> tuning = nullptr;
};

}  // namespace switchyard
