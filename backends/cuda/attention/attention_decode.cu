// SPDX-License-Identifier: Apache-2.0
// ATTENTION of decoding steps, keys and values in bf16 or in 8 bits: one kernel, which also norms, rotates and appends.
//
// A cluster of blocks divides the positions of one sequence and KV head. Each warp of a block walks by itself through
// tiles of 16 positions, or of 8 where it has few. The copy engine brings the keys and values of a tile in one box
// each, into a ring of the warp's own. The ring is full before the previous kernel has ended, and a stage is refilled
// as soon as it has been read. Scores are products of all query heads of the KV head (the rows of a matrix instruction)
// and a tile's keys. The weights computed from these scores are, in their registers, the second operand of the products
// with the tile's values; in 8 bits, attention_decode_bytes.cuh has them. So the warps of a block meet only once, at
// the end: then every block of a cluster joins some of the heads, whose parts the other blocks push into its shared
// memory. With several clusters per row, the one that finishes last joins them; or all leave that to the kernel behind
// (common/head_parts.cuh).
//
// How a row is cut depends on its position and on the list.
//
// A step may have up to eight rows of a sequence. Each has blocks of its own, which make the keys and values of the
// sequence's earlier rows of the step themselves.
#include "attention_decode_bytes.cuh"

#include <algorithm>
#include <type_traits>

#include "attention_cut.cuh"
#include "attention_decode.h"
#include "attention_heads.cuh"
#include "host/tensor_map.h"

namespace gpu {
namespace {

// ---- the kernel

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Finds the block's work; false if there is none. `before`: the sequence's earlier rows in the step.
template <uint32_t kTile, uint32_t kRows>
__device__ inline bool find_share(const Attention& a, const Cut& cut, const swy_step* step, uint32_t& clusters,
                                  Share& share, uint32_t& before) {
  const uint32_t row = blockIdx.z, cluster = blockIdx.x >> cut.shift();
  if (row >= step->rows || cluster >= cut.clusters(step->max_context)) return false;
  const uint32_t position = step_array<uint32_t>(step, step->row_position_at)[row];
  const uint32_t seq = step_array<uint32_t>(step, step->row_seq_at)[row];
  const bool active = step_array<uint32_t>(step, step->seq_active_at)[seq] != 0;
  share.context = active ? position + 1 : 0;
  before = kRows == 1 || !active ? 0 : row - step_array<uint32_t>(step, step->row_start_at)[seq];
  clusters = cut.clusters(share.context);
  if (cluster >= clusters) return false;
  share.table = table_of(step, seq);
  share.kv = blockIdx.y / a.groups, share.kv_heads = a.kv_heads;
  share.shift = __ffs(step->page_size) - 1;
  const uint32_t tiles = clusters * cut.blocks * kTile, each = (share.context + tiles - 1) / tiles * kTile;
  share.first = min((cluster * cut.blocks + cluster_rank()) * each, share.context);
  share.last = min(share.first + each, share.context);
  return true;
}

// A warp's work, once the query heads are in shared memory.
template <class F, uint32_t kRows>
__device__ inline void walk(const Share& share, const Memory<F>& memory, const Earlier<F>& earlier, Ring<F>& ring) {
  Sums<F> sums;
#pragma unroll 1
  for (uint32_t i = 0; i < ring.tiles(); ++i) {
    const uint32_t left = share.context - ring.position(i);
    const bool last = left <= F::kTile;
    Scores scores = {};
    typename Sums<F>::Weights weights;
#pragma unroll 1
    for (uint32_t p = 0; p < F::kParts; ++p) {
      ring.wait();
      if (last) put_own<F>(ring.at(), left - 1, memory.own(false) + p * F::kOfStage * 128);
      if (kRows > 1) earlier.put(ring.at(), left, false, p);
      add_scores<F>(memory, ring.at(), p * F::kOfStage, scores);
      ring.give_back();
    }
    sums.weigh(scores, left, weights);
#pragma unroll
    for (uint32_t p = 0; p < F::kParts; ++p) {
      ring.wait();
      if (last) {
        put_own<F>(ring.at(), left - 1, memory.own(true) + p * F::kOfStage * 128);
        clear_values<F>(ring.at(), left);
      }
      if (kRows > 1) earlier.put(ring.at(), left, true, p);
      sums.add(ring.at(), p, weights);
      ring.give_back();
    }
  }
  sums.leave(memory);
}

// The same with keys and values in 8 bits.
template <class F, uint32_t kRows>
__device__ inline void walk_bytes(const Share& share, const Memory<F>& memory, const Earlier<F>& earlier,
                                  ByteRing<F>& ring) {
  ByteSums<F> sums(memory);
  uint32_t lane = lane_at<F>(0);  // the same in each stage, since stages begin at multiples of 1,024
  pin(lane);
#pragma unroll 1
  for (uint32_t i = 0; i < ring.tiles(); ++i) {
    const uint32_t left = share.context - ring.position(i);
    const bool last = left <= F::kTile;
    float* slot = ring.scales(i);
    ring.wait();
    ring.wait_for_scales();
    if (last) {
      put_own<F>(ring.at(), left - 1, memory.own(false));
      put_own_scales<F>(slot, left - 1, memory.own(false), memory.own(true));
    }
    if (kRows > 1) {
      earlier.put(ring.at(), left, false, 0);
      earlier.put_scales(slot, left);
    }
    const PositionScales<F> scales(slot);
    ByteScores scores = {};
    add_scores<F>(memory, ring.at() + lane, scores);
    ring.give_back();
    typename ByteSums<F>::Weights weights;
    sums.weigh(scores, scales, left, weights);
    ring.wait();
    if (last) put_own<F>(ring.at(), left - 1, memory.own(true));
    if (kRows > 1) earlier.put(ring.at(), left, true, 0);
    sums.add(ring.at() + lane, weights);
    ring.give_back();
  }
  sums.leave(memory);
}

// The sigmoid, by the hardware's exponential and division.
__device__ inline float opened(float x) { return __fdividef(1, 1 + __expf(-x)); }

// The pieces that a block joins, four elements of one at a time.
template <class F>
struct Outputs {
  static constexpr uint32_t kOfHead = F::kPieces / kHeads;

