// SPDX-License-Identifier: Apache-2.0
// LM_HEAD, LM_HEAD_SAMPLE and GATHER_ROWS: logits [logit rows, vocab] of the wanted rows.
//
// lm_head_sample.vector samples while it multiplies: where the largest key decides (greedy, plain temperature), no
// logit is written. Rows that are truncated, or whose log-probabilities are wanted, get their logits in the workspace;
// of truncated ones it also finds the largest.
#include "common/projection.cuh"
#include "sampling/sampling.cuh"

namespace gpu {
namespace {

constexpr int kRows = 4, kUnroll = 2;  // of weights per warp, and pieces of each per lane

template <int M>
__global__ void __launch_bounds__(kVectorWarps * 32)
    head_sample(const __grid_constant__ Projection p, const __grid_constant__ Draws d, const swy_step* step) {
  __shared__ unsigned long long best[64];
  __shared__ uint32_t bad[64];
  for (uint32_t i = threadIdx.x; i < 64; i += blockDim.x) best[i] = 0, bad[i] = 0;
  const uint32_t samples = min(step->sample_rows, 64u);
  project<M, kRows, kUnroll>(p, step, [&](uint32_t, uint32_t id, uint32_t m, float logit) {
    for (uint32_t i = 0; i < samples; ++i) {
      const Draw r = searched(draw_of(d, step, i));
      if (r.slot->logit_row != m) continue;
      if (!r.simple) const_cast<float*>(d.logits)[uint64_t{m} * d.vocab + id] = logit;
      if (!r.token_only) continue;
      if (swy_is_bad_logit(logit)) bad[i] = 1;
      if (is_live(r, id, logit)) atomicMax(best + i, final_key(r, id, value_of(r, id, logit)));
    }
  });
  __syncthreads();
  // Rows of activations are divided among blockIdx.y; each sampling row belongs to one of these.
  for (uint32_t i = threadIdx.x; i < samples; i += blockDim.x) {
    if (step_array<swy_sample_slot>(step, step->sample_at)[i].logit_row / M != blockIdx.y) continue;
    d.best[uint64_t{i} * d.parts + blockIdx.x] = best[i];
    d.bad[uint64_t{i} * d.parts + blockIdx.x] = bad[i];
  }
}

__global__ void gather(const float* x, float* y, uint64_t width, const swy_step* step) {
  depend();
  release_next();
  if (blockIdx.x >= step->logit_rows) return;
  const uint64_t from = step_array<uint32_t>(step, step->logit_row_at)[blockIdx.x];
  for (uint64_t i = threadIdx.x; i < width; i += blockDim.x) y[blockIdx.x * width + i] = x[from * width + i];
}

swy_status record_head(const Recording& r) {
  Projection p = head_projection(r, r.operands.output("logits"));
  return record_projection(r, p, static_cast<uint32_t>(swy::tensor(r.op, "logits").dims[0]));
}

swy_status record_head_plain(const Recording& r) {
  Projection p = head_projection(r, r.operands.output("logits"));
  return record_projection_plain(r, p, static_cast<uint32_t>(swy::tensor(r.op, "logits").dims[0]));
}

uint32_t head_parts(const swy_op& op) { return ceil_div(ceil_div(swy::tensor(op, "w").dims[0], kRows), kVectorWarps); }

template <int M>
swy_status record_head_sample(const Recording& r, const Projection& p, const Draws& d) {
  const dim3 grid(d.parts, ceil_div(r.bucket().logit_rows, M));
  return launch(r, head_sample<M>, grid, kVectorWarps * 32, Activations::bytes_of(p.forms, M, p.width), p, d,
                r.list.step);
}

swy_status record_sampled(const Recording& r) {
  Projection p = head_projection(r, nullptr);
  p.first_task[1] = tasks_of<kRows>(p.weights[0]);
  Arena arena(r.operands.workspace());
  Draws d = draws_of(r, p.weights[0].rows, head_parts(r.op), arena);
  d.logits = arena.take<float>(uint64_t{r.bucket().logit_rows} * d.vocab);
  SWY_CUDA_TRY(r.bucket().logit_rows > 1 ? record_head_sample<4>(r, p, d) : record_head_sample<1>(r, p, d));
  return record_finish(r, d);
}

swy_status supports_head(const swy_device& device, const swy_op& op, const swy_bucket&, swy_error* error) {
  return vector_usable(device, op, 0, 1, error);
}
swy_status supports_sampled(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  if (bucket.logit_rows > 16 || bucket.sample_rows > 16) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "takes at most 16 wanted rows, the bucket has %u",
                     bucket.logit_rows);
  }
  const auto width = static_cast<uint32_t>(swy::tensor(op, "x").dims[1]);
  if (Activations::bytes_of(form_of(swy::tensor(op, "w").dtype), 4, width) + 4096 > device.features.block_memory) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "rows of %u do not fit the shared memory", width);
  }
  return vector_usable(device, op, 0, 1, error);
}

