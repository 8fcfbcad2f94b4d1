// SPDX-License-Identifier: Apache-2.0
// A device's peak rates, measured through the plugin ABI.
#pragma once

#include "core/base/status.h"
#include "core/plugin/device.h"

namespace switchyard::bench {

// Bytes per second, in 1e9, at which the device zeroes a gigabyte of its own memory (or a quarter of the free memory,
// if that is less). This is the only thing that the ABI lets any device do to its memory at full speed. Reads may be a
// little faster. Errors: those of the device.
Result<double> probe_device(const PlanDevice& device);

}  // namespace switchyard::bench
