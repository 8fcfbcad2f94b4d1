// SPDX-License-Identifier: Apache-2.0
// What the kernels may use of a card. All cards from Ampere on have cp.async and products of bytes and of bf16
// (mma.sync), so there is no feature for these.
#pragma once

#include <cstdint>
#include <string_view>

#include "switchyard/plugin.h"

struct cudaDeviceProp;

namespace gpu {

constexpr int kLeastCapability = 80, kCopyEngineCapability = 90, kWgmmaCapability = 90;

struct Features {
  int capability = 0;             // 90 for 9.0
  bool copy_engine = false;       // from 9.0 on: tensor maps, barriers that count bytes, clusters of blocks
  bool dependent_launch = false;  // from 9.0 on: a kernel begins while the earlier one runs
  bool wgmma = false;             // 9.0 alone
  // Shared memory that a block may have, that a multiprocessor has, and what each block takes beside what it asks for.
  uint32_t block_memory = 0, processor_memory = 0, reserved = 0;
};

// Those of a device for which code of `code`, such as 90, was loaded. `card`: the user's value of kCard, which hides
// what such a card lacks.
swy_status features_of(const cudaDeviceProp& device, int code, std::string_view card, Features* out, swy_error* error);

}  // namespace gpu
