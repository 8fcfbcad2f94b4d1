// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA for prompts, after the rule: the gated norm of a row, as bytes for the projection behind it. So its
// values are neither written nor read in fp32.
#include "common/matrix.cuh"
#include "gated_delta_inputs.cuh"
#include "grouped/byte_rows.cuh"

namespace gpu {
namespace {

constexpr uint32_t kHeld = 4, kBlocks = 4;  // stages that a warp has in registers; of a multiprocessor

struct ByteHeads {
  Chunks c;
  ByteRows to;
};

// A row of the rule's output. A lane has eight neighbouring columns of a head, the same ones in every 256 columns.
struct HeadsRow : ByteRow {
  const Delta& d;
  uint32_t width;
  static constexpr int kSums = 0;
  static constexpr bool kAhead = true;
  float sums[1];
  const uint16_t* o;  // this lane's columns of the row's first head
  const float* z;
  uint32_t head_elements, shift;  // from a head to the next one in o; heads are 1 << shift columns wide
  bool active;
  float w[8];
  uint4 o_held[kHeld];
  float4 z_held[kHeld][2];

  // Of the step and the weights only.
  __device__ HeadsRow(const ByteHeads& b, const swy_step* step, uint32_t of)
      : ByteRow{b.to, of}, d(b.c.d), width(d.values()), z(d.z + uint64_t{of} * width) {
    shift = __ffs(static_cast<int>(d.value_dim)) - 1;
    head_elements = b.c.slices() * (kChunk * kSlice);
    const uint32_t column = threadIdx.x % 32 * 8 % d.value_dim;
    const uint32_t seq = step_array<uint32_t>(step, step->row_seq_at)[row];
    const uint32_t start = step_array<uint32_t>(step, step->row_start_at)[seq], i = row - start;
    active = step_array<uint32_t>(step, step->seq_active_at)[seq] != 0;
    o = b.c.v + uint64_t{part_number(start, seq, kChunk) + i / kChunk} * d.value_heads * head_elements +
        column / kSlice * (kChunk * kSlice) + tile_at<kSlice / 8>(i % kChunk, column % kSlice / 8) / 2;
#pragma unroll
    for (uint32_t j = 0; j < 8; ++j) w[j] = plain_at(d.norm, column + j);
  }
  __device__ void ask(uint32_t i, uint32_t k) {
    o_held[i] = make_uint4(0, 0, 0, 0);
    z_held[i][0] = z_held[i][1] = make_float4(0, 0, 0, 0);
    if (!active) return;
    o_held[i] = *reinterpret_cast<const uint4*>(o + uint64_t{k >> shift} * head_elements);
    z_held[i][0] = *reinterpret_cast<const float4*>(z + k), z_held[i][1] = *reinterpret_cast<const float4*>(z + k + 4);
  }
  // Whole warps call this.
  __device__ void load(uint32_t i, float (&v)[8]) const {
    const uint32_t words[4] = {o_held[i].x, o_held[i].y, o_held[i].z, o_held[i].w};
    const float4 a = z_held[i][0], b = z_held[i][1];
    const float gate[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    float squares = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      v[j] = j % 2 == 0 ? low_of(words[j / 2]) : high_of(words[j / 2]);
      squares = fmaf(v[j], v[j], squares);
    }
#pragma unroll
    for (uint32_t lanes = 8; lanes > 0; lanes /= 2) {
      const float other = __shfl_xor_sync(kAll, squares, lanes);
      if (lanes * 16 <= d.value_dim) squares += other;
    }
    const float scale = rsqrtf(squares / static_cast<float>(d.value_dim) + d.norm_eps);
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = v[j] * scale * w[j] * fast_silu(gate[j]);
  }
  __device__ void put_scale(float scale) const {
    if (threadIdx.x == 0) to.scales.last[row] = scale;
  }
};

// blockIdx.y: row. kPends: with pending rows.
template <bool kPends>
__global__ void __launch_bounds__(kRowWarps * 32, kBlocks)
    heads_to_bytes(const __grid_constant__ ByteHeads b, const swy_step* step) {
  __shared__ RowMemory<kRowWarps> memory;
  const uint32_t row = blockIdx.y;
  release_next();
  HeadsRow of(b, step, row < step->rows ? row : 0);
  const KeptInputs kept(step, of.row);
  depend();
  if (row >= step->rows) return;
  if (kPends) {
    keep_row(b.c.d, step, row);
  } else {
    kept.keep(b.c.d);
  }
  convert_row<kHeld>(of, memory);
}

}  // namespace

swy_status record_heads_to_bytes(const Recording& r, const Chunks& c, const ByteRows& to) {
  return launch(r, c.pends() ? heads_to_bytes<true> : heads_to_bytes<false>, dim3(1, r.bucket().rows), kRowWarps * 32,
                0, ByteHeads{c, to}, r.list.step);
}

}  // namespace gpu