double cost_head(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  const double elements = static_cast<double>(swy::tensor(op, "w").dims[0] * swy::tensor(op, "w").dims[1]);
  return 2 + device.rates.bytes(weight_bytes(swy::tensor(op, "w")), 1.4e6) +
         device.rates.floats(elements * (bucket.logit_rows - 1), 4.5e6);
}
double cost_head_plain(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  return 20 * cost_head(device, op, bucket);
}
double cost_sampled(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  return cost_head(device, op, bucket) + kDrawCost;
}
double cost_gather(const swy_device& device, const swy_op& op, const swy_bucket&) {
  return cost_of(device, row_bytes(op), 0);
}

uint64_t workspace_sampled(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  return draws_bytes(device, op, head_parts(op)) + uint64_t{bucket.logit_rows} * swy::tensor(op, "w").dims[0] * 4;
}

swy_status record_gather(const Recording& r) {
  return launch(r, gather, static_cast<uint32_t>(swy::tensor(r.op, "y").dims[0]), 256, 0, r.operands.input("x"),
                r.operands.output("y"), swy::tensor(r.op, "x").dims[1], r.list.step);
}

constexpr Kernel kKernels[] = {
    {.name = "lm_head.vector",
     .op = SWY_OP_LM_HEAD,
     .flags = kInvariant,
     .activations = SWY_BF16,
     .supports = supports_head,
     .cost = cost_head,
     .record = record_head,
     .weight_dtypes = kMatrices},
    {.name = "lm_head.plain",
     .op = SWY_OP_LM_HEAD,
     .flags = kInvariant,
     .activations = SWY_F32,
     .cost = cost_head_plain,
     .record = record_head_plain,
     .weight_dtypes = kMatrices},
    {.name = "lm_head_sample.vector",
     .op = SWY_OP_LM_HEAD_SAMPLE,
     .flags = kInvariant,
     .activations = SWY_BF16,
     .supports = supports_sampled,
     .cost = cost_sampled,
     .workspace = workspace_sampled,
     .record = record_sampled,
     .weight_dtypes = kMatrices},
    {"gather_rows.plain", SWY_OP_GATHER_ROWS, kInvariant, SWY_F32, nullptr, cost_gather, nullptr, record_gather},
};

}  // namespace

Projection head_projection(const Recording& r, float* y) {
  Projection p{};
  p.x = r.operands.input("x");
  p.y[0] = y;
  p.weights[0] = r.operands.weight("w");
  p.count = 1;
  p.width = static_cast<uint32_t>(swy::tensor(r.op, "x").dims[1]);
  p.forms = form_of(p.weights[0].dtype);
  p.domain = SWY_ROWS_LOGITS;
  p.gather = true;
  return p;
}

std::span<const Kernel> lm_head_kernels() { return kKernels; }

}  // namespace gpu
