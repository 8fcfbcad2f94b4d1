// SPDX-License-Identifier: Apache-2.0
// EMBEDDING: y [rows, hidden] = table[token of the row], the token from the step or from the device's token buffer.
#include "common/device_code.cuh"
#include "host/kernels.h"

namespace gpu {
namespace {

__global__ void embed(const __grid_constant__ Weight table, const int32_t* tokens, float* y, const swy_step* step) {
  Stamps stamps(kStampEmbedding);
  stamps.take_place();
  release_next();  // the first projection takes longer to prepare than this kernel runs
  depend();
  stamps.note(kWaited);
  const uint32_t row = blockIdx.x;
  if (row >= step->rows) return;
  const uint32_t id = entry_of(step_array<int32_t>(step, step->row_token_at)[row], tokens, table);
  float* to = y + uint64_t{row} * table.width;
  for (uint32_t i = blockIdx.y * blockDim.x + threadIdx.x; i < table.width; i += gridDim.y * blockDim.x) {
    to[i] = weight_at(table, id, i);
  }
}

swy_status record_embedding(const Recording& r) {
  const swy_tensor& y = swy::tensor(r.op, "y");
  const uint32_t parts = ceil_div(y.dims[1], 256);
  return launch(r.with(FastMemory::shared), embed, dim3(static_cast<uint32_t>(y.dims[0]), parts < 16 ? parts : 16), 256,
                0, r.operands.weight("table"), r.list.tokens, r.operands.output("y"), r.list.step);
}

double cost_embedding(const swy_device& device, const swy_op& op, const swy_bucket&) {
  return cost_of(device, row_bytes(op), 0);
}

constexpr Kernel kKernels[] = {{.name = "embedding.plain",
                                .op = SWY_OP_EMBEDDING,
                                .flags = kInvariant,
                                .activations = SWY_F32,
                                .cost = cost_embedding,
                                .record = record_embedding,
                                .weight_dtypes = kMatrices}};

}  // namespace

std::span<const Kernel> embedding_kernels() { return kKernels; }

}  // namespace gpu
