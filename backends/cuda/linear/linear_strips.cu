// SPDX-License-Identifier: Apache-2.0
// RMS_NORM_LINEAR, LINEAR, LINEAR_ADD, LM_HEAD and LM_HEAD_SAMPLE of one row on Hopper (strips.cuh).
//
// The blocks fill the device once, and each warp goes from strip to strip: one or two rows of a quantized weight. Plain
// weights of the same operation (gates of some rows) are read as by the vector kernels, by the last warps.
#include "common/projection.cuh"
#include "common/strips.cuh"
#include "sampling/sampling.cuh"

namespace gpu {
namespace {

constexpr uint32_t kThreads = kVectorWarps * 32;

struct Strips {
  Projection p;  // first_task counts strips, of quantized weights alone
  RingShape ring;
  uint32_t plain_rows;  // of the other weights
  bool quantized[SWY_LINEAR_MAX_WEIGHTS];
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
// The row of the plain weights, counted over all of them.
__device__ inline uint32_t plain_row(const Strips& s, uint32_t i, uint32_t* weight) {
  for (uint32_t w = 0; w < s.p.count; ++w) {
    if (s.quantized[w]) continue;
    *weight = w;
    if (i < s.p.weights[w].rows) return i;
    i -= s.p.weights[w].rows;
  }
  return 0;
}

// Stages the row. Everything that does not depend on the previous kernels is done before it waits for them. Returns the
// factor of the results.
__device__ inline float stage_row_early(const Projection& p, const swy_step* step, const Activations& x, bool empty) {
  __shared__ float squares[kVectorWarps];
  const uint32_t eights = p.width / 8, row = p.gather && !empty ? step_array<uint32_t>(step, step->logit_row_at)[0] : 0;
  const float* from = p.x + uint64_t{row} * p.width;
  float norm[8], sum = 0;
#pragma unroll
  for (int j = 0; j < 8; ++j)
    norm[j] = p.normed && threadIdx.x < eights ? p.bias + plain_at(p.norm, 8 * threadIdx.x + j) : 1;
  depend();
  for (uint32_t first = 0; first < eights; first += kThreads) {
    const uint32_t i = first + threadIdx.x;
    float v[8] = {};
    if (i < eights && !empty) load_eight(from + 8 * i, v);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      sum = fmaf(v[j], v[j], sum);
      v[j] *= first == 0 || !p.normed || i >= eights ? norm[j] : p.bias + plain_at(p.norm, 8 * i + j);
    }
    stage_eight(x, p.forms, 0, i, i < eights, v, 1.0f);
  }
  if (p.normed) {
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) squares[threadIdx.x / 32] = sum;
  }
  __syncthreads();
  if (!p.normed) return 1.0f;
  sum = 0;
  for (uint32_t w = 0; w < kVectorWarps; ++w) sum += squares[w];
  return rsqrtf(sum / static_cast<float>(p.width) + p.eps);
}
#endif

// One lane per row calls done(weight, row, sum); `begun` is called when the row of activations is staged.
template <bool kNibbles, int R, int UX, class Begun, class Done>
__device__ inline void multiply_strips(const Strips& s, const swy_step* step, Begun begun, Done done) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) uint4 shared[];
  const Projection& p = s.p;
  const uint32_t lane = threadIdx.x % 32, warps = gridDim.x * kVectorWarps;
  // Neighbouring strips go to different blocks, so that all have equally many.
  const uint32_t warp = threadIdx.x / 32 * gridDim.x + blockIdx.x, total = p.first_task[p.count];
  const Ring ring(reinterpret_cast<char*>(shared), s.ring);
  const uint32_t stages = s.ring.count();
  const auto ask_for = [&](uint32_t i) {
    const uint32_t strip = warp + i * warps;
    if (strip >= total) return;
    const uint32_t w = weight_of_task(p, strip), first = (strip - p.first_task[w]) * R, last = p.weights[w].rows - 1;
    if (first + R <= last + 1) {
      ask_run<R>(ring, i, p.weights[w], first);
      return;
    }
    ask<R>(ring, i, p.weights[w], first, p.weights[w], min(first + 1, last));
  };
  for (uint32_t i = 0; i < stages; ++i) ask_for(i);
  const bool has_plain = warps - 1 - warp < s.plain_rows;
  uint32_t plain_weight = 0;
  const uint32_t plain = has_plain ? plain_row(s, warps - 1 - warp, &plain_weight) : 0;
  const WeightRows<1> plain_rows{p.weights[plain_weight], {plain}};
  Pieces<1, 8> plain_pieces;
  if (has_plain) {
    fetch<1, 8>(plain_rows, plain_rows.w.dtype, 0, pieces_of(plain_rows.w.dtype, p.width), plain_pieces);
  }
  release_next();
  const bool empty = step_rows(step, p.domain) == 0;  // writes nothing, but requested data must arrive
  const Activations x(reinterpret_cast<char*>(shared) + s.ring.bytes(), p.forms, 1, p.width);
  const float inverse = stage_row_early(p, step, x, empty);
  begun();
  // Activations are kept in registers if they are few, and several strips use them.
  constexpr bool kHold = UX <= (kNibbles ? 2 : 4);
  PieceX<kNibbles> mine[kHold ? UX : 1];
  const uint32_t pieces = p.width / (kNibbles ? 32 : 16);
