// SPDX-License-Identifier: Apache-2.0
// What moe_bytes.cu uses on cards without wgmma.
#pragma once

#include "host/kernels.h"

namespace gpu {

swy_status record_byte_tiles(const Recording& r);
uint64_t byte_tiles_workspace(const swy_op& op);

}  // namespace gpu
