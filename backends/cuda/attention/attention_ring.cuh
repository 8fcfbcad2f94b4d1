// SPDX-License-Identifier: Apache-2.0
// Keys and values of attention.decode in shared memory: how rows are cut, the layout of a block's memory, and the rings
// that the copy engine fills.
#pragma once

#include "attention.cuh"
#include "common/clusters.cuh"
#include "common/matrix.cuh"

namespace gpu {

// Warps of a block. Each has one query head, and walks through keys and values. Their registers (128 a thread; another
// warp would not fit) and the shared memory are what a block of the previous projection leaves free.
constexpr uint32_t kWorkers = kHeads, kThreads = kWorkers * 32;
constexpr uint32_t kCopied = 4096;      // bytes of keys or values that are copied at once, at most
constexpr uint32_t kMostBlocks = 16;    // of a cluster
constexpr uint32_t kPartsCluster = 8;   // of a cluster that leaves parts: each block has one head
constexpr uint32_t kMostClusters = 15;  // of a row: the largest number in four bits
constexpr uint32_t kRing = 12 * 1024;   // bytes of a warp's keys and values

// How rows are cut: clusters of `blocks` blocks; one cluster up to `alone` positions, then one per `reach`, at most
// `most`.
struct Cut {
  uint32_t blocks, most, alone, reach;

  __host__ __device__ uint32_t clusters(uint32_t context) const {
    const uint32_t n = context <= alone ? 1 : (context + reach - 1) / reach;
    return n < most ? n : most;
  }
  __device__ uint32_t shift() const { return __ffs(blocks) - 1; }  // `blocks` is a power of two
  // `blocks`, which is known for clusters of the most blocks.
  template <class F>
  __device__ uint32_t size() const {
    return F::kPieces == kMostBlocks ? kMostBlocks : blocks;
  }
  // A block joins own<F>() pieces (Form); piece p is joined by block joiner<F>(p), as number place<F>(p) there.
  template <class F>
  __device__ uint32_t own() const {
    return F::kPieces >> (__ffs(size<F>()) - 1);
  }
  template <class F>
  __device__ uint32_t joiner(uint32_t p) const {
    return p * size<F>() / F::kPieces;
  }
  template <class F>
  __device__ uint32_t place(uint32_t p) const {
    return p & (own<F>() - 1);
  }
};

// N: elements of a head per lane, head_dim / 32. kPositions: of a tile; 16, or 8 in clusters of kMostBlocks. kInBytes:
// keys and values have 8 bits and scales (attention_bytes.cuh); otherwise they are bf16.
template <int N, uint32_t kPositions, bool kInBytes = false>
struct Form {
  static constexpr int kLane = N;
  static constexpr uint32_t kTile = kPositions;
  static constexpr bool kBytes = kInBytes;
  static constexpr uint32_t kDim = 32 * N, kBytesOfRow = kDim * (kBytes ? 1 : 2);
  static constexpr uint32_t kTogether = kBytesOfRow < 128 ? 2 : 1;     // positions whose rows lie in 128 bytes
  static constexpr uint32_t kColumns = kBytesOfRow * kTogether / 128;  // columns of 128 bytes
  // A stage has the keys or values of a tile, or some of their columns: [columns][positions / kTogether][128 bytes], as
  // the copy engine swizzles them.
  static constexpr uint32_t kColumn = kTile / kTogether * 128, kMost = kCopied / kColumn;
  static constexpr uint32_t kOfStage = kColumns < kMost ? kColumns : kMost;
  static constexpr uint32_t kParts = kColumns / kOfStage;  // of a tile's keys or values
  static constexpr uint32_t kItem = kOfStage * kColumn, kStage = kItem < 1024 ? 1024 : kItem;
  static constexpr uint32_t kStages = kRing / kStage;
  // Tiles whose scales are under way or in use. A tile's lie in one slot: those of its keys, then of its values.
  static constexpr uint32_t kSlots = kBytes ? (kStages + 1) / 2 : 0;
  static constexpr uint32_t kRow = kDim * 2 + 16;  // bytes of a query head: no bank conflicts between neighbours
  static constexpr uint32_t kBoth = kDim * 4;      // of a key and a value
  // Where the scale of a key or value in shared memory lies, and that of a query head, which has 16 bits.
  static constexpr uint32_t kScale = kDim, kQueryScale = 2 * kDim;
  static constexpr uint32_t kPartial = kDim + 4;  // floats of a head of a warp's sums, where its ring was
  static constexpr uint32_t kVectors = kDim / 4;  // of a head, four floats each
  // What a block joins of one head is a piece: a whole head, or half of one where a cluster has more blocks than heads.
  static constexpr uint32_t kPieces = kTile == 16 ? kHeads : kMostBlocks, kPiece = kHeads * kVectors / kPieces;
  static constexpr uint32_t kInbox = kWorkers * kRing + (kHeads + 2) * kRow;  // [kHeads][kDim] floats
  static constexpr uint32_t kSmall = kInbox + kHeads * kDim * 4;
  static constexpr uint32_t kKnown = kHeads * kPartial * 4;  // where a warp's stats lie in its ring
  static_assert(kKnown + kHeads * 8 <= kRing && kInbox % 16 == 0 && kStage % 1024 == 0);
};

// The largest score of a head, and the sum of its weights.
using Stat = float2;

// Of the tiles of warps.
template <class F, bool = F::kBytes>
struct Slots {};
template <class F>
struct alignas(16) Slots<F, true> {
  float scales[kWorkers][F::kSlots][2 * F::kTile];
};

template <class F>
struct Small : Slots<F> {
  uint64_t there[kWorkers][F::kStages], pushed;
  Stat inbox[F::kPieces];
  uint32_t last;
  float2 turn[1];  // cosine and sine per pair of elements; as many as rotary_dim / 2
};

// Shared memory of a block, from a multiple of 128 bytes: rings, query heads, the row's own key and value, results that
// other blocks push.
template <class F>
struct Memory {
  char* base;

