// SPDX-License-Identifier: Apache-2.0
// LM_HEAD: logits f32 [logit rows, vocab] = x[logit_row[i]] * w^T, by the shaders of LINEAR; and LM_HEAD_SAMPLE, which
// keeps them in the workspace.
#include "projection.h"
#include "sample.h"

namespace gpu {
namespace {

Projection head_projection(const Recording& r, Span logits) {
  Projection p;
  p.x = r.operands.input("x");
  p.width = static_cast<uint32_t>(swy::tensor(r.op, "x").dims[1]);
  p.domain = SWY_ROWS_LOGITS;
  p.gather = true;
  p.weights[0] = r.operands.weight("w");
  p.y[0] = logits;
  p.count = 1;
  return p;
}

uint32_t rows_of(const swy_op& op) { return static_cast<uint32_t>(swy::tensor(op, "logits").dims[0]); }

template <bool kBytes>
swy_status record_vector(const Recording& r) {
  return record_projection(r, head_projection(r, r.operands.output("logits")), rows_of(r.op), kBytes);
}
swy_status record_plain(const Recording& r) {
  return record_projection_plain(r, head_projection(r, r.operands.output("logits")), rows_of(r.op));
}

template <bool kBytes>
swy_status record_sampled(const Recording& r) {
  Arena arena(r.operands.workspace());
  const uint32_t rows = r.bucket().logit_rows;
  const uint64_t vocab = swy::tensor(r.op, "w").dims[0];
  const Span logits = arena.take(rows * vocab * 4);
  SWY_VK_TRY(record_projection(r, head_projection(r, logits), rows, kBytes));
  return record_draws(r, logits, vocab, arena);
}
uint64_t workspace_sampled(const swy_device&, const swy_op& op, const swy_bucket& bucket) {
  Arena arena;
  const uint64_t vocab = swy::tensor(op, "w").dims[0];
  arena.take(bucket.logit_rows * vocab * 4);
  arena.take(draws_bytes(op, vocab));
  return arena.used();
}

template <bool kBytes>
swy_status supports_vector(const swy_device& device, const swy_op& op, const swy_bucket&, swy_error* error) {
  if (kBytes) SWY_VK_TRY(dot_usable(device, error));
  return vector_usable(device, op, {0, 1}, swy::tensor(op, "x").dims[1], kBytes, error);
}

// One of the two kernels, so that the bits are those of the chosen head.
template <bool kBytes>
swy_status supports_sampled(const swy_device& device, const swy_op& op, const swy_bucket&, swy_error* error) {
  if (kBytes) SWY_VK_TRY(dot_usable(device, error));
  if (!kBytes && device.features.dot8) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "the device's head works by products of bytes");
  }
  SWY_VK_TRY(vector_usable(device, op, {0, 1}, swy::tensor(op, "x").dims[1], kBytes, error));
  return supports_draws(device, op, swy::tensor(op, "w").dims[0], error);
}

double cost_vector(const swy_op& op, const swy_bucket& bucket) {
  const swy_tensor& w = swy::tensor(op, "w");
  const double elements = static_cast<double>(w.dims[0] * w.dims[1]);
  return 4 + (weight_bytes(w) + row_bytes(op)) / 2.5e6 + elements * (bucket.logit_rows - 1.0) / 3e6;
}
double cost_dot(const swy_op& op, const swy_bucket& bucket) { return 0.7 * cost_vector(op, bucket); }
double cost_sampled(const swy_op& op, const swy_bucket& bucket) { return cost_dot(op, bucket) + 20; }
double cost_plain(const swy_op& op, const swy_bucket& bucket) { return 20 * cost_vector(op, bucket); }

constexpr Kernel kKernels[] = {
    {.name = "lm_head.vector",
     .op = SWY_OP_LM_HEAD,
     .flags = kInvariant,
     .activations = SWY_F32,
     .supports = supports_vector<false>,
     .cost = cost_vector,
     .record = record_vector<false>,
     .weight_dtypes = kMatrices},
    {"lm_head.dot", SWY_OP_LM_HEAD, kInvariant, SWY_BF16, supports_vector<true>, cost_dot, nullptr,
     record_vector<true>},
    {.name = "lm_head.plain",
     .op = SWY_OP_LM_HEAD,
     .flags = kInvariant,
     .activations = SWY_F32,
     .cost = cost_plain,
     .record = record_plain,
     .weight_dtypes = kMatrices},
    {.name = "lm_head_sample.vector",
     .op = SWY_OP_LM_HEAD_SAMPLE,
     .flags = kInvariant,
     .activations = SWY_F32,
     .supports = supports_sampled<false>,
     .cost = cost_sampled,
     .workspace = workspace_sampled,
     .record = record_sampled<false>,
     .weight_dtypes = kMatrices},
    {"lm_head_sample.dot", SWY_OP_LM_HEAD_SAMPLE, kInvariant, SWY_BF16, supports_sampled<true>, cost_sampled,
     workspace_sampled, record_sampled<true>},
};

}  // namespace

std::span<const Kernel> lm_head_kernels() { return kKernels; }

}  // namespace gpu