  const Attention& a;
  uint64_t piece;  // the first one, over all rows
  uint32_t count;  // vectors

  __device__ Outputs(const Attention& a_, const OwnHeads& own, const Cut& cut, uint32_t rank) : a(a_) {
    const uint32_t all = own.count * kOfHead, begun = min(rank * cut.own<F>(), all),
                   end = min(begun + cut.own<F>(), all);
    piece = own.query * kOfHead + begun, count = (end - begun) * F::kPiece;
  }
  __device__ float4 gate(uint32_t i) const {
    if (!a.gated || i >= count) return {};
    const uint64_t p = piece + i / F::kPiece, head = p / kOfHead;
    return reinterpret_cast<const float4*>(a.q + (2 * head + 1) * F::kDim)[p % kOfHead * F::kPiece + i % F::kPiece];
  }
  __device__ float4 open(const float4& g) const {
    return a.gated ? make_float4(opened(g.x), opened(g.y), opened(g.z), opened(g.w)) : make_float4(1, 1, 1, 1);
  }
  __device__ static float4 of(const Known& k, const float4& factor) {
    const float scale = k.sum > 0 ? __fdividef(1, k.sum) : 0;  // nothing is known of a sequence that is not active
    return make_float4(k.value.x * scale * factor.x, k.value.y * scale * factor.y, k.value.z * scale * factor.z,
                       k.value.w * scale * factor.w);
  }
  __device__ void write(uint32_t i, const Known& k, const float4& factor) const {
    const float4 y = of(k, factor);
    if constexpr (F::kPieces != kMostBlocks) {  // a step of one row writes floats
      if (a.halves.words != nullptr) {
        put_four(a.halves, y, (piece * F::kPiece + i) * 4);
        return;
      }
    }
    reinterpret_cast<float4*>(a.y + piece * F::kPiece * 4)[i] = y;
  }
};

// Joins the block's pieces, over its cluster and then over the row's clusters, and writes them. Rows with several
// clusters have pieces of whole heads.
template <class F>
__device__ inline void join_and_write(const Attention& a, const Cut& cut, uint32_t clusters, uint32_t rank,
                                      const Outputs<F>& outputs, const float4& factor, const Memory<F>& memory) {
  const uint32_t unit = blockIdx.z * gridDim.y + blockIdx.y;
  const Parts parts(a, unit);
  const auto place = [&](uint32_t i) { return rank * cut.own<F>() + i / F::kPiece; };
  const bool several = F::kPieces != kMostBlocks && clusters != 1;
  if (several) {
    const uint32_t cluster = blockIdx.x >> cut.shift();
    for (uint32_t i = threadIdx.x; i < outputs.count; i += kThreads) {
      const uint32_t at = i % F::kPiece;
      const Known k = join_blocks<F>(memory, cut, i / F::kPiece, at);
      parts.value(cluster, place(i))[at] = k.value;
      if (at == 0) *parts.stat(cluster, place(i)) = make_float2(k.top, k.sum);
    }
    if (outputs.count == 0 || !last_cluster(a.counters + unit, clusters, cut, rank, &memory.small().last)) return;
  }
#pragma unroll 1
  for (uint32_t i = threadIdx.x; i < outputs.count; i += kThreads) {
    const Known k = several ? join_clusters(parts, clusters, place(i), i % F::kPiece)
                            : join_blocks<F>(memory, cut, i / F::kPiece, i % F::kPiece);
    outputs.write(i, k, i == threadIdx.x ? factor : outputs.open(outputs.gate(i)));
  }
}

// Joins the block's only head over its cluster, and leaves this part of it to the kernel behind.
template <class F>
__device__ inline void leave_part(const Attention& a, const Cut& cut, uint32_t clusters, const Outputs<F>& outputs,
                                  const float4& factor, const Memory<F>& memory) {
  const uint32_t i = threadIdx.x, part = blockIdx.x >> cut.shift(), head = static_cast<uint32_t>(outputs.piece);
  if (i >= outputs.count) return;
  const Known k = join_blocks<F>(memory, cut, 0, i);
  a.left.put(head, part, i, make_float2(k.top, k.sum), outputs.of(k, factor));
  if (part != 0) return;
  for (uint32_t p = clusters; p < HeadParts::kParts; ++p) a.left.put(head, p, i, make_float2(0, 0), float4{});
}

// kLeaves: for the only row of a step, in clusters of kPartsCluster blocks.
template <class F, uint32_t kRows, bool kLeaves>
__device__ void decode_block(const CUtensorMap& map, const Attention& a, const Cut& any_cut, uint32_t columns,
                             const swy_step* step, char* base) {
  const Cut cut{kLeaves ? kPartsCluster : any_cut.blocks, any_cut.most, any_cut.alone, any_cut.reach};
  const Memory<F> memory{base};
  Small<F>& small = memory.small();
  const uint32_t rank = cluster_rank();
  const bool clustered = cut.size<F>() != 1;  // without a cluster, its instructions are illegal
  Stamps stamps(kStampAttention);
  release_next();
  uint32_t clusters = 0, before = 0;
  Share share;
  if (!find_share<F::kTile, kRows>(a, cut, step, clusters, share, before)) {
    if (blockIdx.z == 0 && blockIdx.x < cut.blocks) depend();  // other blocks wait for the previous kernels
    return;
  }
  if (clustered && threadIdx.x == kThreads - 1) {
    barrier_begin(&small.pushed, 1);
    barriers_begun();
    barrier_expect(&small.pushed, kPushedBytes<F>);
  }
  std::conditional_t<F::kBytes, ByteRing<F>, Ring<F>> ring(a, share, map, columns, memory);
  ring.fill();
  if (threadIdx.x < a.rotary / 2) small.turn[threadIdx.x] = make_turn(a, share.context - 1, threadIdx.x);
  const Earlier<F> earlier(a, share, memory, before, kRows);
  const bool appends = threadIdx.x / 32 == kWorkers - 1 && share.first < share.last && share.last == share.context;
  float query_norm[F::kLane], key_norm[F::kLane] = {};
  load_norm<F>(a, a.q_norm, query_norm);
  if (appends || (kRows > 1 && earlier.own != Earlier<F>::kNone)) load_norm<F>(a, a.k_norm, key_norm);
  __syncthreads();
  const OwnHeads own(a);
  const Sources<F> from(a, own);
  Outputs<F> outputs(a, own, cut, rank);
  pin(outputs.piece), pin(outputs.count);
  stamps.note(kAsked);
  if (clustered) cluster_meet();  // the cluster's other blocks have started, so data can be pushed to them
  stamps.take_place();
  depend();
  stamps.note(kWaited);
  prepare<F, kRows>(a, from, share, memory, earlier, appends, query_norm, key_norm);
  __syncthreads();
  stamps.note(kRead);
  if constexpr (F::kBytes) {
    walk_bytes<F, kRows>(share, memory, earlier, ring);
  } else {
    walk<F, kRows>(share, memory, earlier, ring);
  }
  const float4 gate = outputs.gate(threadIdx.x);
  __syncthreads();
  stamps.note(kArrived);
  if (kRows > 1 && !earlier_behind(kRows) && clustered) {
    cluster_meet();  // keys and values of earlier rows have been read where results will lie
  }
  push_sums<F>(memory, cut, rank);
  float4 factor = outputs.open(gate);
  pin(factor.x), pin(factor.y), pin(factor.z), pin(factor.w);
  if (clustered) {
    barrier_wait(&small.pushed, 0);
  } else {
    __syncthreads();
  }
  stamps.note(kMultiplied);
  if constexpr (kLeaves) {
    leave_part<F>(a, cut, clusters, outputs, factor, memory);
  } else {
    join_and_write<F>(a, cut, clusters, rank, outputs, factor, memory);
  }
}

#endif

// blockIdx.x: cluster of the row, and block of it; blockIdx.y: KV head and group of query heads; blockIdx.z: row. map:
// of the pool; a box is a tile, or a page if that is smaller, by `columns` columns. At most 128 registers: together
// with those of the previous projection they are all that a multiprocessor has. kRows: the most rows of a sequence.
// kTile: positions of a tile. kBytes: of keys and values in 8 bits.
template <int N, uint32_t kRows, uint32_t kTile, bool kLeaves, bool kBytes>
__global__ void __launch_bounds__(kThreads, 2)
    decode(const __grid_constant__ CUtensorMap map, const __grid_constant__ Attention a,
           const __grid_constant__ Cut cut, uint32_t columns, const swy_step* step) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) char memory[];
  decode_block<Form<N, kTile, kBytes>, kRows, kLeaves>(map, a, cut, columns, step, memory);
#endif
}

