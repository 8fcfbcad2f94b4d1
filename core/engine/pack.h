// SPDX-License-Identifier: Apache-2.0
// Packing ahead of time: a program file once more, with weights also in the layouts that a backend reads, so that
// loading it is a memory map.
//
// The canonical form stays in the file: it is what every other backend reads, and this one when its layouts change.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/base/os.h"
#include "core/engine/weights.h"

namespace switchyard {

struct PackOptions {
  uint32_t threads = 1;
  // Packed weights that wait for being written take no more than this, or one tensor's if that is more.
  uint64_t memory_bytes = uint64_t{1} << 30;
  // Called with the bytes written and in all; returning false stops with Code::cancelled.
  std::function<bool(uint64_t done, uint64_t total)> progress;
};

struct PackReport {
  uint64_t file_bytes = 0;
  uint64_t packed_bytes = 0;  // in layouts of the devices
  size_t packed_tensors = 0;
};

// Writes `program` to `output`, with every weight of `uses` that is not canonical packed for its device. Packed forms
// of other backends are copied; older ones of the same layouts are not. The output may be the file that `program` came
// from. Nothing appears there unless all went well. Errors: usage, if the output exists and is not a program;
// unsupported, if the devices read all weights as they are, or have no name for a layout; those of packing; io;
// cancelled.
Result<PackReport> pack_program(Os& os, const Program& program, const std::vector<PlanDevice>& devices,
                                const std::vector<WeightUse>& uses, const std::string& output,
                                const PackOptions& options);

}  // namespace switchyard
