// SPDX-License-Identifier: Apache-2.0
// KV_APPEND: keys and values of the step's rows to their pages (kv_append.comp).
#include "kernels.h"

namespace gpu {
namespace {

#include "kv_append.comp.h"
constexpr Shader kAppend = SWY_SHADER(kv_append_comp);

swy_status record_append(const Recording& r) {
  struct {
    uint64_t k, v, pages, step;
    uint32_t kv_heads, unused;
  } push{};
  const auto& a = r.attrs<swy_attention_attrs>();
  const swy_tensor& t = swy::tensor(r.op, "k");
  const Span k = r.operands.input("k"), v = r.operands.input("v"), pages = r.operands.state("kv");
  push = {k.address, v.address, pages.address, r.step(), a.kv_heads, 0};
  const Grid grid{at_most(ceil_div(t.dims[1] / 4, kThreads), 64), at_most(static_cast<uint32_t>(t.dims[0]), 4096)};
  return launch(r, kAppend, {a.head_dim, r.device().kv_bf16, 0u}, grid, push, {k, v}, {pages});
}

swy_status supports_append(const swy_device&, const swy_op& op, const swy_bucket&, swy_error* error) {
  const uint32_t head_dim = static_cast<const swy_attention_attrs*>(op.attrs)->head_dim;
  if (head_dim % 4 == 0) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "head_dim is %u; it must be a multiple of 4", head_dim);
}

double cost_append(const swy_op& op, const swy_bucket&) { return cost_of(2 * row_bytes(op), 0); }

constexpr Kernel kKernels[] = {
    {"kv_append.plain", SWY_OP_KV_APPEND, kInvariant, SWY_BF16, supports_append, cost_append, nullptr, record_append}};

}  // namespace

std::span<const Kernel> kv_append_kernels() { return kKernels; }

}  // namespace gpu
