// SPDX-License-Identifier: Apache-2.0
// The block of device memory that carries a step.
#pragma once

#include "plugins_api/check/case.h"
#include "switchyard/step.h"

namespace switchyard::check {

// Bytes that any step of the case, or a part of one, needs.
uint64_t step_block_bytes(const Case& c, uint32_t newer = 0);

// The step as kernels read it. `number` counts submissions.
// `newer`: bytes by which the structs of the host are longer than ours.
std::vector<std::byte> step_block(const Step& step, const swy_bucket& bucket, uint64_t number, uint32_t newer = 0);

}  // namespace switchyard::check
