// SPDX-License-Identifier: Apache-2.0
// Products of many rows on Hopper: 256 rows of a weight at a time, as they lie in memory, times up to 128 rows of
// activations, in bf16 with fp32 sums. (README.md has a glossary.)
//
// A block stays on its multiprocessor and walks over a list of tiles. One warpgroup requests spans of 128 elements of
// the weight's rows and of the activations from the copy engine. The others unpack the weights into the registers of
// wgmma's first operand, each for its part of the rows, while the products of the previous registers run. Activations
// are the second operand, so their number is padded to a multiple of 8 only.
//
// Which elements of the sum an instruction takes is free, as long as both operands agree. A thread of a quad takes 32
// consecutive elements of a span (grouped_rows.cuh). Activations come as panels (panels.cuh).
#pragma once

#include "common/wgmma.cuh"
#include "grouped_few.cuh"
#include "grouped_pipe.cuh"
#include "panels.cuh"

namespace gpu {

#ifdef SWY_HOPPER

// The requesting warpgroup. A span takes about 130 instructions, as long as its bytes take to arrive, so four warps
// share the spans and work independently. The barrier of a span opens when all of it has arrived.
enum class Producer : uint32_t { first_half, scales, second_half, activations };  // warps

// Whether scales pass through shared memory. Those of MXFP4, a byte for each thread and span, are loaded where they are
// used.
template <swy_dtype kDtype>
constexpr bool has_scale_slots = kDtype != SWY_BF16&& kDtype != SWY_MXFP4;

// The first 128 rows of a tile's weights, or the second.
template <swy_dtype kDtype>
__device__ inline void ask_half(const GroupedPipe& p, const GroupedTile& t, uint32_t half, uint32_t span) {
  constexpr uint32_t kBytes = kDtype == SWY_BF16 ? 128 : kDtype == SWY_I8 ? 128 : 64;  // of a row of a box
  const uint32_t to = p.base + p.slot * p.stage_bytes + half * kBoxRows * kBytes, barrier = p.full(p.slot);
  const StreamedWeight& w = half == 0 ? *t.w0 : *t.w1;
  const uint32_t row = half == 0 ? t.row0 : t.row1;
  if constexpr (kDtype == SWY_BF16) {
    copy_box(to, w.quants, span * kSpan, row, barrier, p.policy);
    copy_box(to + kTileRowsOfWeight * kBytes, w.quants, span * kSpan + kSpan / 2, row, barrier, p.policy);
  } else {
    copy_box(to, w.quants, span * kBytes, row, barrier, p.policy);
  }
}
__device__ inline void ask_activations(const GroupedPipe& p, const GroupedTile& t, uint32_t span) {
  copy_in(p.base + p.slot * p.stage_bytes + p.weight_bytes, t.x + span * t.span_stride, t.groups * kPanelBytes,
          p.full(p.slot));
}

__device__ inline void ask_scales(const GroupedPipe& p, const GroupedTile& t, uint32_t eight) {
  barrier_wait(p.scales_empty(p.scale_slot), p.scale_phase ^ 1);
  const bool affine = t.w0->offset_data != nullptr;
  const uint32_t to = p.base + p.scales + p.scale_slot * kScaleSlotBytes, barrier = p.scales_full(p.scale_slot);
  barrier_expect(barrier, affine ? kScaleSlotBytes : kScalePlane);
  copy_box(to, t.w0->scales, eight * 8, t.row0, barrier, p.policy);
  copy_box(to + kBoxRows * 16, t.w1->scales, eight * 8, t.row1, barrier, p.policy);
  if (affine) {
    copy_box(to + kScalePlane, t.w0->offsets, eight * 8, t.row0, barrier, p.policy);
    copy_box(to + kScalePlane + kBoxRows * 16, t.w1->offsets, eight * 8, t.row1, barrier, p.policy);
  }
}

// The same by a warp's loads, if the copy engine cannot take them.
__device__ inline void bring_scales(const GroupedPipe& p, const GroupedTile& t, uint32_t eight) {
  barrier_wait(p.scales_empty(p.scale_slot), p.scale_phase ^ 1);
  auto* to = reinterpret_cast<uint16_t*>(p.memory + p.scales + p.scale_slot * kScaleSlotBytes);
  for (uint32_t i = threadIdx.x % 32; i < kTileRowsOfWeight * 8; i += 32) {
    const uint32_t r = i / 8, g = eight * 8 + i % 8;
    const StreamedWeight& w = r < kBoxRows ? *t.w0 : *t.w1;
    const uint32_t row = r < kBoxRows ? t.row0 + r : t.row1 + r - kBoxRows;
    const bool there = row < w.rows && g < w.groups;
    const uint64_t at = uint64_t{row} * w.groups + g;
    to[i] = there ? __ldg(w.scale_data + at) : 0;
    if (w.offset_data != nullptr) to[kScalePlane / 2 + i] = there ? __ldg(w.offset_data + at) : 0;
  }
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(p.scales_full(p.scale_slot));
}

// Requests all tiles of this block, span by span.
template <class Work, class Each>
__device__ inline void each_span(const Work& work, Each each) {
  const uint32_t total = work.total();
  for (uint32_t i = blockIdx.x; i < total; i += gridDim.x) {
    const GroupedTile t = work.tile(i, work.entry(i));
    if (t.groups == 0) continue;
    for (uint32_t span = t.begin; span < t.end; ++span) each(t, span);
  }
}

// A whole warp calls this.
template <class Work>
__device__ inline void produce_scales(GroupedPipe& p, const Work& work) {
  each_span(work, [&](const GroupedTile& t, uint32_t span) {
    const uint32_t shift = t.w0->group_shift, eight = eight_of(shift, span);
    if (span != t.begin && eight == eight_of(shift, span - 1)) return;
    if (!t.w0->scales_mapped) {
      bring_scales(p, t, eight);
    } else if (threadIdx.x % 32 == 0) {
      ask_scales(p, t, eight);
    }
    __syncwarp();
    p.next_scales();
  });
}

// One thread calls this: requests its part of every span, as soon as there is room.
template <swy_dtype kDtype, Producer kPart, class Work>
__device__ inline void produce_spans(GroupedPipe& p, const Work& work) {
  each_span(work, [&](const GroupedTile& t, uint32_t span) {
    barrier_wait(p.empty(p.slot), p.phase ^ 1);
    if (kPart == Producer::first_half) barrier_expect(p.full(p.slot), p.weight_bytes + t.groups * kPanelBytes);
    if (kPart == Producer::activations) {
      ask_activations(p, t, span);
    } else {
      ask_half<kDtype>(p, t, kPart == Producer::first_half ? 0 : 1, span);
    }
    p.next();
  });
}

// `waits`: whether the activations come from the previous kernel, so that it must be waited for.
template <swy_dtype kDtype, class Work>
__device__ inline void produce(GroupedPipe& p, const Work& work, bool waits) {
  const auto part = static_cast<Producer>((threadIdx.x - kConsumers<Work::kBlocks>) / 32);
  p.policy = cache_policy(Work::kReadOnce);
  if (part == Producer::scales) {
    if (has_scale_slots<kDtype>) produce_scales(p, work);
    return;
  }
  if (threadIdx.x % 32 != 0) return;
  if (part == Producer::first_half) {
    produce_spans<kDtype, Producer::first_half>(p, work);
  } else if (part == Producer::second_half) {
    produce_spans<kDtype, Producer::second_half>(p, work);
  } else {
    if (waits) {
      depend();
      release_next();
    }
    produce_spans<kDtype, Producer::activations>(p, work);
  }
}

// acc += a unit's product; x: the descriptor of its first step.
template <int N, int kBlocks>
__device__ inline void multiply_unit(float (&acc)[kBlocks][N / 2], const uint32_t (&a)[kBlocks][2][4], uint64_t x) {
  products_begin();
#pragma unroll
  for (int s = 0; s < 2; ++s) {
#pragma unroll
    for (int m = 0; m < kBlocks; ++m) matrix_product<N>(acc[m], a[m][s], x + s * 2);
  }
  products_commit();
}

// The scales of a thread's rows of MXFP4, requested a span ahead: the 32 elements of a thread are a group. Other
// encodings have none of this.
template <swy_dtype kDtype, int kBlocks, RowOrder kOrder>
struct Exponents {
  __device__ explicit Exponents(const GroupedTile&) {}
  __device__ void request(uint32_t) {}
  template <class Rows>
  __device__ void give(Rows&) const {}
};
template <int kBlocks, RowOrder kOrder>
struct Exponents<SWY_MXFP4, kBlocks, kOrder> {
  const uint8_t* from[kBlocks][2];
  uint32_t next[kBlocks][2], groups;

