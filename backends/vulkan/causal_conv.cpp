// SPDX-License-Identifier: Apache-2.0
// CAUSAL_CONV: silu of a causal convolution per channel (causal_conv.comp).
#include "kernels.h"

namespace gpu {
namespace {

#include "causal_conv.comp.h"
constexpr Shader kConv = SWY_SHADER(causal_conv_comp);

swy_status record_conv(const Recording& r) {
  struct {
    uint64_t x, conv, state, y, step;
    uint32_t channels, unused;
  } push{};
  const auto& a = r.attrs<swy_gated_delta_attrs>();
  const auto channels = static_cast<uint32_t>(swy::tensor(r.op, "x").dims[1]);
  const Weight conv = r.operands.weight("conv");
  const Span x = r.operands.input("x"), state = r.operands.state("conv_state"), y = r.operands.output("y");
  push = {x.address, conv.data, state.address, y.address, r.step(), channels, 0};
  return launch(r, kConv, {a.key_dim, a.value_dim, a.conv_kernel, conv.form & 15u},
                {ceil_div(channels, kThreads), r.bucket().seqs}, push, {x, state}, {y, state});
}

double cost_conv(const swy_op& op, const swy_bucket&) { return cost_of(row_bytes(op), 0); }

constexpr Kernel kKernels[] = {
    {"causal_conv.plain", SWY_OP_CAUSAL_CONV, kInvariant, SWY_F32, nullptr, cost_conv, nullptr, record_conv}};

}  // namespace

std::span<const Kernel> causal_conv_kernels() { return kKernels; }

}  // namespace gpu
