// SPDX-License-Identifier: Apache-2.0
// EMBEDDING: y [rows, hidden] = table[token of the row], from the canonical table.
#include <algorithm>

#include "kernels.h"

namespace cpu {
namespace {

using Embedding = swy::Operands<SWY_OP_EMBEDDING>;

// An id outside the table gives a row of zeros. (The host refuses such ids, but a device's token buffer could hold
// one.)
void embedding(const swy::Call& call) {
  const swy_tensor& table = *call.op->weights[Embedding::weight("table")];
  const void* data = call.weights[Embedding::weight("table")];
  swy_weight_planes planes;
  if (swy_weight_planes_of(&table, &planes) != 0) return;
  const uint64_t width = table.dims[1];
  const int32_t* ids = SWY_STEP_ARRAY(call.step, int32_t, row_token_at);
  const auto [first, last] = call.split(call.step->rows);
  for (uint64_t r = first; r < last; ++r) {
    float* y = call.output(Embedding::output("y")) + r * width;
    const int32_t id = ids[r] >= 0 ? ids[r] : call.tokens[-1 - ids[r]];
    if (id >= 0 && static_cast<uint64_t>(id) < table.dims[0]) {
      swy_weight_row(&table, &planes, data, static_cast<uint64_t>(id), y);
    } else {
      std::fill_n(y, width, 0.0f);
    }
  }
}

constexpr swy::HostKernel kKernels[] = {
    {.name = "embedding.plain",
     .op = SWY_OP_EMBEDDING,
     .weight_dtypes = kMatrices,
     .cost = generic_cost,
     .run = embedding},
};

}  // namespace

std::span<const swy::HostKernel> embedding_kernels() { return kKernels; }

}  // namespace cpu