// ---- recording

constexpr uint32_t kLeastPage = 16;                            // in 8 bits: a tile lies in one page
constexpr uint32_t kTwoRows = 2, kFewRows = 4, kMostRows = 8;  // of a sequence
// All but the last row have a warp in the block that makes them, and room for 4 bytes of each element there.
static_assert(kMostRows <= kWorkers && kMostRows <= kHeads);

template <int N, bool kBytes, uint32_t kRows, uint32_t kTile = 16, bool kLeaves = false>
swy_status record_form(const Recording& r, const Attention& a, const Cut& cut, uint32_t rows) {
  using F = Form<N, kTile, kBytes>;
  const auto kernel = decode<N, kRows, kTile, kLeaves, kBytes>;
  const swy_binding& pool = r.operands.bindings.states[swy::Operands<SWY_OP_ATTENTION>::state("kv")];
  const uint64_t row_bytes = F::kColumns * 128;
  const uint32_t box = std::min(kTile, r.bucket().page_size) / F::kTogether;
  const uint32_t columns = box == kTile / F::kTogether ? F::kOfStage : 1;
  CUtensorMap map;
  SWY_CUDA_TRY(map_columns(a.pages, pool.bytes / row_bytes, row_bytes, box, columns, &map, r.error));
  const dim3 grid(cut.most * cut.blocks, a.kv_heads * a.groups, rows);
  // Blocks of few rows begin beside a projection. Blocks of more rows get more shared memory, since otherwise
  // two would run on one multiprocessor while others are idle.
  const uint32_t own = memory_bytes<F>(a.rotary, kRows), spread = std::max(own, alone_memory(r.device()));
  const bool fits = grid.x * grid.y * grid.z <= static_cast<uint32_t>(r.device().processors);
  if (cut.blocks > kPortableCluster) {
    SWY_CUDA_TRY(check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
                       "allowing large clusters", r.error));
  }
  return launch_clusters(r, kernel, cut.blocks, grid, kThreads, rows > kSplitRows && fits ? spread : own, map, a, cut,
                         columns, r.list.step);
}

