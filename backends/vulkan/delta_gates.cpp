// SPDX-License-Identifier: Apache-2.0
// DELTA_GATES: beta and the decay's logarithm of each value head (delta_gates.comp).
#include "kernels.h"

namespace gpu {
namespace {

#include "delta_gates.comp.h"
constexpr Shader kGates = SWY_SHADER(delta_gates_comp);

swy_status record_gates(const Recording& r) {
  struct {
    uint64_t b, a, a_log, dt_bias, beta, g, step;
    uint32_t value_heads, unused;
  } push{};
  const auto& attrs = r.attrs<swy_gated_delta_attrs>();
  const Weight a_log = r.operands.weight("a_log"), dt_bias = r.operands.weight("dt_bias");
  const Span b = r.operands.input("b"), a = r.operands.input("a"), beta = r.operands.output("beta"),
             g = r.operands.output("g");
  push = {b.address, a.address, a_log.data, dt_bias.data, beta.address, g.address, r.step(), attrs.value_heads, 0};
  const uint32_t types = (a_log.form & 15u) << 4 | (dt_bias.form & 15u) << 8;
  return launch(
      r, kGates, {attrs.key_dim, attrs.value_dim, attrs.conv_kernel, types},
      {ceil_div(attrs.value_heads, kThreads), at_most(static_cast<uint32_t>(swy::tensor(r.op, "b").dims[0]), 4096)},
      push, {b, a}, {beta, g});
}

double cost_gates(const swy_op& op, const swy_bucket&) { return cost_of(row_bytes(op), 0); }

constexpr Kernel kKernels[] = {
    {"delta_gates.plain", SWY_OP_DELTA_GATES, kInvariant, SWY_F32, nullptr, cost_gates, nullptr, record_gates}};

}  // namespace

std::span<const Kernel> delta_gates_kernels() { return kKernels; }

}  // namespace gpu
