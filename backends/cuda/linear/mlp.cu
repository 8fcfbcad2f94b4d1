// SPDX-License-Identifier: Apache-2.0
// MLP and MLP_ADD: y [rows, out] = down act(gate x, up x) (+ residual), by the kernels of LINEAR and SILU_MUL.
//
//   *.vector, *.plain   as those of LINEAR (linear.cu)
//   *.tiles             for prompts (linear_tiles.cu)
//
// Other kernels of LINEAR serve the decomposed operation.
#include "elementwise/add.h"
#include "linear_tiles.h"

namespace gpu {
namespace {

uint32_t rows_of(const swy_op& op) { return static_cast<uint32_t>(swy::tensor(op, "x").dims[0]); }
uint32_t hidden_of(const swy_op& op) { return static_cast<uint32_t>(swy::tensor(op, "x").dims[1]); }
uint32_t width_of(const swy_op& op) { return static_cast<const swy_mlp_attrs*>(op.attrs)->width; }

// The operands, and what lies between the products: act(gate, up) replaces gate, [rows, width].
struct Mlp {
  Projection in, out;
  uint32_t rows;
};
Mlp mlp_of(const Recording& r, Arena& arena) {
  Mlp m{};
  m.rows = rows_of(r.op);
  const auto add = [&](Projection& p, swy::OperandName name, float* y) {
    const Weight w = r.operands.weight(name);
    p.weights[p.count] = w;
    p.forms |= form_of(w.dtype);
    p.y[p.count++] = y;
  };
  const uint64_t between = uint64_t{m.rows} * width_of(r.op);
  m.in.x = r.operands.input("x");
  m.in.width = hidden_of(r.op);
  add(m.in, "gate", arena.take<float>(between));
  add(m.in, "up", arena.take<float>(between));
  m.out.x = m.in.y[0];
  m.out.residual = r.operands.input("residual");
  m.out.width = width_of(r.op);
  add(m.out, "down", r.operands.output("y"));
  m.in.domain = m.out.domain = swy::tensor(r.op, "x").rows;
  return m;
}

// `product`: records a projection of so many rows.
template <class Product>
swy_status record_with(const Recording& r, Mlp& m, Product product) {
  SWY_CUDA_TRY(product(m.in, m.rows));
  SWY_CUDA_TRY(record_activation(r, activation_of(r.attrs<swy_mlp_attrs>()), m.in.y[0], m.in.y[1], m.in.y[0], m.rows,
                                 m.out.width, m.out.domain));
  return product(m.out, m.rows);
}

swy_status record_vector(const Recording& r) {
  Arena arena(r.operands.workspace());
  Mlp m = mlp_of(r, arena);
  return record_with(r, m, [&](Projection& p, uint32_t rows) { return record_projection(r, p, rows); });
}
swy_status record_plain(const Recording& r) {
  Arena arena(r.operands.workspace());
  Mlp m = mlp_of(r, arena);
  return record_with(r, m, [&](Projection& p, uint32_t rows) { return record_projection_plain(r, p, rows); });
}
swy_status record_tiles(const Recording& r) {
  Arena arena(r.operands.workspace());
  Mlp m = mlp_of(r, arena);
  return record_with(r, m, [&](Projection& p, uint32_t rows) {
    return record_projection_tiles(r, p, arena.take<uint16_t>(permuted_elements(rows, p.width)), rows);
  });
}

uint64_t workspace(const swy_device&, const swy_op& op, const swy_bucket&) {
  Arena arena(nullptr);
  for (uint32_t i = 0; i < 2; ++i) arena.take<float>(uint64_t{rows_of(op)} * width_of(op));
  return arena.used();
}
uint64_t workspace_tiles(const swy_device&, const swy_op& op, const swy_bucket&) {
  Arena arena(nullptr);
  for (uint32_t i = 0; i < 2; ++i) arena.take<float>(uint64_t{rows_of(op)} * width_of(op));
  arena.take<uint16_t>(permuted_elements(rows_of(op), hidden_of(op)));
  arena.take<uint16_t>(permuted_elements(rows_of(op), width_of(op)));
  return arena.used();
}

swy_status supports_vector(const swy_device& device, const swy_op& op, const swy_bucket&, swy_error* error) {
  SWY_CUDA_TRY(vector_usable(device, op, swy::at(op, "gate"), swy::at(op, "up") + 1, error));
  return vector_usable(device, op, swy::at(op, "down"), swy::at(op, "down") + 1, error);
}
swy_status supports_tiles(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  SWY_CUDA_TRY(supports_vector(device, op, bucket, error));
  SWY_CUDA_TRY(tiles_usable(op, swy::at(op, "gate"), rows_of(op), error));
  return tiles_usable(op, swy::at(op, "down"), rows_of(op), error);
}

// Those of LINEAR, with one launch more for act.
struct Work {
  double bytes, elements;
};
Work work_of(const swy_op& op) {
  Work w{row_bytes(op) + 12.0 * rows_of(op) * width_of(op), 0};
  for (uint32_t i = 0; i < op.weight_count; ++i) {
    w.bytes += weight_bytes(*op.weights[i]);
    w.elements += static_cast<double>(op.weights[i]->dims[0] * op.weights[i]->dims[1]);
  }
  return w;
}
double cost_vector(const swy_device& device, const swy_op& op, const swy_bucket&) {
  const Work w = work_of(op);
  const uint32_t rows = rows_of(op);
  const double more = rows == 1 ? 0 : ceil_div(rows, 4) * 4 - 1;
  return 6 + device.rates.bytes(w.bytes, 1.4e6) + device.rates.floats(w.elements * more, 4.5e6);
}
double cost_plain(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  return 20 * cost_vector(device, op, bucket);
}
double cost_tiles(const swy_device& device, const swy_op& op, const swy_bucket&) {
  double products = 0;
  for (uint32_t i = 0; i < op.weight_count; ++i) products += tile_product_cost(device, *op.weights[i], rows_of(op));
  return 12 + device.rates.bytes(row_bytes(op) + 12.0 * rows_of(op) * width_of(op), 2e6) + products;
}

constexpr Kernel vector_kernel(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .flags = kInvariant,
          .activations = SWY_BF16,
          .supports = supports_vector,
          .cost = cost_vector,
          .workspace = workspace,
          .record = record_vector,
          .weight_dtypes = kMatrices};
}
constexpr Kernel plain_kernel(const char* name, uint32_t op) {
  Kernel k = vector_kernel(name, op);
  k.activations = SWY_F32;
  k.supports = nullptr;
  k.cost = cost_plain;
  k.record = record_plain;
  return k;
}
constexpr Kernel tile_kernel(const char* name, uint32_t op) {
  Kernel k = vector_kernel(name, op);
  k.flags = kAlways;
  k.supports = supports_tiles;
  k.cost = cost_tiles;
  k.workspace = workspace_tiles;
  k.record = record_tiles;
  return k;
}
constexpr Kernel kKernels[] = {
    vector_kernel("mlp.vector", SWY_OP_MLP), vector_kernel("mlp_add.vector", SWY_OP_MLP_ADD),
    plain_kernel("mlp.plain", SWY_OP_MLP),   plain_kernel("mlp_add.plain", SWY_OP_MLP_ADD),
    tile_kernel("mlp.tiles", SWY_OP_MLP),    tile_kernel("mlp_add.tiles", SWY_OP_MLP_ADD),
};

}  // namespace

std::span<const Kernel> mlp_kernels() { return kKernels; }

}  // namespace gpu
