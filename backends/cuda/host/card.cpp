// SPDX-License-Identifier: Apache-2.0
#include "card.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "switchyard/sdk/error.hpp"

namespace gpu {
namespace {

// Cards that another one can stand for, with their shared memory in KiB (CUDA's programming guide, technical
// specifications per compute capability).
struct Card {
  std::string_view name;
  int capability;
  uint32_t block_memory, processor_memory;
};
constexpr Card kCards[] = {{"8.0", 80, 163, 164}, {"8.6", 86, 99, 100},    {"8.9", 89, 99, 100},
                           {"9.0", 90, 227, 228}, {"10.0", 100, 227, 228}, {"12.0", 120, 99, 100}};

}  // namespace

swy_status features_of(const cudaDeviceProp& device, int code, std::string_view card, Features* out, swy_error* error) {
  Features f;
  f.capability = device.major * 10 + device.minor;
  f.block_memory = static_cast<uint32_t>(device.sharedMemPerBlockOptin);
  f.processor_memory = static_cast<uint32_t>(device.sharedMemPerMultiprocessor);
  f.reserved = static_cast<uint32_t>(device.reservedSharedMemPerBlock);
  int least = std::min(f.capability, code);
  bool wgmma = f.capability == kWgmmaCapability;
  if (card != "auto") {
    const auto* found =
        std::find_if(std::begin(kCards), std::end(kCards), [&](const Card& c) { return c.name == card; });
    if (found == std::end(kCards)) {
      return swy::fail(error, SWY_INVALID_ARGUMENT, SWY_REASON_NONE,
                       "card is one of auto, 8.0, 8.6, 8.9, 9.0, 10.0 and 12.0, not '%.*s'",
                       static_cast<int>(card.size()), card.data());
    }
    f.capability = found->capability;
    f.block_memory = std::min(f.block_memory, found->block_memory * 1024);
    f.processor_memory = std::min(f.processor_memory, found->processor_memory * 1024);
    least = std::min(least, f.capability);
    wgmma = wgmma && f.capability == kWgmmaCapability;
  }
  f.copy_engine = f.dependent_launch = least >= kCopyEngineCapability;
  f.wgmma = wgmma && least >= kWgmmaCapability;
  *out = f;
  return SWY_OK;
}

}  // namespace gpu
