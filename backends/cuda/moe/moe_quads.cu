// SPDX-License-Identifier: Apache-2.0
// The experts of few rows on Hopper, four rows at a time (quads.cuh): two kernels that fill the device once.
//
//   gate_up   h = silu(gate) * up, as integers: 64 columns of up to four rows of an expert by a team of four warps
//   down      each expert's results for its pairs, in bf16: 128 columns of up to four rows by such a team
#include "moe_quads.h"

#include <algorithm>
#include <type_traits>

#include "quad_ahead.cuh"
#include "quad_list.cuh"
#include "quads.cuh"

namespace gpu {
namespace {

constexpr uint32_t kUpColumns = 64;            // of a task
constexpr uint32_t kHStride = kUpColumns + 8;  // the latter part the banks

struct QuadMixture {
  Mixture m;
  Quads q;
  uint16_t* pairs;
  QuadShape shape;
};
struct GateUpMaps {
  CUtensorMap gate_up, shared_gate, shared_up;
};
struct DownMaps {
  CUtensorMap down, shared_down;
};
struct QuadShared {
  RingMarks rings[kQuadTeams];
  alignas(16) float h[kQuadTeams][2][kQuad][kHStride];
};
// Of a flat part: the shares of a team's warps in the results of 16 rows of gate and of up, twice in turn.
struct FlatShared : QuadShared {
  alignas(16) float shares[kQuadTeams][2][kQuadTeam][2][kTileRows][kQuad];
};

constexpr uint32_t kListMemory = 6 * 1024;  // of a block's list, at most
constexpr uint32_t kQuadMemory = kHopperMemory - kHopperReserved - sizeof(QuadShared) - kListMemory;
constexpr uint32_t kFlatMemory = kQuadMemory + sizeof(QuadShared) - sizeof(FlatShared);

#ifdef SWY_HOPPER

constexpr uint32_t kDownColumns = 2 * kBoxRows;  // of a task
using List = QuadList<kQuadThreads>;
static_assert(sizeof(List) <= kListMemory);

// A block's tasks are consecutive, so that tasks with the same weights meet in the cache; its teams take turns at them.
struct Tasks {
  const List& list;
  uint32_t parts;         // tasks of an entry of the list
  uint32_t first, count;  // tasks of this team

  __device__ Tasks(const List& l, uint32_t parts_of) : list(l), parts(parts_of) {
    const uint32_t total = list.size() * parts;
    const auto begin = [&](uint32_t block) { return block * total / gridDim.x; };
    const uint32_t last = begin(blockIdx.x + 1);
    first = begin(blockIdx.x) + team_of_warp();
    count = first < last ? (last - first + kQuadTeams - 1) / kQuadTeams : 0;
  }
  __device__ TaskPlace begin() const { return {first / parts, first % parts}; }
  __device__ TaskPlace after(TaskPlace at) const {
    at.part += kQuadTeams;
    while (at.part >= parts) at.part -= parts, ++at.entry;
    return at;
  }
  __device__ uint4 entry(TaskPlace at) const { return list.entry(at.entry); }
};

template <bool kFlatOf>
struct GateUp {
  static constexpr bool kFlat = kFlatOf;
  using Shared = std::conditional_t<kFlat, FlatShared, QuadShared>;
  const GateUpMaps& maps;
  const QuadMixture& p;
  Shared& shared;
  Tasks tasks;
  uint32_t team = team_of_warp(), warp = warp_of_team(), lane = threadIdx.x % 32;

