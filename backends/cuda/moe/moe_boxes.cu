// SPDX-License-Identifier: Apache-2.0
// MOE and MOE_ADD of one or two rows by boxes.cuh: three kernels. moe_walk.cu has those of up to four rows, but for
// `route` where the router is not in bf16; without the copy engine these here have them, too.
//
//   route     the router's logits, and the shared expert's gate: two rows per block
//   gate_up   chooses, then h = silu(gate) * up times its factor in y, which is p_e of expert e and sigmoid(mix) of
//             the shared expert, as integers: 32 rows of each per block
//   down      chooses, then y = the sum of down_e h_e (+ residual): 16 rows per block
//
// Every block makes the choice itself, which takes less time than waiting for another block's. `down` makes it while
// `gate_up` waits for its weights. Two rows rarely choose the same expert, so each has blocks of its own, except for
// gate_up of the shared expert: so nearly no multiprocessor has three blocks of gate_up, which would leave no room for
// `down`.
#include <algorithm>

#include "moe_boxes_blocks.cuh"
#include "moe_walk.h"

namespace gpu {
namespace {

// Four warps per row of the router, each with every fourth 256 columns of kRows rows of activations.
template <uint32_t kRows>
__global__ void __launch_bounds__(kBoxThreads, 2)
    route_boxes(const __grid_constant__ MixtureBoxes b, const swy_step* step) {
  __shared__ float part[kRows][kBoxWarps], squares[kRows][kBoxWarps];
  Stamps stamps(kStampRoute);
  const Mixture& m = b.m;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t row = blockIdx.x * 2 + warp / 4, chunks = m.hidden / kSlice;
  const bool routed = row < m.experts, there = routed || (row == m.experts && m.shared_width != 0);
  const Weight& w = routed ? m.router : m.shared_mix;
  const uint64_t at = uint64_t{routed ? row : 0} * m.hidden;
  float weight[kChunks][8], norm[kChunks][8], v[kRows][kChunks][8];
#pragma unroll
  for (uint32_t c = 0; c < kChunks; ++c) {
    const uint32_t eight = (c * 4 + warp % 4) * 32 + lane;
    const bool in = there && c * 4 + warp % 4 < chunks;
#pragma unroll
    for (uint32_t j = 0; j < 8; ++j) weight[c][j] = 0, norm[c][j] = 1;
    if (!in) continue;
    plain_eight(w, at / 8 + eight, weight[c]);
    norm_of(b, eight, norm[c]);
  }
  const uint32_t rows = step_rows(step, m.domain);
  stamps.take_place();
  depend();
  stamps.note(kWaited);
  if (rows == 0) return;
#pragma unroll
  for (uint32_t i = 0; i < kRows; ++i) {
#pragma unroll
    for (uint32_t c = 0; c < kChunks; ++c) {
      const uint32_t column = ((c * 4 + warp % 4) * 32 + lane) * 8;
      if (c * 4 + warp % 4 < chunks && (i == 0 || i < rows)) load_eight_fresh(m.x + i * m.hidden + column, v[i][c]);
    }
  }
  release_next();
  stamps.note(kRead);
#pragma unroll
  for (uint32_t i = 0; i < kRows; ++i) {
    float sum = 0, square = 0;
    multiply_chunks(weight, norm, v[i], warp % 4, chunks, sum, square);
    sum = warp_sum(sum);
    square = warp_sum(square);
    if (lane == 0) part[i][warp] = sum, squares[i][warp] = square;
  }
  __syncthreads();
  const uint32_t own = threadIdx.x % 128;  // row of the activations
  if (own >= kRows || own >= rows || !there) return;
  float total = 0, all = 0;
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) total += part[own][warp + i], all += squares[own][warp + i];
  if (b.normed) total *= rsqrtf(all / static_cast<float>(m.hidden) + b.norm.eps);
  if (routed) {
    m.logits[own * m.experts + row] = total;
  } else {
    m.shared_p[own] = sigmoid(total);
  }
}

template <uint32_t kRows>
__global__ void __launch_bounds__(kBesideThreads / 2, 4)
    gate_up_boxes(const __grid_constant__ UpMaps maps, const __grid_constant__ MixtureBoxes b, const swy_step* step) {
#if __CUDA_ARCH__ >= 900
  gate_up_block<kRows, true>(maps, b, step);
#endif
}
template <uint32_t kRows>
__global__ void __launch_bounds__(kBoxThreads, 3)
    gate_up_async(const __grid_constant__ MixtureBoxes b, const swy_step* step) {
  gate_up_block<kRows, false>(UpMaps{}, b, step);
}

template <uint32_t kWarps>
__global__ void __launch_bounds__(kBesideThreads, 2)
    down_boxes(const __grid_constant__ DownMaps maps, const __grid_constant__ MixtureBoxes b, const swy_step* step) {
#if __CUDA_ARCH__ >= 900
  down_block<kWarps, true>(maps, b, step);
#endif
}
template <uint32_t kWarps>
__global__ void __launch_bounds__(kBesideThreads, 2)
    down_async(const __grid_constant__ MixtureBoxes b, const swy_step* step) {
  down_block<kWarps, false>(DownMaps{}, b, step);
}

uint32_t gate_up_shared(const Mixture& m) {
  return kBoxWarps * 2 * kHalf * kBoxBytes + 2 * scales_bytes(m.gate_up, kHalf);
}
// Memory of which three blocks do not fit a multiprocessor. Where gate_up begins beside a projection, multiprocessors
// without a block of that would get three.
uint32_t most_two(const swy_device& device) { return device.features.processor_memory / 3; }
// Warps of a block of `down`. Of two rows most multiprocessors have two blocks, which together must leave the next
// kernel its registers.
uint32_t down_warps(uint32_t rows) { return rows == 1 ? kDownWarps : kDownWarps / 2; }
uint32_t down_shared(const MixtureBoxes& b, uint32_t rows) {
  const uint32_t warps = down_warps(rows);
  return warps * b.boxes_per_warp(warps) * (kTileBytes + scales_bytes(b.m.down, kTileRows));
}

// Shared memory of `down`. It begins while gate_up runs, of which some multiprocessors have two blocks. For one row:
// beside one block of gate_up there must be room for one block of `down` but not for two; beside two blocks of gate_up
// for one, if possible. Blocks of gate_up with the memory of most_two leave no such size: registers alone keep a second
// block of `down` away then.
swy_status down_spread(const Recording& r, const MixtureBoxes& b, uint32_t rows, uint32_t up_bytes, uint32_t* bytes) {
  const Features& card = r.device().features;
  *bytes = down_shared(b, rows);
  if (rows != 1) return SWY_OK;
  cudaFuncAttributes up{}, down{};
  cudaError_t e = cudaFuncGetAttributes(&up, gate_up_boxes<1>);
  if (e == cudaSuccess) e = cudaFuncGetAttributes(&down, down_boxes<kDownWarps>);
  if (e != cudaSuccess) return check(e, "asking for a kernel's memory", r.error);
  constexpr uint32_t kUnit = 128;  // granularity of a block's memory
  const auto whole = [](uint64_t n) { return static_cast<uint32_t>((n + kUnit - 1) / kUnit * kUnit); };
  const auto before_boxes = [](uint64_t n) { return (n + kBoxAlignment - 1) / kBoxAlignment * kBoxAlignment; };
  const uint32_t one = whole(up_bytes + before_boxes(up.sharedSizeBytes) + card.reserved);
  const uint32_t own = whole(before_boxes(down.sharedSizeBytes) + card.reserved), needed = whole(down_shared(b, rows));
  const uint32_t spread = std::max(needed + own, whole((card.processor_memory - one) / 2 + 1));
  *bytes = 2 * one + spread <= card.processor_memory ? spread - own : needed;
  return SWY_OK;
}

// Of one row, or two.
uint32_t gate_up_blocks(const Mixture& m, uint32_t rows) {
  return (std::min(rows, kBesideRows) * m.top_k + (m.shared_width != 0 ? 1 : 0)) * (m.width / kHalf);
}

// gate_up and down by cp.async.
swy_status record_async(const Recording& r, const MixtureBoxes& b, uint32_t rows) {
  SWY_CUDA_TRY(launch(r, rows == 1 ? gate_up_async<1> : gate_up_async<kBesideRows>,
                      dim3(gate_up_blocks(b.m, rows), ceil_div(rows, kBesideRows)), kBoxThreads, gate_up_shared(b.m), b,
                      r.list.step));
  const uint32_t warps = down_warps(rows);
  return launch(r, warps == kDownWarps ? down_async<kDownWarps> : down_async<kDownWarps / 2>,
                dim3(b.m.hidden / kTileRows, rows), 32 * warps, down_shared(b, rows), b, r.list.step);
}

constexpr uint32_t kDeclared = 6 * 1024;  // at least what these kernels declare, and what aligns their boxes

// Steps of more rows have the kernels of moe_walk.cu.
bool walks(uint32_t rows) { return rows > kBesideRows; }
bool fits_boxes(const swy_device& device, const MixtureBoxes& b, uint32_t rows) {
  const uint32_t all = device.features.block_memory, most = boxes_by_engine(device) ? all / 2 : all - kDeclared;
  return b.m.width % kHalf == 0 && b.boxes_per_warp(down_warps(rows)) <= kMostBoxes &&
         std::max(gate_up_shared(b.m), down_shared(b, rows)) <= most;
}

// Whether the shared expert's weights have the experts' shapes and encodings.
bool shared_alike(const swy_op& op, const Weight& gate_up, const Weight& down) {
  const Weight gate = weight_of(swy::tensor(op, "shared_gate_proj"), nullptr),
               up = weight_of(swy::tensor(op, "shared_up_proj"), nullptr);
  const Weight shared_down = weight_of(swy::tensor(op, "shared_down_proj"), nullptr);
  const auto alike = [](const Weight& a, const Weight& b) {
    return a.dtype == b.dtype && a.groups == b.groups && a.width == b.width;
  };
  return alike(gate, gate_up) && alike(up, gate_up) && alike(shared_down, down) &&
         is_plain(swy::tensor(op, "shared_gate"));
}

uint64_t workspace(const swy_device&, const swy_op& op, const swy_bucket&) { return moe_boxes_workspace(op); }

double cost(const swy_device& device, const swy_op& op, const swy_bucket&) { return moe_boxes_cost(device, op); }

swy_status supports(const swy_device& device, const swy_op& op, const swy_bucket&, swy_error* error) {
  return supports_moe_boxes(device, op, error);
}

swy_status record(const Recording& r) {
  Arena arena(r.operands.workspace());
  const Mixture m = mixture_of(r, arena);
  return record_moe_boxes(r, m, arena, nullptr);
}

constexpr Kernel kernel(const char* name, uint32_t op) {
  return {name, op, kAlways, SWY_BF16, supports, cost, workspace, record};
}
constexpr Kernel kKernels[] = {kernel("moe.boxes", SWY_OP_MOE), kernel("moe_add.boxes", SWY_OP_MOE_ADD)};

}  // namespace

