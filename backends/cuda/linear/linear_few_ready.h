// SPDX-License-Identifier: Apache-2.0
// Projections of a few rows that the kernel in front has made ready (linear_few.cu): for ranges.
#pragma once

#include "common/few_rows.cuh"
#include "host/kernels.h"

namespace gpu {

struct Projection;

swy_status supports_few(const swy_device& device, const swy_op& op, swy_error* error);
// Memory for the rows, and their place in it.
uint64_t few_rows_bytes(const swy_op& op);
FewRows few_rows_in(char* memory, const swy_op& op);
double few_ready_cost(const swy_device& device, const swy_op& op);
// p.x is not read, and nothing normed. `busy`: multiprocessors that the kernel in front has for itself, or that the
// next one needs; clusters are made for the others, so that none of them begins late.
swy_status record_few_ready(const Recording& r, const Projection& p, const FewRows& ready, uint32_t busy);

}  // namespace gpu
