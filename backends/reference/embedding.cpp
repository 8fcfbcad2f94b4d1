// SPDX-License-Identifier: Apache-2.0
// EMBEDDING: y [rows, hidden] = table[token of the row].
#include "arithmetic.h"
#include "kernels.h"

namespace reference {
namespace {

// An id outside the table gives a row of zeros. (The host refuses such ids, but a device's token buffer could hold
// one.)
void embedding(const swy::Call& call) {
  const Weight table(call, "table");
  const uint64_t width = table.width();
  float* out = call.output("y");
  const int32_t* ids = SWY_STEP_ARRAY(call.step, int32_t, row_token_at);
  const auto [first, last] = call.split(call.step->rows);
  for (uint64_t r = first; r < last; ++r) {
    float* y = out + r * width;
    const int32_t id = ids[r] >= 0 ? ids[r] : call.tokens[-1 - ids[r]];
    const bool known = id >= 0 && static_cast<uint64_t>(id) < table.rows();
    const float* row = known ? table.row(static_cast<uint64_t>(id), y) : nullptr;
    for (uint64_t i = 0; row != y && i < width; ++i) y[i] = known ? row[i] : 0.0f;
  }
}

double embedding_cost(const swy_op& op, const swy_bucket&) {
  const swy_tensor& y = swy::tensor(op, "y");
  return cost_of(static_cast<double>(y.dims[0] * y.dims[1]));
}

constexpr swy::HostKernel kKernels[] = {
    {.name = "embedding.plain",
     .op = SWY_OP_EMBEDDING,
     .weight_dtypes = kMatrices,
     .cost = embedding_cost,
     .run = embedding},
};

}  // namespace

std::span<const swy::HostKernel> embedding_kernels() { return kKernels; }

}  // namespace reference
