// SPDX-License-Identifier: Apache-2.0
// MLP and MLP_ADD: y [rows, out] = down act(gate x, up x) (+ residual), by the shaders of LINEAR and SILU_MUL.
//
//   *.vector, *.dot, *.plain           as those of LINEAR (linear.cpp)
//   *.tiles, *.cooperative             for prompts (tiles.h)
#include "activation.h"
#include "tiles.h"

namespace gpu {
namespace {

constexpr uint32_t kLeastRows = 9;  // of tiles

// The operands, and what lies between the products.
struct Mlp {
  Projection in, out;  // gate and up; down
  Span gate, up;       // [rows, width]; act(gate, up) replaces gate
  uint32_t rows = 0;
};
uint32_t rows_of(const swy_op& op) { return static_cast<uint32_t>(swy::tensor(op, "x").dims[0]); }
uint32_t hidden_of(const swy_op& op) { return static_cast<uint32_t>(swy::tensor(op, "x").dims[1]); }
uint32_t width_of(const swy_op& op) { return static_cast<const swy_mlp_attrs*>(op.attrs)->width; }

Mlp mlp_of(const Recording& r, Arena& arena) {
  Mlp m;
  m.rows = rows_of(r.op);
  const uint64_t bytes = uint64_t{m.rows} * width_of(r.op) * 4;
  m.gate = arena.take(bytes);
  m.up = arena.take(bytes);
  m.in.x = r.operands.input("x");
  m.in.width = hidden_of(r.op);
  m.in.weights[0] = r.operands.weight("gate");
  m.in.weights[1] = r.operands.weight("up");
  m.in.y[0] = m.gate;
  m.in.y[1] = m.up;
  m.in.count = 2;
  m.out.x = m.gate;
  m.out.residual = r.operands.input("residual");
  m.out.width = width_of(r.op);
  m.out.weights[0] = r.operands.weight("down");
  m.out.y[0] = r.operands.output("y");
  m.out.count = 1;
  m.in.domain = m.out.domain = swy::tensor(r.op, "x").rows;
  return m;
}

swy_status record_middle(const Recording& r, const Mlp& m) {
  const Activation act = activation_of(r.attrs<swy_mlp_attrs>());
  return record_activation(r, act, m.gate, m.up, m.gate, m.rows, m.out.width, m.out.domain);
}

template <bool kBytes>
swy_status record_vector(const Recording& r) {
  Arena arena(r.operands.workspace());
  const Mlp m = mlp_of(r, arena);
  SWY_VK_TRY(record_projection(r, m.in, m.rows, kBytes));
  SWY_VK_TRY(record_middle(r, m));
  return record_projection(r, m.out, m.rows, kBytes);
}
swy_status record_plain(const Recording& r) {
  Arena arena(r.operands.workspace());
  const Mlp m = mlp_of(r, arena);
  SWY_VK_TRY(record_projection_plain(r, m.in, m.rows));
  SWY_VK_TRY(record_middle(r, m));
  return record_projection_plain(r, m.out, m.rows);
}

template <bool kHalf>
swy_status record_product(const Recording& r, const Projection& p, uint32_t rows, Arena& arena) {
  Staged staged;
  staged.rows = p.x;
  if (kHalf) {
    staged = take_staged(arena, rows, p.width, true);
    SWY_VK_TRY(record_staging(r, p, {}, staged, rows, true));
  }
  return record_projection_tiles(r, p, staged, rows, kHalf);
}
template <bool kHalf>
swy_status record_tiles(const Recording& r) {
  Arena arena(r.operands.workspace());
  const Mlp m = mlp_of(r, arena);
  SWY_VK_TRY(record_product<kHalf>(r, m.in, m.rows, arena));
  SWY_VK_TRY(record_middle(r, m));
  return record_product<kHalf>(r, m.out, m.rows, arena);
}

template <bool kHalf>
uint64_t workspace(const swy_device&, const swy_op& op, const swy_bucket&) {
  Arena arena;
  for (uint32_t i = 0; i < 2; ++i) arena.take(uint64_t{rows_of(op)} * width_of(op) * 4);
  if (kHalf) {
    take_staged(arena, rows_of(op), hidden_of(op), true);
    take_staged(arena, rows_of(op), width_of(op), true);
  }
  return arena.used();
}

// The rows of `down` may have any width: record_projection divides them.
template <bool kBytes>
swy_status supports_vector(const swy_device& device, const swy_op& op, const swy_bucket&, swy_error* error) {
  if (kBytes) SWY_VK_TRY(dot_usable(device, error));
  SWY_VK_TRY(vector_usable(device, op, {swy::at(op, "gate"), 2}, hidden_of(op), kBytes, error));
  return pieces_usable(op, {swy::at(op, "down"), 1}, error);
}
template <bool kHalf>
swy_status supports_tiles(const swy_device&, const swy_op& op, const swy_bucket&, swy_error* error) {
  if (rows_of(op) < kLeastRows) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "serves %u rows and more", kLeastRows);
  }
  return tiles_usable(op, {0, op.weight_count}, kHalf, error);
}
swy_status supports_cooperative(const swy_device& device, const swy_op& op, const swy_bucket& bucket,
                                swy_error* error) {
  if (!device.features.cooperative) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "the device has no cooperative matrices of fp16");
  }
  return supports_tiles<true>(device, op, bucket, error);
}

