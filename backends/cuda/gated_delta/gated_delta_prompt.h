// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA of prompts whose output becomes the next projection's bytes: for ranges.
#pragma once

#include "grouped/bytes.h"
#include "host/kernels.h"

namespace gpu {

swy_status supports_delta_chunks(const swy_device& device, const swy_op& op, const swy_bucket& bucket,
                                 swy_error* error);
double delta_chunks_cost(const swy_device& device, const swy_op& op, const swy_bucket& bucket);
uint64_t delta_chunks_workspace(const swy_op& op, const swy_bucket& bucket);
// As gated_delta.chunks, but `to` gets the output, and y nothing.
swy_status record_delta_chunks(const Recording& r, char* workspace, const ByteRows& to);

}  // namespace gpu