swy_status supports_moe_boxes(const swy_device& device, const swy_op& op, swy_error* error) {
  if (swy::tensor(op, "x").dims[0] > kQuad || swy::has(op, "expert_ids")) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "serves steps of up to %u rows that the router decides",
                     kQuad);
  }
  const swy_moe_attrs a = moe_attrs(op);
  const auto rows = static_cast<uint32_t>(swy::tensor(op, "x").dims[0]);
  MixtureBoxes b{};
  b.m.hidden = static_cast<uint32_t>(swy::tensor(op, "x").dims[1]);
  b.m.top_k = a.top_k, b.m.width = a.width, b.m.shared_width = a.shared_width;
  b.m.gate_up = weight_of(swy::tensor(op, "gate_up"), nullptr);
  b.m.down = weight_of(swy::tensor(op, "down"), nullptr);
  const bool fits = is_plain(swy::tensor(op, "router")) && in_boxes(b.m.gate_up) && in_boxes(b.m.down) &&
                    a.experts <= kMostExperts && a.experts >= a.top_k && a.top_k <= kMostChosen &&
                    b.m.hidden <= kMostHidden &&
                    (walks(rows) && boxes_by_engine(device) ? fits_walk(device, b) : fits_boxes(device, b, rows)) &&
                    (a.shared_width == 0 || (a.shared_width == a.width && shared_alike(op, b.m.gate_up, b.m.down)));
  if (fits) return SWY_OK;
  return swy::fail(
      error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
      "needs up to %u experts, %u of them chosen at most, of 4 bits in groups of 64 or a multiple (3 and 4 "
      "rows: i4 in groups of 64), with widths that are multiples of 256 (hidden: at most %u), and a shared "
      "expert like them or none",
      kMostExperts, kMostChosen, kMostHidden);
}