#pragma unroll
  for (int u = 0; u < UX; ++u) {
    if (kHold && 32 * u + lane < pieces) load_piece_x(x, 32 * u + lane, mine[kHold ? u : 0]);
  }
  for (uint32_t i = 0; warp + i * warps < total; ++i) {
    const uint32_t strip = warp + i * warps, w = weight_of_task(p, strip), first = (strip - p.first_task[w]) * R;
    ring.wait(i);
    float sum[R] = {};
#pragma unroll
    for (int u = 0; u < UX; ++u) {
      const uint32_t piece = 32 * u + lane;
      if (piece >= pieces) continue;
      PieceX<kNibbles>& x_piece = mine[kHold ? u : 0];
      if (!kHold) load_piece_x(x, piece, x_piece);
#pragma unroll
      for (int r = 0; r < R; ++r) {
        sum[r] = strip_piece<kNibbles>(ring.stage(i), p.weights[w], R, r, piece, x_piece, sum[r]);
      }
    }
    __syncwarp();
    ask_for(i + stages);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const float value = warp_sum(sum[r]) * inverse;
      if (!empty && lane == static_cast<uint32_t>(r) && first + r < p.weights[w].rows) done(w, first + r, value);
    }
  }
  if (!has_plain) return;
  float acc[1][1] = {};
  multiply<1, 1, 8>(plain_rows, plain_rows.w.dtype, x, plain_pieces, acc);
  const float value = warp_sum(acc[0][0]) * inverse;
  if (!empty && lane == 0) done(plain_weight, plain, value);
#endif
}

template <bool kNibbles, int R, int UX>
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor)
    linear_strips(const __grid_constant__ Strips s, const swy_step* step) {
  const auto nothing = [] {};
  multiply_strips<kNibbles, R, UX>(s, step, nothing, [&](uint32_t w, uint32_t row, float value) {
    s.p.y[w][row] = s.p.residual == nullptr ? value : value + s.p.residual[row];
  });
}

// Samples while it multiplies, as head_sample in lm_head.cu does. blockIdx.x is a part of the vocabulary.
template <bool kNibbles, int R, int UX>
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor)
    head_sample_strips(const __grid_constant__ Strips s, const __grid_constant__ Draws d, const swy_step* step) {
  __shared__ uint64_t scratch[32];
  Stamps stamps(kStampHead);
  stamps.take_place();
  Best best;
  const bool draws = step->sample_rows > 0;
  const Draw r = draws ? searched(draw_of(d, step, 0)) : Draw{};
  const auto begun = [&] { stamps.note(kWaited); };
  multiply_strips<kNibbles, R, UX>(s, step, begun, [&](uint32_t, uint32_t id, float logit) {
    if (!draws) return;
    if (!r.simple) const_cast<float*>(d.logits)[id] = logit;
    if (r.token_only) best.look(r, id, logit);
  });
  stamps.note(kMultiplied);
  __syncthreads();
  best.give(d, blockIdx.x, scratch);
}

// Calls f with the template arguments that fit: nibbles, rows per strip, pieces per lane.
template <class F>
swy_status with_shape(bool nibbles, uint32_t width, F f) {
  if (nibbles && width <= 2048) return f.template operator()<true, 2, 2>();
  if (nibbles) return f.template operator()<true, 1, 4>();
  return width <= 2048 ? f.template operator()<false, 1, 4>() : f.template operator()<false, 1, 8>();
}
uint32_t rows_per_strip(bool nibbles, uint32_t width) { return nibbles && width <= 2048 ? 2 : 1; }

Strips strips_of(const swy_device& device, const Projection& p) {
  Strips s{};
  uint32_t stage_bytes = 0;
  s.p = p;
  for (uint32_t i = 0; i < p.count; ++i) {
    const Weight& w = p.weights[i];
    s.quantized[i] = is_quantized(w.dtype);
    const uint32_t rows = rows_per_strip(w.dtype != SWY_I8, w.width);
    s.p.first_task[i + 1] = s.p.first_task[i] + (s.quantized[i] ? ceil_div(w.rows, rows) : 0);
    if (!s.quantized[i]) {
      s.plain_rows += w.rows;
    } else if (strip_bytes(w, rows) > stage_bytes) {
      stage_bytes = strip_bytes(w, rows);
    }
  }
  s.ring = ring_shape(stage_bytes, s.p.first_task[p.count], strip_blocks(device));
  return s;
}

bool nibbles_of(const Projection& p) {
  for (uint32_t i = 0; i < p.count; ++i) {
    if (is_quantized(p.weights[i].dtype)) return p.weights[i].dtype != SWY_I8;
  }
  return true;
}

uint32_t shared_bytes(const Strips& s) { return s.ring.bytes() + Activations::bytes_of(s.p.forms, 1, s.p.width); }