  __device__ explicit Exponents(const GroupedTile& tile) : groups(tile.w0->groups) {
#pragma unroll
    for (uint32_t i = 0; i < 2 * kBlocks; ++i) {
      const uint32_t r = tile_row<kBlocks, kOrder>(i / 2, i % 2);
      const StreamedWeight& w = r < kBoxRows ? *tile.w0 : *tile.w1;
      const uint32_t row = min(r < kBoxRows ? tile.row0 + r : tile.row1 + r - kBoxRows, w.rows - 1);
      from[i / 2][i % 2] = reinterpret_cast<const uint8_t*>(w.scale_data) + uint64_t{row} * groups;
    }
    request(tile.begin);
  }
  // Elements after a row's end are zeros, whatever their scale.
  __device__ void request(uint32_t span) {
    const uint32_t group = min(span * (kSpan / 32) + threadIdx.x % 4, groups - 1);
#pragma unroll
    for (uint32_t i = 0; i < 2 * kBlocks; ++i) next[i / 2][i % 2] = __ldg(from[i / 2][i % 2] + group);
  }
  template <class Rows>
  __device__ void give(Rows& to) const {
#pragma unroll
    for (uint32_t i = 0; i < 2 * kBlocks; ++i) to.rows[i / 2][i % 2].set_exponent(next[i / 2][i % 2]);
  }
};

// Waits for a span, and reads this thread's part of its weights.
template <swy_dtype kDtype, class Rows>
__device__ inline void load_span(GroupedPipe& p, const GroupedTile& tile, uint32_t span, bool affine, Rows& rows) {
  const uint32_t lane = threadIdx.x % 32, shift = tile.w0->group_shift, eight = eight_of(shift, span);
  if (has_scale_slots<kDtype> && (span == tile.begin || eight != eight_of(shift, span - 1))) {
    barrier_wait(p.scales_full(p.scale_slot), p.scale_phase);
  }
  barrier_wait(p.full(p.slot), p.phase);
  rows.load(p.memory + p.slot * p.stage_bytes);
  if (!has_scale_slots<kDtype>) return;
  rows.load_scales(p.memory + p.scales + p.scale_slot * kScaleSlotBytes, (span * kSpan + lane % 4 * 32) >> shift, shift,
                   affine);
  if (span + 1 != tile.end && eight == eight_of(shift, span + 1)) return;
  __syncwarp();
  if (lane == 0) barrier_arrive(p.scales_empty(p.scale_slot));
  p.next_scales();
}

// acc = a tile's product.
template <swy_dtype kDtype, int N, int kBlocks, RowOrder kOrder>
__device__ inline void multiply_spans(GroupedPipe& p, const GroupedTile& tile, float (&acc)[kBlocks][N / 2]) {
  const uint32_t lane = threadIdx.x % 32;
  const bool affine = kDtype != SWY_BF16 && tile.w0->offset_data != nullptr;
  Exponents<kDtype, kBlocks, kOrder> exponents(tile);
  uint32_t magic;
  asm volatile("mov.b32 %0, 0x43004300;" : "=r"(magic));
  SpanRows<kDtype, kBlocks, kOrder> rows;
  uint32_t a[2][kBlocks][2][4];  // of alternate units
#pragma unroll
  for (int m = 0; m < kBlocks; ++m) {
#pragma unroll
    for (int i = 0; i < N / 2; ++i) acc[m][i] = 0;
  }
  uint32_t previous = 0;
  for (uint32_t span = tile.begin; span < tile.end; ++span) {
    load_span<kDtype>(p, tile, span, affine, rows);
    exponents.give(rows);
    exponents.request(span + 1);
    const uint32_t panels = p.base + p.slot * p.stage_bytes + p.weight_bytes;
    const uint64_t x = rows_descriptor(panels, kPanelBytes);
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      rows.unpack(u, magic, a[u % 2]);
      rows.keep_unit(a[u % 2]);
      multiply_unit<N, kBlocks>(acc, a[u % 2], x + u / 2 * 64 + u % 2 * 4);
      products_wait<1>();
      rows.keep_unit(a[(u + 1) % 2]);
      // The products of the previous span are done.
      if (u == 0 && span > tile.begin && lane == 0) barrier_arrive(p.empty(previous));
    }
    previous = p.slot;
    p.next();
  }
  products_wait<0>();
  rows.keep_unit(a[0]), rows.keep_unit(a[1]);
#pragma unroll
  for (int m = 0; m < kBlocks; ++m) keep(acc[m]);
  if (lane == 0) barrier_arrive(p.empty(previous));
}

