// SPDX-License-Identifier: Apache-2.0
// Open devices that can be asked to end what they are doing (swy.cancel/1), by name.
#pragma once

#include "core/plugin/device.h"

namespace switchyard {

// From here until forget_cancel, which comes before the device is closed. A device without the extension counts, too.
void keep_cancel(const PlanDevice& device);
void forget_cancel(const PlanDevice& device);

// Asks every open device of this name (PlanDevice::label). False: none can be asked. [thread-safe]
bool cancel_device(const char* label);

}  // namespace switchyard