bool one_row_each(const swy_bucket& bucket) { return (bucket.flags & SWY_BUCKET_DECODE) != 0; }
// Of a sequence, in the kernel that serves a bucket.
uint32_t most_rows(const swy_bucket& bucket) {
  return one_row_each(bucket) ? 1 : bucket.rows <= kTwoRows ? kTwoRows : bucket.rows <= kFewRows ? kFewRows : kMostRows;
}

template <int N, bool kBytes>
swy_status record_dim(const Recording& r, const Attention& a, const Cut& cut, uint32_t rows) {
  const uint32_t most = most_rows(r.bucket());
  if constexpr (32 * N == HeadParts::kDim) {
    if (a.left.words != nullptr) return record_form<N, kBytes, 1, 16, true>(r, a, cut, rows);
  }
  if (cut.blocks == kMostBlocks) return record_form<N, kBytes, 1, 8>(r, a, cut, rows);
  return most == 1          ? record_form<N, kBytes, 1>(r, a, cut, rows)
         : most == kTwoRows ? record_form<N, kBytes, kTwoRows>(r, a, cut, rows)
         : most == kFewRows ? record_form<N, kBytes, kFewRows>(r, a, cut, rows)
                            : record_form<N, kBytes, kMostRows>(r, a, cut, rows);
}