template <swy_dtype kDtype, int N, class Work>
__device__ inline void consume_tile(GroupedPipe& p, const Work& work, const GroupedTile& tile) {
  float acc[Work::kBlocks][N / 2];
  if constexpr (few_rows<kDtype, N, Work::kBlocks>) {
    multiply_few<N, Work::kOrder>(p, tile, acc);
  } else {
    multiply_spans<kDtype, N, Work::kBlocks, Work::kOrder>(p, tile, acc);
  }
  work.template store<N>(p, tile, acc);
}

// This block's tiles from i to end that have N rows of activations or a few less. Returns the next tile. Each N has its
// own loop: a switch inside one loop takes registers that the products need.
template <swy_dtype kDtype, int N, class Work>
__device__ inline uint32_t consume_class(GroupedPipe& p, const Work& work, uint32_t i, uint32_t end) {
  uint4 next = i < end ? work.entry(i) : uint4{};
  for (; i < end; i += gridDim.x) {
    const GroupedTile tile = work.tile(i, next);
    if (i + gridDim.x < end) next = work.entry(i + gridDim.x);
    if (tile.groups != 0) consume_tile<kDtype, N>(p, work, tile);
  }
  return i;
}

// Tiles of N rows of activations, then those of fewer. totals: work.total(lane) of each lane, read at once.
template <swy_dtype kDtype, int N, int kStep, class Work>
__device__ inline void consume_classes(GroupedPipe& p, const Work& work, uint32_t totals, uint32_t i) {
  i = consume_class<kDtype, N>(p, work, i, __shfl_sync(kAll, totals, N / 8 - kStep / 8 + 1));
  if constexpr (N > kStep) consume_classes<kDtype, N - kStep, kStep>(p, work, totals, i);
}

