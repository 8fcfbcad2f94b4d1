// SPDX-License-Identifier: Apache-2.0
// LINEAR, LINEAR_ADD and RMS_NORM_LINEAR for prompts (tiles_prepare.comp, linear_tiles.comp).
#include "tiles.h"

namespace gpu {
namespace {

#include "linear_tiles.comp.h"
#include "linear_tiles.cooperative_128.h"
#include "linear_tiles.cooperative_32.h"
#include "linear_tiles.cooperative_64.h"
#include "tiles_prepare.comp.h"
#include "tiles_prepare.half.h"
constexpr Shader kTiles = SWY_SHADER(linear_tiles_comp);
constexpr Shader kCooperative32 = SWY_SHADER(linear_tiles_cooperative_32);
constexpr Shader kCooperative64 = SWY_SHADER(linear_tiles_cooperative_64);
constexpr Shader kCooperative128 = SWY_SHADER(linear_tiles_cooperative_128);
constexpr Shader kPrepare = SWY_SHADER(tiles_prepare_comp), kPrepareHalf = SWY_SHADER(tiles_prepare_half);
constexpr uint32_t kLeastRows = 9;

template <bool kHalf>
swy_status record_tiles(const Recording& r) {
  const Projection p = linear_projection(r);
  const auto rows = static_cast<uint32_t>(swy::tensor(r.op, "x").dims[0]);
  Staged staged;
  staged.rows = p.x;
  if (kHalf || p.normed) {
    Arena arena(r.operands.workspace());
    staged = take_staged(arena, rows, p.width, kHalf);
    SWY_VK_TRY(record_staging(r, p, {}, staged, rows, kHalf));
  }
  return record_projection_tiles(r, p, staged, rows, kHalf);
}

template <bool kHalf>
uint64_t workspace(const swy_device&, const swy_op& op, const swy_bucket&) {
  Arena arena;
  const swy_tensor& x = swy::tensor(op, "x");
  if (kHalf || op.id == SWY_OP_RMS_NORM_LINEAR) take_staged(arena, x.dims[0], x.dims[1], kHalf);
  return arena.used();
}

template <bool kHalf>
swy_status supports_tiles(const swy_device&, const swy_op& op, const swy_bucket&, swy_error* error) {
  if (swy::tensor(op, "x").dims[0] < kLeastRows) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "serves %u rows and more", kLeastRows);
  }
  return tiles_usable(op, matrices_of(op), kHalf, error);
}

swy_status supports_cooperative(const swy_device& device, const swy_op& op, const swy_bucket& bucket,
                                swy_error* error) {
  if (!device.features.cooperative) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "the device has no cooperative matrices of fp16");
  }
  return supports_tiles<true>(device, op, bucket, error);
}

double elements_of(const swy_op& op) {
  const Matrices m = matrices_of(op);
  double n = 0;
  for (uint32_t i = m.first; i < m.first + m.count; ++i)
    n += static_cast<double>(op.weights[i]->dims[0] * op.weights[i]->dims[1]);
  return n;
}
double cost_tiles(const swy_op& op, const swy_bucket&) {
  const double rows = static_cast<double>((swy::tensor(op, "x").dims[0] + 63) / 64 * 64);
  return 8 + row_bytes(op) / 1e6 + elements_of(op) * rows / 6e6;
}
double cost_cooperative(const swy_op& op, const swy_bucket&) {
  const double rows = static_cast<double>((swy::tensor(op, "x").dims[0] + 31) / 32 * 32);
  return 14 + row_bytes(op) / 1.5e6 + elements_of(op) * rows / 60e6;
}

constexpr Kernel tile_kernel(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .flags = kAlways,
          .activations = SWY_F32,
          .supports = supports_tiles<false>,
          .cost = cost_tiles,
          .workspace = workspace<false>,
          .record = record_tiles<false>,
          .op_revision = 2,
          .weight_dtypes = kMatrices};
}
constexpr Kernel cooperative_kernel(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .flags = kAlways,
          .activations = SWY_BF16,
          .supports = supports_cooperative,
          .cost = cost_cooperative,
          .workspace = workspace<true>,
          .record = record_tiles<true>,
          .op_revision = 2};
}
constexpr Kernel kKernels[] = {
    tile_kernel("linear.tiles", SWY_OP_LINEAR),
    tile_kernel("linear_add.tiles", SWY_OP_LINEAR_ADD),
    tile_kernel("rms_norm_linear.tiles", SWY_OP_RMS_NORM_LINEAR),
    cooperative_kernel("linear.cooperative", SWY_OP_LINEAR),
    cooperative_kernel("linear_add.cooperative", SWY_OP_LINEAR_ADD),
    cooperative_kernel("rms_norm_linear.cooperative", SWY_OP_RMS_NORM_LINEAR),
};

}  // namespace

Staged take_staged(Arena& arena, uint64_t rows, uint64_t width, bool half) {
  Staged s;
  if (half) s.scales = arena.take(rows * 4);
  s.rows = arena.take(rows * width * (half ? 2 : 4));
  s.scales_before = half ? static_cast<uint32_t>(s.rows.address - s.scales.address) : 0;
  return s;
}

swy_status record_staging(const Recording& r, const Projection& p, Span tiles, const Staged& to, uint32_t rows,
                          bool half) {
  struct {
    uint64_t x, norm, to, scales, tiles, step;
    uint32_t width, domain;
    float eps, bias;
  } push{};
  push = {p.x.address, p.norm.data, to.rows.address, to.scales.address, tiles.address, r.step(), p.width,
          p.domain,    p.eps,       p.bias};
  return launch(r, half ? kPrepareHalf : kPrepare, {p.normed ? p.norm.form & 0xffu : 0u}, {rows}, push, {p.x, tiles},
                {to.rows, to.scales});
}

swy_status record_projection_tiles(const Recording& r, const Projection& p, const Staged& staged, uint32_t rows,
                                   bool half) {
  const uint32_t wide = half ? 128 : 64;
  for (uint32_t first = 0; first < p.count; first += 4) {
    ProjectionPart part;
    SWY_VK_TRY(take_part(r, p, first, part));
    part.push.x = staged.rows.address;
    part.push.extra = p.residual.address;
    part.push.scales_before = staged.scales_before;
    uint32_t columns = 0;
    for (uint32_t i = 0; i < part.count; ++i) columns += ceil_div(part.push.rows[i], wide);
    const uint32_t flags = part.flags & ~1u, tall = half ? tile_rows(r.device(), rows, columns) : 64;
    SWY_VK_TRY(launch(r,
                      !half         ? kTiles
                      : tall == 128 ? kCooperative128
                      : tall == 64  ? kCooperative64
                                    : kCooperative32,
                      {part.forms[0], part.forms[1], part.forms[2], part.forms[3], flags},
                      {columns, ceil_div(rows, tall)}, part.push, {staged.rows, staged.scales, p.residual},
                      {part.y[0], part.y[1], part.y[2], part.y[3]}));
  }
  return SWY_OK;
}

uint32_t tile_rows(const swy_device& device, uint32_t rows, uint32_t columns) {
  if (rows <= 32) return 32;
  return rows <= 64 || ceil_div(rows, 128) * columns < device.features.processors ? 64 : 128;
}

swy_status tiles_usable(const swy_op& op, Matrices m, bool half, swy_error* error) {
  for (uint32_t i = m.first; i < m.first + m.count; ++i) {
    if (!readable_in_steps(*op.weights[i], half ? 32 : 8)) return refuse_rows(op, i, error);
  }
  return SWY_OK;
}

std::span<const Kernel> linear_tiles_kernels() { return kKernels; }

}  // namespace gpu
