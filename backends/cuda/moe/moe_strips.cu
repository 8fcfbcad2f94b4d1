// SPDX-License-Identifier: Apache-2.0
// MOE, MOE_ADD and EXPERTS of one row on Hopper (strips.cuh). The shared expert's weights are requested before the
// router has chosen.
#include "common/strips.cuh"
#include "moe.cuh"

namespace gpu {
namespace {

constexpr uint32_t kThreads = kVectorWarps * 32, kMostSlots = 15;

// h = silu(gate) * up. A strip is a row of gate and its row of up; those of the shared expert come first.
template <bool kNibbles, int UX>
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor)
    gate_up_strips(const __grid_constant__ Mixture m, const RingShape shape, const swy_step* step) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) uint4 shared[];
  const uint32_t lane = threadIdx.x % 32, warps = gridDim.x * kVectorWarps;
  const uint32_t warp = threadIdx.x / 32 * gridDim.x + blockIdx.x, total = m.shared_width + m.top_k * m.width;
  const Ring ring(reinterpret_cast<char*>(shared), shape);
  const uint32_t stages = shape.count();
  const auto ask_for = [&](uint32_t i) {
    const uint32_t strip = warp + i * warps;
    if (strip < m.shared_width) {
      ask<2>(ring, i, m.shared_gate, strip, m.shared_up, strip);
    } else if (strip < total) {
      const uint32_t at = strip - m.shared_width, slot = at / m.width;
      const uint64_t expert = min(static_cast<uint32_t>(__ldcg(m.ids + slot)), m.experts - 1);
      const uint64_t row = expert * 2 * m.width + (at - slot * m.width);
      ask<2>(ring, i, m.gate_up, row, m.gate_up, row + m.width);
    }
  };
  uint32_t early = 0;
  while (early < stages && warp + early * warps < m.shared_width) ask_for(early++);
  const bool empty = step_rows(step, m.domain) == 0;
  depend();
  release_next();  // not earlier: the next kernel reads the router's choice without waiting for this one
  for (uint32_t i = early; i < stages; ++i) ask_for(i);
  const Activations x(reinterpret_cast<char*>(shared) + shape.bytes(), form_of(m.gate_up.dtype), 1, m.hidden);
  stage_row(x, form_of(m.gate_up.dtype), 0, empty ? nullptr : m.x, nullptr, 0);
  __syncthreads();
  PieceX<kNibbles> mine[UX];
  const uint32_t pieces = m.hidden / (kNibbles ? 32 : 16);
#pragma unroll
  for (int u = 0; u < UX; ++u) {
    if (32 * u + lane < pieces) load_piece_x(x, 32 * u + lane, mine[u]);
  }
  for (uint32_t i = 0; warp + i * warps < total; ++i) {
    const uint32_t strip = warp + i * warps;
    const Weight& w = strip < m.shared_width ? m.shared_gate : m.gate_up;
    ring.wait(i);
    float gate = 0, up = 0;
#pragma unroll
    for (int u = 0; u < UX; ++u) {
      if (32 * u + lane >= pieces) continue;
      gate = strip_piece<kNibbles>(ring.stage(i), w, 2, 0, 32 * u + lane, mine[u], gate);
      up = strip_piece<kNibbles>(ring.stage(i), w, 2, 1, 32 * u + lane, mine[u], up);
    }
    __syncwarp();
    ask_for(i + stages);
    gate = warp_sum(gate);
    up = warp_sum(up);
    if (lane != 0 || empty) continue;
    const uint32_t at = strip < m.shared_width ? m.top_k * m.width + strip : strip - m.shared_width;
    m.h[at] = silu(gate) * up;
  }
#endif
}

