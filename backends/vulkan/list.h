// SPDX-License-Identifier: Apache-2.0
// A command list, during and after its recording.
#pragma once

#include "pipelines.h"
#include "switchyard/step.h"

namespace gpu {

// Bytes of device memory, by address.
struct Span {
  uint64_t address = 0, bytes = 0;
};

// A weight in its canonical encoding (weights.h). A file's segment is uploaded as it is; shaders find the planes from
// the address, the rows and the width (weights.glsl).
struct Weight {
  uint64_t data = 0;
  uint32_t rows = 0;  // of all leading dims
  uint32_t width = 0;
  uint32_t form = 0;  // encoding and group, for a specialization constant: dtype | group << 8; group 0: one per row
};

// One launch. Kept until the list is finalized, so that the pipelines can be made in the meantime, all at once.
struct Dispatch {
  Pipeline* pipeline = nullptr;
  uint32_t push_bytes = 0;
  unsigned char push[kPushBytes] = {};
  uint32_t x = 1, y = 1, z = 1;  // workgroups
  bool waits = false;            // for all launches before it
  const char* kernel = nullptr;
};

// The norm that was recorded last: a kernel that reads its result can compute it itself, and need not wait for it.
struct NotedNorm {
  Span x, y;
  uint64_t weight = 0;
  uint32_t form = 0;
  float eps = 0, bias = 0;
  size_t at = SIZE_MAX;  // launches that were recorded before and with it
};

// The LINEAR_ADD of one row by products of bytes that was recorded last: a kernel that reads its result can compute it,
// too.
struct NotedAdd {
  Span x, residual, y;
  Weight weight;
  size_t at = SIZE_MAX;  // as above
};

}  // namespace gpu

struct swy_list {
  swy_device* device = nullptr;
  swy_bucket bucket{};
  uint64_t step = 0;  // addresses
  gpu::Span tokens;
  std::vector<gpu::Dispatch> dispatches;
  std::vector<gpu::Span> written, read;  // since the last barrier
  gpu::NotedNorm norm;
  gpu::NotedAdd add;
  gpu::Span meeting;                     // counts arrivals of launches whose workgroups wait for each other
  bool begins_operation = false;         // the next launch is the first of its operation
  VkQueryPool queries = VK_NULL_HANDLE;  // timestamps before and after each launch, while profiling is on
  std::vector<uint64_t> ticks;
  std::vector<std::unique_ptr<gpu::Block>> counters;  // zero between launches
  uint64_t counters_used = 0;                         // bytes of the last of them
  std::unique_ptr<gpu::Block> constants;              // constants that kernels store while they are recorded
  uint64_t constants_used = 0;
  VkCommandPool pool = VK_NULL_HANDLE;
  VkCommandBuffer commands = VK_NULL_HANDLE;
};

namespace gpu {

// The parameters of a launch, except its push constants.
struct Launch {
  const Shader& shader;
  std::span<const uint32_t> constants;
  uint32_t x = 1, y = 1, z = 1;
  std::span<const Span> reads, writes;  // memory that other kernels write or read: not weights, not the step
};

// Adds a launch, after a barrier if it touches memory that was written since the last one, or writes memory that was
// read.
swy_status add_dispatch(swy_list& list, const Launch& launch, const void* push, uint32_t push_bytes, const char* kernel,
                        swy_error* error);

// Counters of one launch, by which a workgroup knows that it is the last one; the launch leaves them at zero. (The
// counter of meetings, meeting.glsl, is shared by all launches of a list.)
swy_status take_counters(swy_list& list, uint32_t n, Span& out, swy_error* error);

// Copies a few bytes to device memory that lives as long as the list.
swy_status put_constants(swy_list& list, const void* data, uint64_t bytes, Span& out, swy_error* error);

}  // namespace gpu
