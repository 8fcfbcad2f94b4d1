// SPDX-License-Identifier: Apache-2.0
// EMBEDDING: y [rows, hidden] = table[token of the row] (embedding.comp).
#include "kernels.h"

namespace gpu {
namespace {

#include "embedding.comp.h"
constexpr Shader kEmbedding = SWY_SHADER(embedding_comp);

swy_status record_embedding(const Recording& r) {
  struct {
    uint64_t table, tokens, y, step;
    uint32_t rows, width;
  } push{};
  const Weight table = r.operands.weight("table");
  const Span y = r.operands.output("y"), tokens = r.list.tokens;
  push = {table.data, tokens.address, y.address, r.step(), table.rows, table.width};
  const Grid grid{at_most(ceil_div(table.width, kThreads), 16), static_cast<uint32_t>(swy::tensor(r.op, "y").dims[0])};
  return launch(r, kEmbedding, {table.form}, grid, push, {tokens}, {y});
}

double cost_embedding(const swy_op& op, const swy_bucket&) { return cost_of(row_bytes(op), 0); }

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
