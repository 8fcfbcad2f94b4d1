// SPDX-License-Identifier: Apache-2.0
// An open device as the scheduler sees it, and how devices are ranked.
#pragma once

#include <memory>
#include <string>

#include "switchyard/extensions.h"
#include "switchyard/plugin.h"

namespace switchyard {

struct PlanMemory;
class Tuning;

// An open device. Borrows `api` and `handle`.
struct PlanDevice {
  std::string name;                  // "cpu:0"
  const char* label = "of no name";  // the same, for ever (call.h)
  std::string backend = {};          // "cpu"
  std::string version = {};          // of the backend
  const swy_plugin* api = nullptr;
  swy_device* handle = nullptr;
  swy_device_info info{};
};

// How devices are ranked. `ordered`: each operation goes to the earliest device that supports it (with one device: to
// that one). Otherwise cost decides among all, and a device named `last_resort` is used only if no other device can.
struct PlanPolicy {
  bool ordered = true;
  std::string last_resort = "reference";
  // Measurements of this machine (core/plan/tuning.h) that decide between the kernels of one device. NULL: estimates.
  std::shared_ptr<const Tuning> tuning = nullptr;
  int sampler = -1;  // index of the device that samples; -1: as for any other operation
  // What earlier plans have learned (core/plan/plan_memory.h). NULL: the planner has its own.
  std::shared_ptr<PlanMemory> memory = nullptr;
};

}  // namespace switchyard