template <bool kBytes>
swy_status record_heads(const Recording& r, const Attention& a, const Cut& cut, uint32_t rows) {
  return a.head_dim == 64    ? record_dim<2, kBytes>(r, a, cut, rows)
         : a.head_dim == 128 ? record_dim<4, kBytes>(r, a, cut, rows)
                             : record_dim<8, kBytes>(r, a, cut, rows);
}

// `parts`: of workspace(), unless they are left.
swy_status record_with(const Recording& r, void* parts, const HalfRows& halves, const HeadParts& left = {}) {
  const auto rows = static_cast<uint32_t>(swy::tensor(r.op, "q").dims[0]);
  const Cut cut = cut_of(r.device(), r.attrs<swy_attention_attrs>(), r.bucket());
  Attention a = attention_of(r, false);
  a.splits = cut.most;
  a.halves = halves;
  a.left = left;
  a.parts = static_cast<float*>(parts);
  a.counters = take_counters(r.list, rows * a.kv_heads * a.groups, r.error);
  if (a.counters == nullptr) return SWY_UNSUPPORTED;  // the message has been set already
  return a.kv_type == SWY_I8 ? record_heads<true>(r, a, cut, rows) : record_heads<false>(r, a, cut, rows);
}
swy_status record(const Recording& r) { return record_with(r, r.operands.workspace(), {}); }