// The costs of LINEAR, with one launch more for act.
double elements_of(const swy_op& op) {
  double n = 0;
  for (uint32_t i = 0; i < op.weight_count; ++i)
    n += static_cast<double>(op.weights[i]->dims[0] * op.weights[i]->dims[1]);
  return n;
}
double cost_vector(const swy_op& op, const swy_bucket&) {
  double bytes = row_bytes(op) + 12.0 * rows_of(op) * width_of(op);
  for (uint32_t i = 0; i < op.weight_count; ++i) bytes += weight_bytes(*op.weights[i]);
  return 11 + bytes / 1.4e6 + elements_of(op) * (rows_of(op) - 1.0) / 3e6;
}
double cost_dot(const swy_op& op, const swy_bucket& bucket) { return 0.7 * cost_vector(op, bucket); }
double cost_plain(const swy_op& op, const swy_bucket& bucket) { return 20 * cost_vector(op, bucket); }
double cost_tiled(const swy_op& op, double launches, double rate, uint32_t tile) {
  const double rows = static_cast<double>(ceil_div(rows_of(op), tile) * tile);
  return launches + (row_bytes(op) + 12 * rows * width_of(op)) / 1e6 + elements_of(op) * rows / rate;
}
double cost_tiles(const swy_op& op, const swy_bucket&) { return cost_tiled(op, 19, 6e6, 64); }
double cost_cooperative(const swy_op& op, const swy_bucket&) { return cost_tiled(op, 31, 60e6, 32); }

constexpr Kernel kernel(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .flags = kInvariant,
          .activations = SWY_F32,
          .supports = supports_vector<false>,
          .cost = cost_vector,
          .workspace = workspace<false>,
          .record = record_vector<false>,
          .weight_dtypes = kMatrices};
}
constexpr Kernel dot_kernel(const char* name, uint32_t op) {
  Kernel k = kernel(name, op);
  k.activations = SWY_BF16;
  k.supports = supports_vector<true>;
  k.cost = cost_dot;
  k.record = record_vector<true>;
  k.weight_dtypes = 0;  // all but MXFP4
  return k;
}
constexpr Kernel plain_kernel(const char* name, uint32_t op) {
  Kernel k = kernel(name, op);
  k.supports = nullptr;
  k.cost = cost_plain;
  k.record = record_plain;
  return k;
}
constexpr Kernel tile_kernel(const char* name, uint32_t op) {
  Kernel k = kernel(name, op);
  k.flags = kAlways;
  k.supports = supports_tiles<false>;
  k.cost = cost_tiles;
  k.record = record_tiles<false>;
  return k;
}
constexpr Kernel cooperative_kernel(const char* name, uint32_t op) {
  Kernel k = tile_kernel(name, op);
  k.activations = SWY_BF16;
  k.supports = supports_cooperative;
  k.cost = cost_cooperative;
  k.workspace = workspace<true>;
  k.record = record_tiles<true>;
  k.weight_dtypes = 0;
  return k;
}
constexpr Kernel kKernels[] = {
    kernel("mlp.vector", SWY_OP_MLP),
    kernel("mlp_add.vector", SWY_OP_MLP_ADD),
    dot_kernel("mlp.dot", SWY_OP_MLP),
    dot_kernel("mlp_add.dot", SWY_OP_MLP_ADD),
    plain_kernel("mlp.plain", SWY_OP_MLP),
    plain_kernel("mlp_add.plain", SWY_OP_MLP_ADD),
    tile_kernel("mlp.tiles", SWY_OP_MLP),
    tile_kernel("mlp_add.tiles", SWY_OP_MLP_ADD),
    cooperative_kernel("mlp.cooperative", SWY_OP_MLP),
    cooperative_kernel("mlp_add.cooperative", SWY_OP_MLP_ADD),
};

}  // namespace

std::span<const Kernel> mlp_kernels() { return kKernels; }

}  // namespace gpu
