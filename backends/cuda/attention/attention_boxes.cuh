// SPDX-License-Identifier: Apache-2.0
// Keys and values of attention.wgmma in shared memory: a warp brings them by the copy engine, a block of positions at a
// time. Keys and values have two slots each; a slot is a panel (attention_prompt.cuh) for every 64 elements of a head.
#pragma once

#include <algorithm>

#include "attention_prompt.cuh"
#include "common/wgmma.cuh"
#include "host/tensor_map.h"

namespace gpu {

// From a multiple of 1,024 bytes on: two slots of keys, two of values, barriers.
constexpr uint32_t prompt_boxes_bytes(uint32_t dim) { return panels_bytes(dim, 4 * kPositions) + 128; }

// Boxes of a block's positions, or of a page's if it has fewer; those of whole blocks have all elements of a head.
inline swy_status map_pool(const Recording& r, const Attention& a, CUtensorMap* map) {
  const uint64_t pool = uint64_t{r.bucket().pages} * a.kv_heads * 2 * r.bucket().page_size;
  const uint32_t rows = std::min(kPositions, r.bucket().page_size), columns = rows == kPositions ? a.head_dim / 64 : 1;
  return map_columns(a.pages, pool, uint64_t{a.head_dim} * 2, rows, columns, map, r.error);
}

#ifdef SWY_HOPPER

// Blocks are counted from the tile's first one.
template <int kDim>
class PromptBoxes {
 public:
  // All threads of the block meet here. readers: warpgroups that read each block.
  __device__ PromptBoxes(char* memory, uint32_t readers) : memory_(memory), at_(shared_at(memory)) {
    if (threadIdx.x == 0) {
      for (uint32_t i = 0; i < 4; ++i) barrier_init(full(i), 1), barrier_init(empty(i), readers * 4);
      barrier_init(partial(), 1);
      publish_barriers();
    }
    __syncthreads();
  }

  // Where a block lies.
  __device__ uint32_t keys(uint32_t block) const { return at_ + slot(block, false) * kSlot; }
  __device__ uint32_t values(uint32_t block) const { return at_ + slot(block, true) * kSlot; }
  __device__ void wait_keys(uint32_t block) const { barrier_wait(full(slot(block, false)), block / 2 % 2); }
  __device__ void wait_values(uint32_t block) const { barrier_wait(full(slot(block, true)), block / 2 % 2); }
  // Each warp calls these, after the products.
  __device__ void keys_read(uint32_t block) const { give_back(slot(block, false)); }
  __device__ void values_read(uint32_t block) const { give_back(slot(block, true)); }

  // By one warp: brings the blocks of a tile, each when its slot has been given back.
  __device__ void bring(const CUtensorMap& map, const Attention& a, const swy_step* step, const Tile& tile) const {
    const uint32_t begin = tile.first_block(a), blocks = tile.blocks() - begin;
    const uint32_t shift = __ffs(step->page_size) - 1;
    const Source from{map,   table_of(step, tile.part.seq), a.kv_heads,         tile.kv,
                      shift, tile.first_position(a),        tile.context() - 1, begin * kPositions};
    uint32_t before = 0, page = from.page(0), parity = 0;
    for (uint32_t i = 0; i <= blocks; ++i) {  // the values of a block come after the keys of the next one
      const uint32_t next = i + 1 < blocks ? from.page(i + 1) : 0;
      if (i < blocks) {
        barrier_wait(empty(slot(i, false)), i / 2 % 2 ^ 1);
        from.ask(i, false, page, keys(i), full(slot(i, false)));
      }
      if (i > 0) bring_values(from, i - 1, before, parity);
      before = page, page = next;
    }
  }

 private:
  static constexpr uint32_t kSlot = panels_bytes(kDim, kPositions);

  // What one warp copies: lane i has the i-th piece of a block, the positions that lie in one page.
  struct Source {
    const CUtensorMap& map;
    const uint32_t* table;
    uint32_t kv_heads, kv, shift;  // 2^shift positions in a page
    uint32_t first, last, begin;   // positions `first` to `last` are read; `begin`: of the first block

    __device__ uint32_t rows() const { return min(1u << shift, kPositions); }
    __device__ uint32_t position(uint32_t block) const {
      return begin + block * kPositions + threadIdx.x % 32 * rows();
    }
    __device__ bool mine(uint32_t block) const {
      const uint32_t at = position(block);
      return threadIdx.x % 32 * rows() < kPositions && at <= last && at + rows() > first;
    }
    __device__ bool reads(uint32_t position) const { return position >= first && position <= last; }
    __device__ bool whole(uint32_t block) const {
      return reads(begin + block * kPositions) && reads(begin + block * kPositions + kPositions - 1);
    }
    __device__ uint32_t page(uint32_t block) const { return mine(block) ? table[position(block) >> shift] : 0; }
    __device__ void ask(uint32_t block, bool values, uint32_t page, uint32_t to, uint32_t barrier) const {
      const bool own = mine(block);
      const uint32_t pieces = __popc(__ballot_sync(kAll, own)), lane = threadIdx.x % 32;
      if (lane == 0) barrier_expect(barrier, pieces * rows() * kDim * 2);
      __syncwarp();
      if (!own) return;
      const uint32_t row = (((page * kv_heads + kv) * 2 + values) << shift) + (position(block) & ((1u << shift) - 1));
      const uint32_t columns = rows() == kPositions ? kDim / 64 : 1;  // of a box
      for (uint32_t c = 0; c < kDim / 64; c += columns) {
        copy_box(to + c * kPanel + lane * rows() * 128, map, make_uint3(0, row, c), barrier);
      }
    }
  };

  // Values of positions that are not read become zeros: their weight is 0, but they must be numbers.
  __device__ void bring_values(const Source& from, uint32_t block, uint32_t page, uint32_t& parity) const {
    const uint32_t there = full(slot(block, true)), lane = threadIdx.x % 32;
    barrier_wait(empty(slot(block, true)), block / 2 % 2 ^ 1);
    if (from.whole(block)) return from.ask(block, true, page, values(block), there);
    from.ask(block, true, page, values(block), partial());
    barrier_wait(partial(), parity);
    parity ^= 1;
    for (uint32_t row = 0; row < kPositions; ++row) {
      if (from.reads(from.begin + block * kPositions + row) || lane >= kDim / 8) continue;
      *reinterpret_cast<uint4*>(memory_ + slot(block, true) * kSlot + in_panels(row, lane)) = uint4{};
    }
    stores_visible_to_copies();  // and to products
    __syncwarp();
    if (lane == 0) barrier_arrive(there);
  }

  __device__ static uint32_t slot(uint32_t block, bool values) { return (values ? 2 : 0) + block % 2; }
  __device__ uint32_t full(uint32_t slot) const { return at_ + 4 * kSlot + slot * 8; }
  __device__ uint32_t empty(uint32_t slot) const { return at_ + 4 * kSlot + (4 + slot) * 8; }
  __device__ uint32_t partial() const { return at_ + 4 * kSlot + 8 * 8; }
  __device__ void give_back(uint32_t slot) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(empty(slot));
  }

  char* memory_;
  uint32_t at_;
};

#endif

}  // namespace gpu