  __device__ GateUp(const GateUpMaps& m, const QuadMixture& of, Shared& s, const List& list)
      : maps(m), p(of), shared(s), tasks(list, of.m.width / kUpColumns) {}
  __device__ uint32_t slices() const { return p.m.hidden / kSlice; }
  __device__ const Weight& weight() const { return p.m.gate_up; }
  __device__ BoxPair pair(uint32_t expert, uint32_t part) const {
    const Mixture& m = p.m;
    const bool routed = expert != m.experts;
    const uint32_t row = (routed ? expert * 2 * m.width : 0) + part * kUpColumns;
    BoxPair t;
    t.slices = slices();
    t.set(0, routed ? &maps.gate_up : &maps.shared_gate, routed ? m.gate_up.scales : m.shared_gate.scales,
          routed ? m.gate_up.offsets : m.shared_gate.offsets, m.gate_up.groups, row);
    t.set(1, routed ? &maps.gate_up : &maps.shared_up, routed ? m.gate_up.scales : m.shared_up.scales,
          routed ? m.gate_up.offsets : m.shared_up.offsets, m.gate_up.groups, routed ? row + m.width : row);
    return t;
  }
  __device__ QuadPlace place(uint4 e) const {
    return QuadPlace(p.q.x, row_of(e, lane / 8), row_of(e, lane % 4), p.m.hidden / 64);
  }
  // sum: gate, up. The team's warps take turns at converting all results of a task to integers.
  __device__ void store(uint32_t i, TaskPlace at, uint4 e, uint32_t first, const float (&sum)[2][2]) const {
    auto& h = shared.h[team][i % 2];
    if constexpr (kFlat) {
      add_shares(first, sum, h);
      if (first + kTileRows != kBoxRows) return;
    } else {
#pragma unroll
      for (uint32_t j = 0; j < 2; ++j) {
        h[lane % 4][warp * kTileRows + 8 * j + lane / 4] = fast_silu(sum[0][j]) * sum[1][j];
      }
    }
    named_barrier(1 + team, 32 * kQuadTeam);
    if (i % kQuadTeam != warp) return;
    const uint32_t row = lane / 8;
    const auto* from = reinterpret_cast<const float4*>(&h[row][lane % 8 * 8]);
    const float4 a = from[0], b = from[1];
    const float v[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    const Piece piece = make_piece(v);
    if (row < e.z) put_piece(p.q.h, piece, place_of(e, row), p.m.width / 64, at.part);
  }
  // h of 16 columns from `first` on, from the shares of all warps.
  __device__ void add_shares(uint32_t first, const float (&sum)[2][2], float (&h)[kQuad][kHStride]) const {
    auto& shares = shared.shares[team][first / kTileRows % 2];
#pragma unroll
    for (uint32_t k = 0; k < 4; ++k) shares[warp][k / 2][k % 2 * 8 + lane / 4][lane % 4] = sum[k / 2][k % 2];
    named_barrier(1 + team, 32 * kQuadTeam);
    const uint32_t column = warp * 8 + lane / 4, row = lane % 4;
    if (column >= kTileRows) return;
    float gate = 0, up = 0;
#pragma unroll
    for (uint32_t w = 0; w < kQuadTeam; ++w) gate += shares[w][0][column][row], up += shares[w][1][column][row];
    h[row][first + column] = fast_silu(gate) * up;
  }
};

struct Down {
  static constexpr bool kFlat = false;
  const DownMaps& maps;
  const QuadMixture& p;
  Tasks tasks;
  uint32_t lane = threadIdx.x % 32;

