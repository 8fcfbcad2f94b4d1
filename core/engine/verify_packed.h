// SPDX-License-Identifier: Apache-2.0
// Whether a program's packed weights are those that its canonical ones make.
#pragma once

#include <set>
#include <span>
#include <string>

#include "core/plugin/device.h"
#include "core/program/program.h"

namespace switchyard {

// Packs every weight that the program also holds in a layout of one of the devices again, one at a time, and compares
// the bytes. Returns the layouts ("cuda.tiles/2") that no device packs, or only in another revision; they were not
// compared. `progress` is called as by Program::verify_weights. Errors: invalid_data, with the weight and the layout;
// those of packing; cancelled.
Result<std::set<std::string>> verify_packed(const Program& program, std::span<const PlanDevice> devices,
                                            const Program::Progress& progress = {});

}  // namespace switchyard
