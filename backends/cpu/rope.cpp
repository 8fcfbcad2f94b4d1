// SPDX-License-Identifier: Apache-2.0
// ROPE: heads [rows, heads, head_dim] rotated by the positions of their rows.
#include "rope.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rope.cpp"
#include "simd.h"
// after simd.h
#include <hwy/foreach_target.h>

#include <cmath>

#include "rope-inl.h"

HWY_BEFORE_NAMESPACE();
namespace cpu {
namespace HWY_NAMESPACE {

using Rope = swy::Operands<SWY_OP_ROPE>;

void rope_rows(const swy::Call& call, const Rotation& rotation, uint64_t first, uint64_t last) {
  const auto& a = call.attrs<swy_heads_attrs>();
  const uint32_t* positions = SWY_STEP_ARRAY(call.step, uint32_t, row_position_at);
  const RowRotation row(call, rotation);
  const float* x = call.input(Rope::input("x")) + first * a.heads * a.head_dim;
  float* y = call.output(Rope::output("y")) + first * a.heads * a.head_dim;
  for (uint64_t r = first; r < last; ++r) {
    row.turn(positions[r]);
    for (uint32_t h = 0; h < a.heads; ++h, x += a.head_dim, y += a.head_dim) {
      row.head(x, y);
      if (x != y) std::memcpy(y + a.rotary_dim, x + a.rotary_dim, (a.head_dim - a.rotary_dim) * sizeof(float));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cpu {

Rotation::Rotation(Arena& arena, uint32_t rotary_dim_, float scale_)
    : rotary_dim(rotary_dim_),
      scale(scale_),
      stride((rotary_dim_ / 2 + 7) / 8 * 8),
      rates(arena.take<double>(swy::team_width * stride)),
      turns(arena.take<float>(swy::team_width * 2 * stride)) {}

void Rotation::begin(const swy::Call& call, float theta, const float* inv_freq) const {
  double* mine = rates + call.rank() * stride;
  for (uint32_t i = 0; i < stride; ++i) {
    if (i >= rotary_dim / 2) {
      mine[i] = 0.0;
    } else {
      mine[i] = inv_freq != nullptr ? inv_freq[i] : std::pow(static_cast<double>(theta), -2.0 * i / rotary_dim);
    }
  }
}

namespace {

Rotation rotation_of(Arena& arena, const swy_op& op) {
  const auto& a = *static_cast<const swy_heads_attrs*>(op.attrs);
  return {arena, a.rotary_dim, op.revision == 1 ? 1.0f : a.rope_scale};
}

uint64_t workspace(const swy_op& op, const swy_bucket&) {
  Arena arena(nullptr);
  rotation_of(arena, op);
  return arena.used();
}

void rope(const swy::Call& call) {
  const auto [first, last] = call.split(call.step->rows);
  if (first == last) return;
  Arena arena(call.workspace);
  const Rotation rotation = rotation_of(arena, *call.op);
  rotation.begin(call, call.attrs<swy_heads_attrs>().rope_theta, static_cast<const float*>(call.weight("inv_freq")));
  CPU_BEST(rope_rows)(call, rotation, first, last);
}

constexpr swy::HostKernel kKernels[] = {
    {.name = "rope.vector",
     .op = SWY_OP_ROPE,
     .flags = kElementwise,
     .cost = generic_cost,
     .run = rope,
     .workspace = workspace,
     .serial = small_work,
     .op_revision = 2},
};

}  // namespace

std::span<const swy::HostKernel> rope_kernels() { return kKernels; }

}  // namespace cpu
#endif