template <swy_dtype kDtype, class Work>
__device__ inline void consume(GroupedPipe& p, const Work& work) {
  if constexpr (Work::kRows != 0) {
    consume_class<kDtype, Work::kRows>(p, work, blockIdx.x, work.total());
  } else {
    const uint32_t lane = threadIdx.x % 32, totals = lane <= Work::kMostRows / 8 ? work.total(lane) : 0;
    consume_classes<kDtype, Work::kMostRows, Work::kStep>(p, work, totals, blockIdx.x);
  }
}

// A whole kernel, with depend() and release_next(): all threads of the block must call this. `waited`: the activations
// are older than the previous kernel, for which the caller waits at the end. `work` has
//   kBlocks, kOrder   of a consumer's rows
//   kReadOnce         whether most weights belong to one tile
//   kWaits            first, or ahead if its tiles are older than the previous kernel
//   kRows             rows of activations in every tile; 0: up to kMostRows, in steps of kStep, those of more groups of
//                     8 before those of fewer
//   total(), total(g) number of tiles; of those with g groups or more
//   entry(i)          the table's entry of a tile, read before it is used; tile(i, entry)
//   store<N>(pipe, tile, acc), finish()   called by the consumers
template <swy_dtype kDtype, class Work>
__device__ inline void grouped_product(const Work& work, const GroupedShape& shape, char* shared, bool waited = false) {
  GroupedPipe p(shared, shape, kDtype, kConsumers<Work::kBlocks>);
  if (Work::kWaits == Waits::first) depend();
  if (Work::kWaits == Waits::first || waited) release_next();
  if (threadIdx.x >= kConsumers<Work::kBlocks>) {
    fewer_registers<Work::kBlocks == 1 ? 32 : 24>();  // with those of the consumers, all registers of the block
    produce<kDtype>(p, work, Work::kWaits == Waits::ahead && !waited);
  } else {
    more_registers<Work::kBlocks == 1 ? 112 : 240>();
    consume<kDtype>(p, work);
    work.finish();
  }
}

#endif  // SWY_HOPPER

}  // namespace gpu
