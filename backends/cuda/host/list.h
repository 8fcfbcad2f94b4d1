// SPDX-License-Identifier: Apache-2.0
// A command list, during and after its recording.
#pragma once

#include <vector>

#include "device.h"
#include "switchyard/step.h"

struct swy_list {
  swy_device* device = nullptr;
  swy_bucket bucket{};
  const swy_step* step = nullptr;  // in the device's memory
  int32_t* tokens = nullptr;
  cudaStream_t capture = nullptr;
  bool capturing = false;
  bool started = false;  // a kernel was recorded
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  uint32_t* counters = nullptr;  // zero between kernels
  uint64_t counters_used = 0;
  gpu::DerivedWeights::Weights derived;  // that its kernels read
  // Timestamps (profile.h), if they were on when the list was begun.
  uint64_t* ticks = nullptr;       // in the device's memory: of the beginning, and of each launch's end
  std::vector<const char*> spans;  // names of the launches
  const char* kernel = nullptr;    // that is being recorded
  bool begins = true;              // it has launched nothing yet
};

namespace gpu {

// Counters of one kernel, by which a block knows that it is the last one; the kernel leaves them at zero.
uint32_t* take_counters(swy_list& list, uint32_t n, swy_error* error);

}  // namespace gpu
