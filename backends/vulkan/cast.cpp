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
  const swy_tensor& t = swy::tensor(r.op, "x");
  const Span x = r.operands.input("x"), y = r.operands.output("y");
  push = {x.address, y.address, r.step(), static_cast<uint32_t>(t.dims[1]), t.rows};
  return launch(r, kCast, {t.dtype, swy::tensor(r.op, "y").dtype},
                {at_most(ceil_div(t.dims[0] * t.dims[1], 512), 4096)}, push, {x}, {y});
}

swy_status supports_cast(const swy_device&, const swy_op& op, const swy_bucket&, swy_error* error) {
  const swy_tensor& x = swy::tensor(op, "x");
  if (x.dims[0] * x.dims[1] < (uint64_t{1} << 31)) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "more than 2^31 elements");
}

double cost_cast(const swy_op& op, const swy_bucket&) { return cost_of(row_bytes(op), 0); }

constexpr uint32_t kBoth = SWY_DTYPE_BIT(SWY_F32) | SWY_DTYPE_BIT(SWY_BF16);
constexpr Kernel kKernels[] = {
    {"cast.plain", SWY_OP_CAST, kInvariant, SWY_F32, supports_cast, cost_cast, nullptr, record_cast, kBoth, kBoth}};

}  // namespace

std::span<const Kernel> cast_kernels() { return kKernels; }

}  // namespace gpu