// y = sum p_e down_e h_e + sigmoid(mix) * shared (+ residual). A strip is one row of all chosen experts, then of the
// shared one: [slots][row], then their scales, then their offsets.
template <bool kNibbles>
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor)
    down_strips(const __grid_constant__ Mixture m, const RingShape shape, const swy_step* step) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) uint4 shared[];
  __shared__ float factors[kMostSlots + 1];
  const uint32_t lane = threadIdx.x % 32, warps = gridDim.x * kVectorWarps;
  const uint32_t warp = threadIdx.x / 32 * gridDim.x + blockIdx.x;
  const Ring ring(reinterpret_cast<char*>(shared), shape);
  const uint32_t stages = shape.count();
  const bool has_shared = m.shared_width != 0;
  const uint32_t slots = m.top_k + (has_shared ? 1 : 0), row_bytes = m.down.row_bytes, scales = scale_bytes(m.down);
  const bool affine = m.down.offsets != nullptr;
  const uint32_t bytes = slots * (row_bytes + scales * (affine ? 2 : 1));
  // The requests of one lane: a slot's row, its scales and its offsets.
  const auto copy = [&](uint32_t i, const Weight& w, uint64_t at, uint32_t slot) {
    ring.copy(i, slot * row_bytes, w.data + at * row_bytes, row_bytes);
    ring.copy(i, slots * row_bytes + slot * scales, w.scales + at * w.groups, scales);
    if (affine) ring.copy(i, slots * (row_bytes + scales) + slot * scales, w.offsets + at * w.groups, scales);
  };
  // The router has chosen: gate_up_strips lets this kernel begin only after it has waited for that itself.
  const uint32_t expert = lane < m.top_k ? min(static_cast<uint32_t>(__ldcg(m.ids + lane)), m.experts - 1) : 0;
  for (uint32_t i = 0; i < stages && warp + i * warps < m.hidden; ++i) {
    ring.expect(i, bytes);
    const uint32_t row = warp + i * warps;
    if (lane < m.top_k) copy(i, m.down, uint64_t{expert} * m.hidden + row, lane);
    if (has_shared && lane == m.top_k) copy(i, m.shared_down, row, m.top_k);
  }
  const bool empty = step_rows(step, m.domain) == 0;
  release_next();
  depend();
  if (threadIdx.x < slots) factors[threadIdx.x] = threadIdx.x < m.top_k ? m.p[threadIdx.x] : m.shared_p[0];
  __syncthreads();
  const uint32_t forms = form_of(m.down.dtype);
  const Activations x(reinterpret_cast<char*>(shared) + shape.bytes(), forms, 1, slots * m.width);
  const uint32_t eights = x.width / 8;
  for (uint32_t first = 0; first < eights; first += blockDim.x) {
    const uint32_t i = first + threadIdx.x;
    float v[8] = {};
    if (i < eights && !empty) load_eight(m.h + 8 * i, v);
    stage_eight(x, forms, 0, i, i < eights, v, i < eights ? factors[8 * i / m.width] : 0.0f);
  }
  __syncthreads();
  const uint32_t per_slot = m.width / (kNibbles ? 32 : 16), pieces = slots * per_slot;
  for (uint32_t i = 0; warp + i * warps < m.hidden; ++i) {
    const uint32_t row = warp + i * warps;
    const float residual = m.residual != nullptr && lane == 0 && !empty ? m.residual[row] : 0.0f;
    ring.wait(i);
    const char* stage = ring.stage(i);
    const auto* scale = reinterpret_cast<const uint16_t*>(stage + slots * row_bytes);
    float sum = 0;
    for (uint32_t p = lane; p < pieces; p += 32) {
      const uint32_t slot = p / per_slot, g = slot * m.down.groups + ((p - slot * per_slot) >> m.down.piece_shift);
      PieceX<kNibbles> mine;
      load_piece_x(x, p, mine);
      const float s = half_bits(scale[g]);
      const float o = !kNibbles ? 0.0f : affine ? half_bits(scale[slots * m.down.groups + g]) : -8.0f * s;
      sum = dot_piece(*reinterpret_cast<const uint4*>(stage + p * 16), s, o, mine, sum);
    }
    sum = warp_sum(sum) + residual;
    __syncwarp();
    const uint32_t next = i + stages, next_row = warp + next * warps;
    if (next_row < m.hidden) {
      ring.expect(next, bytes);
      if (lane < m.top_k) copy(next, m.down, uint64_t{expert} * m.hidden + next_row, lane);
      if (has_shared && lane == m.top_k) copy(next, m.shared_down, next_row, m.top_k);
    }
    if (lane == 0 && !empty) m.y[row] = sum;
  }
#endif
}

RingShape gate_up_ring(const swy_device& device, const Mixture& m) {
  return ring_shape(strip_bytes(m.gate_up, 2), m.shared_width + m.top_k * m.width, strip_blocks(device));
}
RingShape down_ring(const swy_device& device, const Mixture& m) {
  const uint32_t slots = m.top_k + (m.shared_width != 0 ? 1 : 0);
  return ring_shape(strip_bytes(m.down, slots), m.hidden, strip_blocks(device));
}

