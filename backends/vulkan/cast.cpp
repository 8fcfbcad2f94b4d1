// SPDX-License-Identifier: Apache-2.0
// CAST: between f32 and bf16, to the nearest, ties to even (cast.comp).
#include "kernels.h"

namespace gpu {
namespace {

#include "cast.comp.h"
constexpr Shader kCast = SWY_SHADER(cast_comp);

swy_status record_cast(const Recording& r) {
  struct {
    uint64_t x, y, step;
    uint32_t width, domain;
  } push{};
  const swy_tensor& t = *r.op.inputs[0];
  const Span x = r.operands.input(0), y = r.operands.output(0);
  push = {x.address, y.address, r.step(), static_cast<uint32_t>(t.dims[1]), t.rows};
  return launch(r, kCast, {t.dtype, r.op.outputs[0]->dtype}, {at_most(ceil_div(t.dims[0] * t.dims[1], 512), 4096)},
                push, {x}, {y});
}

swy_status supports_cast(const swy_device&, const swy_op& op, const swy_bucket&, swy_error* error) {
  if (op.inputs[0]->dims[0] * op.inputs[0]->dims[1] < (uint64_t{1} << 31)) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "more than 2^31 elements");
}

double cost_cast(const swy_op& op, const swy_bucket&) { return cost_of(row_bytes(op), 0); }

constexpr uint32_t kBoth = SWY_DTYPE_BIT(SWY_F32) | SWY_DTYPE_BIT(SWY_BF16);
constexpr Kernel kKernels[] = {
    {"cast.plain", SWY_OP_CAST, kInvariant, SWY_F32, supports_cast, cost_cast, nullptr, record_cast, kBoth, kBoth}};

}  // namespace

std::span<const Kernel> cast_kernels() { return kKernels; }

}  // namespace gpu
