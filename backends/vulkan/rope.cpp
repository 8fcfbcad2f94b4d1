// SPDX-License-Identifier: Apache-2.0
// ROPE: heads rotated by the positions of their rows (rope.comp).
#include "rope.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace gpu {

swy_status put_turns(const Recording& r, uint32_t rotary_dim, float theta, Span& out) {
  std::vector<uint64_t> turns(std::max<uint32_t>(rotary_dim / 2, 1));
  for (uint32_t i = 0; i < rotary_dim / 2; ++i) {
    const long double part = std::pow(static_cast<long double>(theta), -2.0L * i / rotary_dim) / (2 * M_PIl);
    turns[i] = static_cast<uint64_t>(part * 0x1p64L);
  }
  return put_constants(r.list, turns.data(), turns.size() * 8, out, r.error);
}

swy_status rotation_of(const Recording& r, uint32_t rotary_dim, float theta, float rope_scale, Rotation& out) {
  if (r.op.revision == 1) {
    Span turns;
    SWY_VK_TRY(put_turns(r, rotary_dim, theta, turns));
    out.turns = turns.address;
    return SWY_OK;
  }
  out = {r.operands.weight("inv_freq").data, 1, std::bit_cast<uint32_t>(rope_scale)};
  return SWY_OK;
}

namespace {

#include "rope.comp.h"
constexpr Shader kRope = SWY_SHADER(rope_comp);

swy_status record_rope(const Recording& r) {
  struct {
    uint64_t x, y, turns, step;
    uint32_t width, head_dim, rotary, unused;
  } push{};
  const auto& a = r.attrs<swy_heads_attrs>();
  const swy_tensor& t = swy::tensor(r.op, "x");
  const Span x = r.operands.input("x"), y = r.operands.output("y");
  Rotation rotation;
  SWY_VK_TRY(rotation_of(r, a.rotary_dim, a.rope_theta, a.rope_scale, rotation));
  push = {x.address,    y.address, rotation.turns, r.step(), static_cast<uint32_t>(t.dims[1]), a.head_dim,
          a.rotary_dim, 0};
  const Grid grid{at_most(ceil_div(t.dims[1], kThreads), 64), at_most(static_cast<uint32_t>(t.dims[0]), 4096)};
  return launch(r, kRope, {rotation.table, rotation.scale_bits}, grid, push, {x}, {y});
}

double cost_rope(const swy_op& op, const swy_bucket&) { return cost_of(row_bytes(op), 0); }

constexpr Kernel kKernels[] = {{.name = "rope.plain",
                                .op = SWY_OP_ROPE,
                                .flags = kInvariant,
                                .activations = SWY_F32,
                                .cost = cost_rope,
                                .record = record_rope,
                                .op_revision = 2}};

}  // namespace

std::span<const Kernel> rope_kernels() { return kKernels; }

}  // namespace gpu