  __device__ Down(const DownMaps& m, const QuadMixture& of, const List& list)
      : maps(m), p(of), tasks(list, of.m.hidden / kDownColumns) {}
  __device__ uint32_t slices() const { return p.m.width / kSlice; }
  __device__ const Weight& weight() const { return p.m.down; }
  __device__ BoxPair pair(uint32_t expert, uint32_t part) const {
    const Mixture& m = p.m;
    const bool routed = expert != m.experts;
    const uint32_t row = (routed ? expert * m.hidden : 0) + part * kDownColumns;
    BoxPair t;
    t.slices = slices();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      t.set(i, routed ? &maps.down : &maps.shared_down, routed ? m.down.scales : m.shared_down.scales,
            routed ? m.down.offsets : m.shared_down.offsets, m.down.groups, row + i * kBoxRows);
    }
    return t;
  }
  __device__ QuadPlace place(uint4 e) const {
    return QuadPlace(p.q.h, place_of(e, lane / 8), place_of(e, lane % 4), p.m.width / 64);
  }
  // Two lanes with neighbouring columns exchange values, so that each makes words of two columns.
  __device__ void store(uint32_t, TaskPlace at, uint4 e, uint32_t, const float (&sum)[2][2]) const {
    const uint32_t g = lane / 4, t = lane % 4;
    const uint32_t column = at.part * kDownColumns + warp_of_team() * kTileRows + g / 2 * 2 + g % 2 * 8;
    uint16_t* to = p.pairs + uint64_t{place_of(e, t)} * p.m.hidden + column;
#pragma unroll
    for (uint32_t k = 0; k < 2; ++k) {
      const float got = __shfl_xor_sync(kAll, g % 2 != 0 ? sum[k][0] : sum[k][1], 4);
      const __nv_bfloat162 two =
          g % 2 != 0 ? __floats2bfloat162_rn(got, sum[k][1]) : __floats2bfloat162_rn(sum[k][0], got);
      if (t < e.z) *reinterpret_cast<__nv_bfloat162*>(to + k * kBoxRows) = two;
    }
  }
};

#endif

template <bool kOffsets, bool kFine, bool kFlat>
__global__ void __launch_bounds__(kQuadThreads, 1)
    gate_up_quads(const __grid_constant__ GateUpMaps maps, const __grid_constant__ QuadMixture p,
                  const swy_step* step) {
#ifdef SWY_HOPPER
  extern __shared__ char dynamic[];
  __shared__ typename GateUp<kFlat>::Shared shared;
  __shared__ List list;
  Stamps stamps(kStampGateUp);
  const uint32_t rows = step_rows(step, p.m.domain);
  if (threadIdx.x == 0) prefetch_map(maps.gate_up);
  if (threadIdx.x == 32 && p.m.shared_width != 0) prefetch_map(maps.shared_gate), prefetch_map(maps.shared_up);
  list.begin(p.q);
  QuadRing<kOffsets, kFlat> ring(p.shape, first_box(dynamic), shared.rings[team_of_warp()]);
  prefetch_shared_expert(p.m);
  const ChosenLine ahead = ChosenLine::of_gate_up(p.m);
  stamps.take_place();
  depend();
  stamps.note(kWaited);
  release_next();
  const uint32_t loaded = List::load(p.m, p.q);
  ahead.prefetch(p.m, p.q, p.m.gate_up, 2 * p.m.width, rows);
  list.make(p.m, loaded, rows);
  stamps.note(kRead);
  const GateUp<kFlat> part(maps, p, shared, list);
  Asker ask(part);
  ring.fill(ask);
  stamps.note(kAsked);
  walk<kOffsets, kFine>(ring, ask, part, stamps);
#endif
}

// Requests weights before it waits: the choice is older than the previous kernel.
template <bool kOffsets, bool kFine>
__global__ void __launch_bounds__(kQuadThreads, 1)
    down_quads(const __grid_constant__ DownMaps maps, const __grid_constant__ QuadMixture p, const swy_step* step) {
#ifdef SWY_HOPPER
  extern __shared__ char dynamic[];
  __shared__ RingMarks rings[kQuadTeams];
  __shared__ List list;
  Stamps stamps(kStampDown);
  const ChosenLine ahead = ChosenLine::of_down(p.m);
  if (threadIdx.x == 64) prefetch_map(maps.down);
  if (threadIdx.x == 96 && p.m.shared_width != 0) prefetch_map(maps.shared_down);
  const uint32_t loaded = List::load(p.m, p.q), rows = step_rows(step, p.m.domain);
  list.begin(p.q);
  QuadRing<kOffsets> ring(p.shape, first_box(dynamic), rings[team_of_warp()]);
  ahead.prefetch(p.m, p.q, p.m.down, p.m.hidden, rows);
  list.make(p.m, loaded, rows);
  const Down part(maps, p, list);
  Asker ask(part);
  ring.fill(ask);
  stamps.note(kAsked);
  stamps.take_place();
  depend();
  stamps.note(kWaited);
  release_next();
  walk<kOffsets, kFine>(ring, ask, part, stamps);
#endif
}

// Whether scales are per 64 columns or finer.
bool is_fine(const Weight& w) { return w.groups * 64 == w.width; }

QuadShape up_shape(const Mixture& m, bool flat = false) {
  return quad_shape(flat ? kFlatMemory : kQuadMemory, 2 * scales_bytes(m.gate_up, kBoxRows), m.hidden / kSlice);
}
// Whether gate_up has flat boxes: of the usual encoding, and if the ring is no shorter.
bool up_is_flat(const Mixture& m) {
  return m.gate_up.offsets == nullptr && is_fine(m.gate_up) && m.hidden % (kQuadTeam * kSlice) == 0 &&
         up_shape(m, true).stages == up_shape(m).stages;
}
QuadShape down_shape(const Mixture& m) {
  return quad_shape(kQuadMemory, 2 * scales_bytes(m.down, kBoxRows), m.width / kSlice);
}

}  // namespace

Quads place_quads(Arena& arena, const swy_op& op, uint32_t room) {
  const swy_moe_attrs a = moe_attrs(op);
  const uint64_t rows = swy::tensor(op, "x").dims[0], groups = swy::tensor(op, "x").dims[1] / 64,
                 h_groups = a.width / 64;
  const uint64_t places = uint64_t{a.experts + 1} * room;
  Quads q{};
  q.ids = arena.take<uint16_t>(rows * a.top_k);
  q.most_rows = static_cast<uint32_t>(rows);
  q.room = room;
  q.x = {arena.take<uint4>(rows * groups * 8), arena.take<float2>(rows * groups)};
  q.h = {arena.take<uint4>(places * h_groups * 8), arena.take<float2>(places * h_groups)};
  return q;
}

bool supports_quads(const swy_op& op) {
  const swy_moe_attrs a = moe_attrs(op);
  if (op.id == SWY_OP_EXPERTS || swy::tensor(op, "x").dims[0] > kMostQuadRows) return false;
  Mixture m{};
  m.hidden = static_cast<uint32_t>(swy::tensor(op, "x").dims[1]);
  m.width = a.width;
  m.gate_up = weight_of(swy::tensor(op, "gate_up"), nullptr);
  m.down = weight_of(swy::tensor(op, "down"), nullptr);
  if (!in_slices(m.gate_up) || !in_slices(m.down)) return false;
  const auto alike = [&](swy::OperandName name, const Weight& as) {
    const Weight w = weight_of(swy::tensor(op, name), nullptr);
    return w.dtype == as.dtype && w.groups == as.groups && w.width == as.width;
  };
  const bool shared = a.shared_width != 0;
  if (shared && a.shared_width != a.width) return false;
  if (shared && (!alike("shared_gate_proj", m.gate_up) || !alike("shared_up_proj", m.gate_up) ||
                 !alike("shared_down_proj", m.down)))
    return false;
  return up_shape(m).stages != 0 && down_shape(m).stages != 0;
}

swy_status record_quads(const Recording& r, const Mixture& m, const Quads& q, uint16_t* pairs) {
  const auto blocks = static_cast<uint32_t>(r.device().processors);
  GateUpMaps up{};
  DownMaps down{};
  const bool flat = up_is_flat(m);
  const auto map_up = [&](const Weight& w, CUtensorMap* map) {
    return flat ? map_columns(w.data, w.rows, w.row_bytes, kTileRows, kQuadTeam, map, r.error)
                : map_boxes(w, kBoxRows, map, r.error);
  };
  SWY_CUDA_TRY(map_up(m.gate_up, &up.gate_up));
  SWY_CUDA_TRY(map_boxes(m.down, kBoxRows, &down.down, r.error));
  if (m.shared_width != 0) {
    SWY_CUDA_TRY(map_up(m.shared_gate, &up.shared_gate));
    SWY_CUDA_TRY(map_up(m.shared_up, &up.shared_up));
    SWY_CUDA_TRY(map_boxes(m.shared_down, kBoxRows, &down.shared_down, r.error));
  }
  QuadMixture p{m, q, pairs, up_shape(m, flat)};
  const auto up_kernel = [&]<bool kOffsets>() {
    if (!kOffsets && flat) return gate_up_quads<false, true, true>;
    return is_fine(m.gate_up) ? gate_up_quads<kOffsets, true, false> : gate_up_quads<kOffsets, false, false>;
  };
  const auto down_kernel = [&]<bool kOffsets>() {
    return is_fine(m.down) ? down_quads<kOffsets, true> : down_quads<kOffsets, false>;
  };
  const bool up_offsets = m.gate_up.offsets != nullptr, down_offsets = m.down.offsets != nullptr;
  SWY_CUDA_TRY(launch(r, up_offsets ? up_kernel.operator()<true>() : up_kernel.operator()<false>(), blocks,
                      kQuadThreads, p.shape.bytes(), up, p, r.list.step));
  p.shape = down_shape(m);
  return launch(r, down_offsets ? down_kernel.operator()<true>() : down_kernel.operator()<false>(), blocks,
                kQuadThreads, p.shape.bytes(), down, p, r.list.step);
}

}  // namespace gpu
