// An open device as the scheduler sees it, and how devices are ranked.
#pragma once

#include <string>

#include "switchyard/extensions.h"
#include "switchyard/plugin.h"

namespace switchyard {

// An open device. Borrows `api` and `handle`.
struct PlanDevice {
  std::string name;     // "cpu:0"
  std::string backend;  // "cpu"
  const swy_plugin* api = nullptr;
  swy_device* handle = nullptr;
  swy_device_info info{};

  const swy_range* range() const;
};

// How devices are ranked. `ordered`: for each operation the earliest device that supports it (one device: it alone).
// Otherwise cost decides over all, and a device named `last_resort` serves only what no other can.
struct PlanPolicy {
  bool ordered = true;
  std::string last_resort = "reference";
};

}  // namespace switchyard
