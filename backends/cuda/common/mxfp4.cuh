// SPDX-License-Identifier: Apache-2.0
// Elements of MXFP4 as operands of tensor cores.
#pragma once

#include "device_code.cuh"

namespace gpu {

// The numbers of the elements in bits 0 to 3 and 16 to 19. Exponent and fraction where bf16 has them are a number times
// 2^-126.
__device__ inline __nv_bfloat162 mxfp4_pair(uint32_t q) {
  const uint32_t bits = (q & 0x00070007u) << 6 | (q & 0x00080008u) << 12;
  return __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&bits), __float2bfloat162_rn(0x1p126f));
}

}  // namespace gpu
