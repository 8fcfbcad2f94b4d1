// Copies that are too small for a copy engine.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gpu {

constexpr uint64_t kMostByKernel = 64 * 1024;

// Puts a copy on a stream; one of the ends is page-locked memory, the other may be. The device is current.
cudaError_t copy_small(void* to, const void* from, uint64_t bytes, cudaStream_t stream);

}  // namespace gpu
