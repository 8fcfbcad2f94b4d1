// SPDX-License-Identifier: Apache-2.0
#include "range_prompt.h"

#include "gated_delta/gated_delta_prompt.h"
#include "linear/linear_bytes.h"

namespace gpu {

bool many_rows_of_prompts(const swy_op* const* ops, const swy_bucket& bucket) {
  return swy::tensor(*ops[1], "x").dims[0] >= kLeastByteRows && (bucket.flags & SWY_BUCKET_DECODE) == 0;
}

swy_status supports_prompts(const swy_device& device, const swy_op* const* ops, const swy_bucket& bucket,
                            swy_error* error) {
  SWY_CUDA_TRY(supports_delta_chunks(device, *ops[0], bucket, error));
  return supports_bytes_ready(device, *ops[1], bucket, error);
}

double cost_of_prompts(const swy_device& device, const swy_op* const* ops, const swy_bucket& bucket) {
  return delta_chunks_cost(device, *ops[0], bucket) + bytes_ready_cost(device, *ops[1], bucket);
}

uint64_t workspace_of_prompts(const swy_op* const* ops, const swy_bucket& bucket) {
  return delta_chunks_workspace(*ops[0], bucket) + bytes_ready_memory(*ops[1]);
}

swy_status record_prompts(const Recording& delta, const Recording& linear, const float* residual, float* y,
                          char* workspace) {
  char* memory = workspace + delta_chunks_workspace(delta.op, delta.bucket());
  const ByteRows rows = bytes_ready_in(memory, linear.op).rows;
  SWY_CUDA_TRY(record_delta_chunks(delta, workspace, rows));
  return record_bytes_ready(linear, rows, residual, y);
}

}  // namespace gpu