swy_status record_strips(const Recording& r) {
  Arena arena(r.operands.workspace());
  const Mixture m = mixture_of(r, arena);
  uint32_t* counters = take_counters(r.list, 1, r.error);
  if (counters == nullptr) return SWY_UNSUPPORTED;
  SWY_CUDA_TRY(record_router(r, m, 1, counters));
  const uint32_t blocks = strip_blocks(r.device()), forms = form_of(m.gate_up.dtype);
  const bool nibbles = m.gate_up.dtype != SWY_I8;
  const auto gate_up = nibbles ? (m.hidden <= 2048 ? gate_up_strips<true, 2> : gate_up_strips<true, 4>)
                               : (m.hidden <= 2048 ? gate_up_strips<false, 4> : gate_up_strips<false, 8>);
  const RingShape gate_up_shape = gate_up_ring(r.device(), m), down_shape = down_ring(r.device(), m);
  SWY_CUDA_TRY(launch(r, gate_up, blocks, kThreads, gate_up_shape.bytes() + Activations::bytes_of(forms, 1, m.hidden),
                      m, gate_up_shape, r.list.step));
  const uint32_t x = Activations::bytes_of(forms, 1, m.top_k * m.width + m.shared_width);
  return launch(r, nibbles ? down_strips<true> : down_strips<false>, blocks, kThreads, down_shape.bytes() + x, m,
                down_shape, r.list.step);
}

// Whether two weights have rows of one shape.
bool alike(const swy_tensor& a, const swy_tensor& b) {
  return a.dtype == b.dtype && a.group == b.group && a.dims[a.rank - 1] == b.dims[b.rank - 1];
}

swy_status supports_strips(const swy_device& device, const swy_op& op, const swy_bucket&, swy_error* error) {
  if (swy::tensor(op, "x").dims[0] != 1) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "serves steps with one row");
  }
  SWY_CUDA_TRY(needs_copy_engine(device, error));
  const swy_moe_attrs a = moe_attrs(op);
  const swy_tensor &gate_up = swy::tensor(op, "gate_up"), &down = swy::tensor(op, "down");
  bool same = gate_up.dtype == down.dtype && in_strips(weight_of(gate_up, nullptr)) &&
              in_strips(weight_of(down, nullptr)) && readable_in_pieces(gate_up) && readable_in_pieces(down);
  if (a.shared_width != 0) {
    same = same && a.shared_width == a.width && alike(gate_up, swy::tensor(op, "shared_gate_proj")) &&
           alike(gate_up, swy::tensor(op, "shared_up_proj")) && alike(down, swy::tensor(op, "shared_down_proj"));
  }
  if (!same || a.top_k > kMostSlots || a.experts > 4096 || swy::tensor(op, "x").dims[1] > 4096) {
    return swy::fail(
        error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
        "needs experts and a shared expert of one encoding and width, with rows of 8 groups or a multiple");
  }
  Mixture m{};
  m.top_k = a.top_k;
  m.shared_width = a.shared_width;
  m.width = a.width;
  m.hidden = static_cast<uint32_t>(swy::tensor(op, "x").dims[1]);
  m.down = weight_of(down, nullptr);
  m.gate_up = weight_of(gate_up, nullptr);
  const uint32_t x = (a.top_k * a.width + a.shared_width) * 4 + 4096;
  if (down_ring(device, m).bytes() + x > device.features.block_memory ||
      gate_up_ring(device, m).bytes() + 32768 > device.features.block_memory) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "rows of %u and %u do not fit the shared memory",
                     m.gate_up.row_bytes, m.down.row_bytes);
  }
  return SWY_OK;
}

double cost(const swy_device& device, const swy_op& op, const swy_bucket&) {
  const swy_moe_attrs a = moe_attrs(op);
  double bytes = 0;
  for (uint32_t i = 0; i < op.weight_count; ++i) {
    bytes += weight_bytes(*op.weights[i]) * (op.weights[i]->rank == 3 ? static_cast<double>(a.top_k) / a.experts : 1);
  }
  return 10 + device.rates.bytes(bytes, 2e6);
}

uint64_t workspace(const swy_device&, const swy_op& op, const swy_bucket&) { return mixture_workspace(op); }

constexpr Kernel kernel(const char* name, uint32_t op) {
  return {name, op, kAlways, SWY_BF16, supports_strips, cost, workspace, record_strips};
}
constexpr Kernel kKernels[] = {kernel("moe.strips", SWY_OP_MOE), kernel("moe_add.strips", SWY_OP_MOE_ADD),
                               kernel("experts.strips", SWY_OP_EXPERTS)};

}  // namespace

std::span<const Kernel> moe_strips_kernels() { return kKernels; }

}  // namespace gpu