double moe_boxes_cost(const swy_device& device, const swy_op& op) {
  const swy_moe_attrs a = moe_attrs(op);
  const auto rows = static_cast<double>(swy::tensor(op, "x").dims[0]);
  double bytes = 0;
  for (uint32_t i = 0; i < op.weight_count; ++i) {
    bytes += weight_bytes(*op.weights[i]) * (op.weights[i]->rank == 3 ? rows * a.top_k / a.experts : 1);
  }
  return 7 + 0.7 * (rows - 1) + device.rates.bytes(bytes, 3e6);
}

uint64_t moe_boxes_workspace(const swy_op& op) {
  const auto& x = swy::tensor(op, "x");
  Arena arena(nullptr);
  arena.take<float>(x.dims[0]);
  return mixture_workspace(op) + arena.used();
}

swy_status record_moe_boxes(const Recording& r, const Mixture& m, Arena& arena, const InputNorm* norm, bool routed) {
  MixtureBoxes b{};
  b.m = m;
  b.normed = norm != nullptr;
  b.per_width = 1.0f / static_cast<float>(m.hidden);
  if (norm != nullptr) b.norm = *norm;
  const auto rows = static_cast<uint32_t>(swy::tensor(r.op, "x").dims[0]);
  b.h = HalfRows::in(m.h, rows, m.h_width());
  const uint32_t logits = m.experts + (m.shared_width != 0 ? 1 : 0);
  const bool engine = boxes_by_engine(r.device());
  if (routed) {
    b.inverse = arena.take<float>(rows);
  } else if (engine && walks(rows) && routes_by_terms(m)) {
    SWY_CUDA_TRY(record_walk_route(r, b));
  } else {
    SWY_CUDA_TRY(launch(r,
                        rows == 1   ? route_boxes<1>
                        : rows == 2 ? route_boxes<2>
                                    : route_boxes<kQuad>,
                        ceil_div(logits, 2), kBoxThreads, 0, b, r.list.step));
  }
  if (!engine) return record_async(r, b, rows);
  if (walks(rows)) return record_walk(r, b, rows);
  const uint32_t blocks = gate_up_blocks(m, rows);
  UpMaps up{};
  DownMaps down{};
  SWY_CUDA_TRY(map_boxes(m.gate_up, kHalf, &up.gate_up, r.error));
  SWY_CUDA_TRY(map_boxes(m.down, kTileRows, &down.down, r.error));
  if (m.shared_width != 0) {
    SWY_CUDA_TRY(map_boxes(m.shared_gate, kHalf, &up.shared_gate, r.error));
    SWY_CUDA_TRY(map_boxes(m.shared_up, kHalf, &up.shared_up, r.error));
    SWY_CUDA_TRY(map_boxes(m.shared_down, kTileRows, &down.shared_down, r.error));
  }
  const uint32_t up_bytes = routed && rows == 1 ? std::max(gate_up_shared(m), most_two(r.device())) : gate_up_shared(m);
  SWY_CUDA_TRY(launch(r, rows == 1 ? gate_up_boxes<1> : gate_up_boxes<kBesideRows>, blocks, kBoxThreads, up_bytes, up,
                      b, r.list.step));
  uint32_t shared = 0;
  SWY_CUDA_TRY(down_spread(r, b, rows, up_bytes, &shared));
  const uint32_t warps = down_warps(rows);
  return launch(r, warps == kDownWarps ? down_boxes<kDownWarps> : down_boxes<kDownWarps / 2>,
                dim3(m.hidden / kTileRows, rows), 32 * warps, shared, down, b, r.list.step);
}

std::span<const Kernel> moe_boxes_kernels() { return kKernels; }

}  // namespace gpu