  __device__ char* ring(uint32_t warp) const { return base + warp * kRing; }
  __device__ float* partial(uint32_t warp) const { return reinterpret_cast<float*>(ring(warp)); }
  __device__ Stat* known(uint32_t warp) const { return reinterpret_cast<Stat*>(ring(warp) + F::kKnown); }
  __device__ char* head(uint32_t i) const { return base + kWorkers * kRing + i * F::kRow; }
  __device__ char* own(bool value) const { return head(kHeads + value); }
  __device__ float4* inbox() const { return reinterpret_cast<float4*>(base + F::kInbox); }
  __device__ Small<F>& small() const { return *reinterpret_cast<Small<F>*>(base + F::kSmall); }
};
template <class F>
__host__ __device__ inline uint32_t memory_bytes(uint32_t rotary) {
  const uint32_t turns = rotary / 2 * sizeof(float2);
  return F::kSmall + (sizeof(Small<F>) + turns + 15) / 16 * 16;
}
// Whether the keys and values of a sequence's earlier rows have memory of their own, after everything else: in steps of
// up to two rows, where the block still fits beside a projection's. In others they lie where results will be pushed.
__host__ __device__ constexpr bool earlier_behind(uint32_t rows) { return rows == 2; }
template <class F>
inline uint32_t memory_bytes(uint32_t rotary, uint32_t rows) {
  return memory_bytes<F>(rotary) + (earlier_behind(rows) ? (rows - 1) * F::kBoth : 0);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// ---- keys and values

// The work of a block: positions [first, last) of `context`, and where they lie.
struct Share {
  const uint32_t* table;
  uint32_t kv, kv_heads, shift;  // 2^shift positions in a page
  uint32_t context, first, last;

  // Row of the pool's matrix [pages, kv_heads, keys and values, positions] x [head_dim].
  __device__ uint32_t row(uint32_t page, bool values, uint32_t position) const {
    return (((page * kv_heads + kv) * 2 + values) << shift) + (position & ((1u << shift) - 1));
  }
};

// The tiles of a warp: every kWorkers-th of its block's. Keys and values take turns in the stages of its ring. A warp
// requests the next contents of a stage as soon as it has read the current ones.
template <class F>
class Stages {
 public:
  __device__ uint32_t tiles() const { return tiles_; }
  __device__ uint32_t position(uint32_t tile) const {
    return share_.first + (tile * kWorkers + threadIdx.x / 32) * F::kTile;
  }
  __device__ uint32_t at() const { return at_ + stage_ * F::kStage; }  // of the stage that comes next
  // Waits for the next item.
  __device__ void wait() const { barrier_wait(barriers_ + stage_ * 8, parity_); }

 protected:
  // Must be called before any request.
  __device__ Stages(const Share& share, const CUtensorMap& map, const Memory<F>& memory) : share_(share), map_(map) {
    const uint32_t warp = threadIdx.x / 32, all = (share.last - share.first + F::kTile - 1) / F::kTile;
    tiles_ = all > warp ? (all - warp + kWorkers - 1) / kWorkers : 0;
    at_ = shared_at(memory.ring(warp));
    barriers_ = shared_at(memory.small().there[warp]);
    if (tiles_ != 0 && threadIdx.x % 32 == 0) {
      for (uint32_t i = 0; i < F::kStages; ++i) barrier_init(barriers_ + i * 8, 1);
      publish_barriers();
    }
    __syncwarp();
  }
  __device__ void next() {
    if (++stage_ == F::kStages) stage_ = 0, parity_ ^= 1;
  }

  const Share& share_;
  const CUtensorMap& map_;
  uint32_t at_, barriers_, tiles_;
  uint32_t asked_ = 0, stage_ = 0, parity_ = 0;  // `asked_`: items
};

// The ring of keys and values in bf16.
template <class F>
class Ring : public Stages<F> {
  using Base = Stages<F>;
  using Base::share_, Base::map_, Base::at_, Base::barriers_, Base::tiles_, Base::asked_, Base::stage_;

 public:
  // columns: of a box.
  __device__ Ring(const Attention&, const Share& share, const CUtensorMap& map, uint32_t columns,
                  const Memory<F>& memory)
      : Base(share, map, memory), columns_(columns), rows_shift_(min(share.shift, kTileShift)) {}

  // Requests the first stages.
  __device__ void fill() {
    for (; asked_ < F::kStages && asked_ < kItems * tiles_; ++asked_) ask(asked_, asked_);
  }
  // The current item has been read.
  __device__ void give_back() {
    __syncwarp();
    if (asked_ < kItems * tiles_) ask(asked_++, stage_);
    Base::next();
  }

 private:
  static constexpr uint32_t kItems = 2 * F::kParts;  // of a tile: parts of its keys, then of its values
  static constexpr uint32_t kTileShift = F::kTile == 16 ? 4 : 3;

  // A tile is copied in pieces that lie in one page.
  __device__ uint32_t pieces_shift() const { return kTileShift - rows_shift_; }
  __device__ void look_up(uint32_t tile) {
    const uint32_t i = threadIdx.x % 32, per = pieces_shift();
    const uint32_t p = Base::position(tile + (i >> per)) + ((i & ((1u << per) - 1)) << rows_shift_);
    page_ = p < share_.context ? share_.table[p >> share_.shift] : 0;
  }
  // Requests an item into a stage.
  __device__ void ask(uint32_t item, uint32_t stage) {
    const uint32_t lane = threadIdx.x % 32, tile = item / kItems, from = Base::position(tile), per = pieces_shift();
    const uint32_t first = (tile << per) % 32, rows = 1u << rows_shift_;
    const uint32_t part = item % F::kParts;
    const bool values = item % kItems >= F::kParts;
    if (item % kItems == 0 && first == 0) look_up(tile);
    const uint32_t page = __shfl_sync(kAll, page_, (first + lane) % 32);
    const uint32_t pieces = min(1u << per, (share_.context - from + rows - 1) >> rows_shift_);
    const uint32_t barrier = barriers_ + stage * 8, to = at_ + stage * F::kStage + lane * rows * 128;
    if (lane == 0) barrier_expect(barrier, pieces * rows * F::kOfStage * 128);
    __syncwarp();
    if (lane >= pieces) return;
    const uint32_t row = share_.row(page, values, from + lane * rows);
    for (uint32_t c = 0; c < F::kOfStage; c += columns_) {
      copy_box(to + c * F::kColumn, map_, make_uint3(0, row, part * F::kOfStage + c), barrier);
    }
  }

  uint32_t columns_, rows_shift_, page_ = 0;
};

// Where piece p (16 bytes) of a row lies in a stage.
template <class F>
__device__ inline uint32_t unit_at(uint32_t stage, uint32_t row, uint32_t unit) {
  if constexpr (F::kTogether == 2) unit += row % 2 * 4, row /= 2;
  const uint32_t at = stage + unit / 8 * F::kColumn + row * 128;
  return at + ((unit % 8) ^ (at / 128 % 8)) * 16;
}
__device__ inline void store_unit(uint32_t at, uint4 v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

// Copies the sequence's own key or value, or a part of it, into a row of a stage, since it is not in its page yet.
template <class F>
__device__ inline void put_own(uint32_t stage, uint32_t row, const char* own) {
  const uint32_t unit = threadIdx.x % 32;
  if (unit < F::kOfStage * 8 / F::kTogether) {
    store_unit(unit_at<F>(stage, row, unit), reinterpret_cast<const uint4*>(own)[unit]);
  }
  __syncwarp();
}
// Fills values from a row on with zeros: their weight is 0, but they must be numbers.
template <class F>
__device__ inline void clear_values(uint32_t stage, uint32_t row) {
  const uint32_t unit = threadIdx.x % 32;
  for (; row < F::kTile && unit < F::kOfStage * 8; ++row) {
    store_unit(unit_at<F>(stage, row, unit), make_uint4(0, 0, 0, 0));
  }
  __syncwarp();
}

#endif

}  // namespace gpu