swy_status record_strips(const Recording& r, const Projection& p) {
  const Strips s = strips_of(r.device(), p);
  return with_shape(nibbles_of(p), p.width, [&]<bool kNibbles, int R, int UX>() {
    return launch(r, linear_strips<kNibbles, R, UX>, strip_blocks(r.device()), kThreads, shared_bytes(s), s,
                  r.list.step);
  });
}

swy_status record_linear(const Recording& r) { return record_strips(r, linear_projection(r)); }
swy_status record_head(const Recording& r) { return record_strips(r, head_projection(r, r.operands.output("logits"))); }

swy_status record_sampled(const Recording& r) {
  const Projection p = head_projection(r, nullptr);
  const Strips s = strips_of(r.device(), p);
  Arena arena(r.operands.workspace());
  Draws d = draws_of(r, p.weights[0].rows, strip_blocks(r.device()), arena);
  d.logits = arena.take<float>(d.vocab);
  SWY_CUDA_TRY(with_shape(nibbles_of(p), p.width, [&]<bool kNibbles, int R, int UX>() {
    return launch(r, head_sample_strips<kNibbles, R, UX>, strip_blocks(r.device()), kThreads, shared_bytes(s), s, d,
                  r.list.step);
  }));
  return record_finish(r, d);
}

swy_status supports_strips(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  const bool head = op.id == SWY_OP_LM_HEAD || op.id == SWY_OP_LM_HEAD_SAMPLE;
  if ((head ? bucket.logit_rows : swy::tensor(op, "x").dims[0]) != 1 || bucket.sample_rows > 1) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "serves steps with one row");
  }
  SWY_CUDA_TRY(needs_copy_engine(device, error));
  const uint32_t first = op.id == SWY_OP_RMS_NORM_LINEAR ? 1 : 0;
  SWY_CUDA_TRY(vector_usable(device, op, first, op.weight_count, error));
  const auto width = static_cast<uint32_t>(swy::tensor(op, "x").dims[1]);
  uint32_t nibbles = 0, bytes = 0, plain_rows = 0, forms = 0, stage_bytes = 0;
  for (uint32_t i = first; i < op.weight_count; ++i) {
    const swy_tensor& t = *op.weights[i];
    forms |= form_of(t.dtype);
    if (!is_quantized(t.dtype)) {
      plain_rows += static_cast<uint32_t>(t.dims[0]);
      continue;
    }
    ++(t.dtype == SWY_I8 ? bytes : nibbles);
    stage_bytes = std::max(stage_bytes, strip_bytes(weight_of(t, nullptr), rows_per_strip(t.dtype != SWY_I8, width)));
    if (in_strips(weight_of(t, nullptr)) && readable_in_pieces(t)) continue;
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                     "weight %u needs 8 groups, or a multiple, per row, of 32 with 4 bits", i);
  }
  if ((nibbles == 0) == (bytes == 0)) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE, "multiplies weights of 4 bits, or of 8 bits");
  }
  if (plain_rows > strip_blocks(device) * kVectorWarps || width > 4096) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                     "%u rows of plain weights, %u columns; at most %u and 4096", plain_rows, width,
                     strip_blocks(device) * kVectorWarps);
  }
  const uint32_t needed = most_ring(stage_bytes).bytes() + Activations::bytes_of(forms, 1, width);
  if (needed > device.features.block_memory) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "needs %u bytes of shared memory; a block may have %u",
                     needed, device.features.block_memory);
  }
  return SWY_OK;
}

double cost(const swy_device& device, const swy_op& op, const swy_bucket&) {
  double bytes = 0;
  for (uint32_t i = 0; i < op.weight_count; ++i) bytes += weight_bytes(*op.weights[i]);
  return 2.5 + device.rates.bytes(bytes, 3.2e6);
}

double cost_sampled(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  return cost(device, op, bucket) + kDrawCost;
}

uint64_t workspace_sampled(const swy_device& device, const swy_op& op, const swy_bucket&) {
  return draws_bytes(device, op, strip_blocks(device)) + swy::tensor(op, "w").dims[0] * 4;
}

// The same products as the vector kernels, added in another order.
constexpr Kernel kernel(const char* name, uint32_t op) {
  return {name, op, kAlways, SWY_BF16, supports_strips, cost, nullptr, record_linear};
}
constexpr Kernel kKernels[] = {
    kernel("linear.strips", SWY_OP_LINEAR),
    kernel("linear_add.strips", SWY_OP_LINEAR_ADD),
    kernel("rms_norm_linear.strips", SWY_OP_RMS_NORM_LINEAR),
    {"lm_head.strips", SWY_OP_LM_HEAD, kAlways, SWY_BF16, supports_strips, cost, nullptr, record_head},
    {"lm_head_sample.strips", SWY_OP_LM_HEAD_SAMPLE, kAlways, SWY_BF16, supports_strips, cost_sampled,
     workspace_sampled, record_sampled},
};

}  // namespace

std::span<const Kernel> linear_strips_kernels() { return kKernels; }

}  // namespace gpu
