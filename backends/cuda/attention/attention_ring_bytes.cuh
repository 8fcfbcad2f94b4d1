// SPDX-License-Identifier: Apache-2.0
// The ring of a warp of attention.decode with keys and values in 8 bits (attention_bytes.cuh). A tile is one box of
// keys and one of values, in one page. Its scales come by cp.async: 64 bytes take the copy engine as long as a box
// does.
#pragma once

#include "attention_ring.cuh"

namespace gpu {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Where the keys and values of a KV head lie: rows of the matrix of head_dim bytes that the pool is.
struct BytePlaces {
  const BytePages& pages;
  void* pool;
  uint32_t kv, shift;  // 2^shift positions in a page

  __device__ BytePlaces(const Attention& a, const Share& share)
      : pages(a.bytes), pool(a.pages), kv(share.kv), shift(share.shift) {}
  // Of a key. The row and the scale of its value are 2^shift later.
  __device__ uint32_t row(uint32_t page, uint32_t position) const {
    return page * pages.rows + (kv * 2 << shift) + (position & ((1u << shift) - 1));
  }
  __device__ float* scale(uint32_t page, uint32_t row) const {
    return pages.scale(pool, page, row - page * pages.rows);
  }
};

// Copies the scales of a key and a value, which come after them in shared memory, into a tile's slot.
template <class F>
__device__ inline void put_own_scales(float* slot, uint32_t row, const char* key, const char* value) {
  const uint32_t lane = threadIdx.x % 32;
  if (lane < 2) slot[lane * F::kTile + row] = *reinterpret_cast<const float*>((lane == 0 ? key : value) + F::kScale);
  __syncwarp();
}

template <class F>
class ByteRing : public Stages<F> {
  using Base = Stages<F>;
  using Base::share_, Base::map_, Base::at_, Base::barriers_, Base::tiles_, Base::asked_, Base::stage_;

 public:
  __device__ ByteRing(const Attention& a, const Share& share, const CUtensorMap& map, uint32_t, const Memory<F>& memory)
      : Base(share, map, memory), places_(a, share), slots_(memory.small().scales[threadIdx.x / 32][0]) {}

  // Requests the first stages.
  __device__ void fill() {
#pragma unroll 1
    for (; asked_ < F::kStages; ++asked_) ask(asked_);
  }
  // The current item has been read.
  __device__ void give_back() {
    __syncwarp();
    ask(stage_);
    ++asked_;
    Base::next();
  }
  // The scales of the next tile: of its keys, then of its values. To be read before its keys are given back.
  __device__ float* scales(uint32_t tile) const { return slots_ + tile % F::kSlots * (2 * F::kTile); }
  __device__ void wait_for_scales() const {
    copies_wait<F::kSlots - 1>();
    __syncwarp();
  }

 private:
  static_assert(F::kParts == 1);
  static constexpr uint32_t kQuads = F::kTile / 4;  // of scales that are copied at once

  // Requests the next item into a stage. Past the last tile, too, a group of copies ends with each item of keys, since
  // wait_for_scales() counts groups.
  __device__ void ask(uint32_t stage) {
    const uint32_t tile = asked_ / 2, values = asked_ % 2;
    if (tile < tiles_) {
      if (values == 0 && tile % 32 == 0) look_up(tile);
      const uint32_t row = __shfl_sync(kAll, row_, tile % 32);
      if (threadIdx.x % 32 == 0) {
        const uint32_t barrier = barriers_ + stage * 8;
        const uint32_t line = (row + (values << places_.shift)) / F::kTogether;
        barrier_expect(barrier, F::kItem);
        copy_box(at_ + stage * F::kStage, map_, make_uint3(0, line, 0), barrier);
      }
      if (values == 0) ask_scales(tile, row);
    }
    if (values == 0) copies_end();
  }
  __device__ void ask_scales(uint32_t tile, uint32_t row) const {
    const uint32_t lane = threadIdx.x % 32, page = __shfl_sync(kAll, page_, tile % 32);
    if (lane >= 2 * kQuads) return;
    copy_later(scales(tile) + lane * 4, places_.scale(page, row) + (lane / kQuads << places_.shift) + lane % kQuads * 4,
               true);
  }
  // Finds 32 tiles, one by each lane.
  __device__ void look_up(uint32_t tile) {
    const uint32_t p = Base::position(tile + threadIdx.x % 32);
    page_ = p < share_.context ? share_.table[p >> share_.shift] : 0;
    row_ = places_.row(page_, p);
  }

  BytePlaces places_;
  float* slots_;
  uint32_t page_ = 0, row_ = 0;
};

#endif

}  // namespace gpu