// The most that a block of either form needs.
template <int N, bool kBytes>
uint32_t memory_of_forms(const swy_attention_attrs& a, const swy_bucket& bucket) {
  const uint32_t most = memory_bytes<Form<N, 16, kBytes>>(a.rotary_dim, most_rows(bucket));
  return bucket.rows == 1 ? std::max(most, memory_bytes<Form<N, 8, kBytes>>(a.rotary_dim, 1)) : most;
}
template <bool kBytes>
uint32_t memory_of_heads(const swy_attention_attrs& a, const swy_bucket& bucket) {
  return a.head_dim == 64    ? memory_of_forms<2, kBytes>(a, bucket)
         : a.head_dim == 128 ? memory_of_forms<4, kBytes>(a, bucket)
                             : memory_of_forms<8, kBytes>(a, bucket);
}

swy_status supports(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  const auto& a = attention_attrs(op);
  if (!one_row_each(bucket) && bucket.rows > kMostRows) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                     "takes steps with one row per sequence, or of up to %u rows", kMostRows);
  }
  SWY_CUDA_TRY(needs_rounded_kv(device, error));
  SWY_CUDA_TRY(needs_copy_engine(device, error));
  if (bucket.rows > 64) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "takes at most 64 rows, the bucket has %u", bucket.rows);
  }
  if ((bucket.page_size & (bucket.page_size - 1)) != 0) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "pages have %u tokens; it must be a power of two",
                     bucket.page_size);
  }
  if (a.head_dim != 64 && a.head_dim != 128 && a.head_dim != 256) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "head_dim is %u; it must be 64, 128 or 256", a.head_dim);
  }
  if (device.kv_i8 && bucket.page_size < kLeastPage) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                     "pages have %u tokens; with keys and values in 8 bits they must have at least %u",
                     bucket.page_size, kLeastPage);
  }
  const uint32_t needed = device.kv_i8 ? memory_of_heads<true>(a, bucket) : memory_of_heads<false>(a, bucket);
  if (needed > device.features.block_memory) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "needs %u bytes of shared memory; a block may have %u",
                     needed, device.features.block_memory);
  }
  if (a.rotary_dim % (a.head_dim / 16) == 0) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "rotary_dim is %u; it must be a multiple of %u",
                   a.rotary_dim, a.head_dim / 16);
}

double cost(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  const auto& a = attention_attrs(op);
  const double rows = 2.0 * bucket.rows * bucket.context * a.kv_heads;  // keys and values
  return 5 + device.rates.bytes(rows * kv_row_bytes(device, a.head_dim), 3.6e6);
}

uint64_t workspace(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  const auto& a = attention_attrs(op);
  const uint64_t units = uint64_t{bucket.rows} * a.kv_heads * groups_of(a);
  return units * cut_of(device, a, bucket).most * kHeads * (a.head_dim + 2) * sizeof(float);
}

constexpr Kernel kKernels[] = {
    {"attention.decode", SWY_OP_ATTENTION, kAlways, SWY_BF16, supports, cost, workspace, record}};

}  // namespace

std::span<const Kernel> attention_decode_kernels() { return kKernels; }

swy_status record_attention_halves(const Recording& r, void* workspace, const HalfRows& halves) {
  return record_with(r, workspace, halves);
}
bool attention_leaves_parts(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  const auto& a = attention_attrs(op);
  if (bucket.rows != 1 || !one_row_each(bucket) || a.head_dim != HeadParts::kDim) return false;
  const Cut cut = cut_of(device, a, bucket);
  return cut.blocks == kPartsCluster && cut.most > 1 && cut.most <= HeadParts::kParts;
}
swy_status record_attention_parts(const Recording& r, const HeadParts& parts) {
  return record_with(r, nullptr, {}, parts);
}

}  // namespace gpu
