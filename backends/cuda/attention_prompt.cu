// ATTENTION of prompts, keys and values in bf16: tiles of queries over blocks of 64 positions, on tensor cores, with a
// running softmax (Dao 2023, "FlashAttention-2").
//
// The rows of a tile are all query heads of one KV head for some neighbouring rows of a sequence, so that its keys and
// values are read once for all of them. A warp has 16 of them. With kSplit 2 a tile has half as many rows, and its
// halves of every block of positions go to two teams of warps, which join at the end: more and shorter tiles.
#include "attention.cuh"
#include "matrix.cuh"
#include "parts.cuh"

namespace gpu {
namespace {

constexpr uint32_t kWarps = 8, kThreads = kWarps * 32, kPositions = 64, kBuffers = 2;

__host__ __device__ constexpr uint32_t tile_rows(uint32_t split) { return kWarps * 16 / split; }
// Queries, then keys and values of each buffer.
constexpr uint32_t shared_bytes(uint32_t dim, uint32_t split) {
  return (tile_rows(split) + kBuffers * 2 * kPositions) * dim * 2;
}

__device__ inline float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// A tile of queries: rows of a sequence, and their positions.
struct Tile {
  Part part;
  uint32_t position;  // of the first row
  uint32_t kv, per_row;
  __device__ uint32_t context() const { return position + part.rows; }
  // Query m of the tile.
  __device__ uint32_t row(uint32_t m) const { return m / per_row; }
  __device__ bool there(uint32_t m) const { return row(m) < part.rows; }
  __device__ uint64_t head(const Attention& a, uint32_t m) const {
    return uint64_t{part.first + row(m)} * a.heads + kv * per_row + m % per_row;
  }
};

// Where this thread's keys lie: lanes 0 to 7 look for one position each of those that the warp copies.
template <int kDim>
struct Pages {
  static constexpr uint32_t kUnits = kDim / 8, kRowsAtOnce = 32 / kUnits;
  const uint32_t* table;
  uint32_t row, last, page;
  __device__ Pages(const swy_step* step, const Tile& t) : table(table_of(step, t.part.seq)), last(t.context() - 1) {
    const uint32_t lane = threadIdx.x % 8, warp = threadIdx.x / 32;
    row = lane / kRowsAtOnce * kWarps * kRowsAtOnce + warp * kRowsAtOnce + lane % kRowsAtOnce;
    page = table[min(row, last) / step->page_size];
  }
  // Asks for block `block`; the table is read one block ahead.
  __device__ void bring(const Attention& a, const swy_step* step, uint32_t kv, uint32_t block, char* keys) {
    const uint32_t size = step->page_size, position = min(block * kPositions + row, last);
    const uint64_t mine = ((uint64_t{page} * a.kv_heads + kv) * 2 * size + position % size) * kDim;
    page = table[min(position + kPositions, last) / size];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, unit = lane % kUnits;
    char* values = keys + kPositions * kDim * 2;
#pragma unroll
    for (uint32_t n = 0; n < 8 / kRowsAtOnce; ++n) {
      const uint64_t at = __shfl_sync(kAll, mine, n * kRowsAtOnce + lane / kUnits);
      const uint32_t to = (n * kWarps + warp) * kRowsAtOnce + lane / kUnits;
      const auto* from = static_cast<const uint16_t*>(a.pages) + at + unit * 8;
      const bool in = block * kPositions + to <= last;
      copy_later(keys + tile_at<kUnits>(to, unit), from, in);
      copy_later(values + tile_at<kUnits>(to, unit), from + size * kDim, in);
    }
    copies_end();
  }
};

// What a warp knows: per thread two queries (g and g + 8), as products lay them out.
template <int kDim>
struct Running {
  float out[kDim / 8][4], top[2], sum[2];  // sum: of this thread's positions
};

// One block's scores [16, kSpan] become weights; what was summed before shrinks with the new maximum.
template <int kDim, int kTiles>
__device__ inline void soften(float (&s)[kTiles][4], Running<kDim>& r) {
  float shrink[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float best = r.top[h];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) best = fmaxf(best, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
    best = fmaxf(best, __shfl_xor_sync(kAll, best, 1));
    best = fmaxf(best, __shfl_xor_sync(kAll, best, 2));
    const float base = best == -INFINITY ? 0.0f : best;
    shrink[h] = exp2_of(r.top[h] - base);
    r.top[h] = best;
    float sum = 0;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      s[n][2 * h] = exp2_of(s[n][2 * h] - base), s[n][2 * h + 1] = exp2_of(s[n][2 * h + 1] - base);
      sum += s[n][2 * h] + s[n][2 * h + 1];
    }
    r.sum[h] = fmaf(r.sum[h], shrink[h], sum);
  }
  if (__all_sync(kAll, shrink[0] == 1 && shrink[1] == 1)) return;
#pragma unroll
  for (int n = 0; n < kDim / 8; ++n) {
    r.out[n][0] *= shrink[0], r.out[n][1] *= shrink[0];
    r.out[n][2] *= shrink[1], r.out[n][3] *= shrink[1];
  }
}

// One team's part of a block of positions, from `first` on.
template <int kDim, int kSplit>
__device__ inline void attend_block(uint32_t queries, uint32_t keys, uint32_t m, uint32_t team, uint32_t first,
                                    const uint32_t (&limit)[2], Running<kDim>& r) {
  constexpr uint32_t kUnits = kDim / 8, kSpan = kPositions / kSplit;
  const uint32_t t = threadIdx.x % 4, values = keys + kPositions * kDim * 2;
  float s[kSpan / 8][4] = {};
#pragma unroll
  for (uint32_t k = 0; k < kDim; k += 16) {
    uint32_t a[4], b[4];
    first_operand<kUnits>(a, queries, m, k);
#pragma unroll
    for (uint32_t n = 0; n < kSpan / 16; ++n) {
      second_operand<kUnits>(b, keys, team * kSpan + n * 16, k);
      matrix_multiply(s[2 * n], a, b[0], b[1]);
      matrix_multiply(s[2 * n + 1], a, b[2], b[3]);
    }
  }
  if (first + kSpan - 1 > limit[0]) {  // limit[0] is not the larger one; lanes may differ
#pragma unroll
    for (uint32_t n = 0; n < kSpan / 8; ++n) {
#pragma unroll
      for (uint32_t e = 0; e < 4; ++e) {
        if (first + n * 8 + 2 * t + e % 2 > limit[e / 2]) s[n][e] = -INFINITY;
      }
    }
  }
  soften<kDim>(s, r);
#pragma unroll
  for (uint32_t k = 0; k < kSpan / 16; ++k) {
    uint32_t a[4], b[4];
    as_operand(a, s[2 * k], s[2 * k + 1]);
#pragma unroll
    for (uint32_t n = 0; n < kDim / 16; ++n) {
      second_transposed<kUnits>(b, values, team * kSpan + k * 16, n * 16);
      matrix_multiply(r.out[2 * n], a, b[0], b[1]);
      matrix_multiply(r.out[2 * n + 1], a, b[2], b[3]);
    }
  }
}

// The second team leaves what it knows in shared memory, and the first one adds it to its own.
template <int kDim>
__device__ inline void join_teams(bool first, Running<kDim>& r, float* shared) {
  constexpr uint32_t kHeld = kDim / 2 + 4;  // floats of a thread
  float* mine = shared + threadIdx.x / 32 % (kWarps / 2) * kHeld * 32 + threadIdx.x % 32;
  if (!first) {
#pragma unroll
    for (uint32_t i = 0; i < kDim / 2; ++i) mine[i * 32] = r.out[i / 4][i % 4];
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) mine[(kDim / 2 + h) * 32] = r.top[h], mine[(kDim / 2 + 2 + h) * 32] = r.sum[h];
  }
  __syncthreads();
  if (!first) return;
  float own[2], other[2];
#pragma unroll
  for (uint32_t h = 0; h < 2; ++h) {
    const float top = mine[(kDim / 2 + h) * 32], best = fmaxf(top, r.top[h]);
    own[h] = exp2_of(r.top[h] - best), other[h] = exp2_of(top - best);  // the first position is every query's
    r.sum[h] = r.sum[h] * own[h] + mine[(kDim / 2 + 2 + h) * 32] * other[h];
  }
#pragma unroll
  for (uint32_t i = 0; i < kDim / 2; ++i) {
    const uint32_t h = i % 4 / 2;
    r.out[i / 4][i % 4] = r.out[i / 4][i % 4] * own[h] + mine[i * 32] * other[h];
  }
}

// Writes a thread's two queries, m and m + 8.
template <int kDim>
__device__ inline void give(const Attention& a, const Tile& tile, uint32_t m, const Running<kDim>& r) {
  const uint32_t t = threadIdx.x % 4;
#pragma unroll
  for (uint32_t h = 0; h < 2; ++h) {
    if (!tile.there(m + 8 * h)) continue;
    const uint64_t head = tile.head(a, m + 8 * h);
    const float share = 1.0f / r.sum[h];
    const float* gate = a.q + head * 2 * kDim + kDim + 2 * t;
    float* y = a.y + head * kDim + 2 * t;
#pragma unroll
    for (uint32_t n = 0; n < kDim / 8; ++n) {
      float2 v = make_float2(r.out[n][2 * h] * share, r.out[n][2 * h + 1] * share);
      if (!tile.part.active) v = make_float2(0, 0);
      if (a.gated) {
        const float2 x = *reinterpret_cast<const float2*>(gate + n * 8);
        v.x *= sigmoid(x.x), v.y *= sigmoid(x.y);
      }
      *reinterpret_cast<float2*>(y + n * 8) = v;
    }
  }
}

// blockIdx.x: tiles, the last ones first, since they are the longest; blockIdx.y: KV head.
template <int kDim, int kSplit>
__global__ void __launch_bounds__(kThreads, 1) attend_prompt(const __grid_constant__ Attention a, const swy_step* step) {
  extern __shared__ __align__(128) char memory[];
  constexpr uint32_t kUnits = kDim / 8, kRows = tile_rows(kSplit), kBuffer = 2 * kPositions * kDim * 2;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, team = warp / (kWarps / kSplit);
  const uint32_t m = warp % (kWarps / kSplit) * 16, per_row = a.per_kv();
  release_next();
  depend();
  Tile tile;
  tile.part = part_of(step, gridDim.x - 1 - blockIdx.x, kRows / per_row);
  if (tile.part.rows == 0) return;
  tile.position = step_array<uint32_t>(step, step->row_position_at)[tile.part.first];
  tile.kv = blockIdx.y;
  tile.per_row = per_row;
  Running<kDim> r;
#pragma unroll
  for (uint32_t i = 0; i < kDim / 2; ++i) r.out[i / 4][i % 4] = 0;
  r.top[0] = r.top[1] = -INFINITY, r.sum[0] = r.sum[1] = 0;
  if (tile.part.active) {
    char* buffers = memory + kRows * kDim * 2;
    for (uint32_t i = threadIdx.x; i < kRows * kUnits; i += kThreads) {
      const uint32_t q = i / kUnits, u = i % kUnits;
      const bool in = tile.there(q);
      const uint64_t at = in ? tile.head(a, q) * kDim + u * 8 : 0;
      copy_later(memory + tile_at<kUnits>(q, u), static_cast<const uint16_t*>(a.ready) + at, in);
    }
    Pages<kDim> pages(step, tile);
    pages.bring(a, step, tile.kv, 0, buffers);
    // The last position of queries m + lane / 4 and 8 further. Those that are not there change nothing.
    const uint32_t limit[2] = {tile.position + tile.row(m + lane / 4), tile.position + tile.row(m + lane / 4 + 8)};
    const uint32_t blocks = (tile.context() + kPositions - 1) / kPositions;
    for (uint32_t b = 0; b < blocks; ++b) {
      copies_wait<0>();
      __syncthreads();
      if (b + 1 < blocks) pages.bring(a, step, tile.kv, b + 1, buffers + (b + 1) % kBuffers * kBuffer);
      attend_block<kDim, kSplit>(shared_address(memory), shared_address(buffers + b % kBuffers * kBuffer), m, team,
                                 b * kPositions + team * (kPositions / kSplit), limit, r);
    }
  }
#pragma unroll
  for (uint32_t h = 0; h < 2; ++h) {
    r.sum[h] += __shfl_xor_sync(kAll, r.sum[h], 1);
    r.sum[h] += __shfl_xor_sync(kAll, r.sum[h], 2);
  }
  if constexpr (kSplit == 2) {
    __syncthreads();
    join_teams<kDim>(team == 0, r, reinterpret_cast<float*>(memory));
  }
  if (team == 0) give<kDim>(a, tile, m + lane / 4, r);
}

template <int kDim, int kSplit>
swy_status record_tiles(const Recording& r, const Attention& a) {
  const uint32_t tiles = part_numbers(r.bucket(), tile_rows(kSplit) / a.per_kv());
  return launch(r, attend_prompt<kDim, kSplit>, dim3(tiles, a.kv_heads), kThreads, shared_bytes(kDim, kSplit), a,
                r.list.step);
}

// Whether tiles are cut in two: then there are enough of them for a short prompt.
bool cut(const swy_device& device, uint32_t dim, const swy_bucket& bucket) {
  return bucket.rows <= 3072 || device.block_memory < shared_bytes(dim, 1);
}

template <int kDim>
swy_status record_dim(const Recording& r, const Attention& a) {
  return cut(r.device(), kDim, r.bucket()) ? record_tiles<kDim, 2>(r, a) : record_tiles<kDim, 1>(r, a);
}

swy_status record(const Recording& r) {
  Attention a = attention_of(r, false);
  a.packed = true;
  a.scale *= 1.44269504088896f;  // weights are powers of two
  SWY_CUDA_TRY(record_prepare(r, a, static_cast<uint32_t>(r.op.inputs[0]->dims[0])));
  return a.head_dim == 64 ? record_dim<64>(r, a) : a.head_dim == 128 ? record_dim<128>(r, a) : record_dim<256>(r, a);
}

swy_status supports(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  const auto& a = attention_attrs(op);
  if (!device.kv_bf16) return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE, "needs keys and values in bf16");
  if (bucket.rows > 65535) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "takes at most 65535 rows, the bucket has %u", bucket.rows);
  }
  if (device.capability < 80 || device.block_memory < shared_bytes(a.head_dim, 2)) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "needs %u bytes of shared memory in a block",
                     shared_bytes(a.head_dim, 2));
  }
  if ((a.head_dim == 64 || a.head_dim == 128 || a.head_dim == 256) && a.rotary_dim <= kMostRotary &&
      a.heads / a.kv_heads <= tile_rows(2)) {
    return SWY_OK;
  }
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                   "head_dim is %u, %u query heads per KV head; it must be 64, 128 or 256, and they %u at most", a.head_dim,
                   a.heads / a.kv_heads, tile_rows(2));
}

// The products at the rate that they reach, or the longest tile.
double cost(const swy_op& op, const swy_bucket& bucket) {
  const auto& a = attention_attrs(op);
  const double before = bucket.context - 0.5 * (bucket.rows < bucket.context ? bucket.rows : bucket.context);
  const double all = 4.0 * bucket.rows * before * a.heads * a.head_dim / 2.5e8, longest = bucket.context * 0.02;
  return 10 + row_bytes(op) / 2e6 + (all > longest ? all : longest);
}

uint64_t workspace(const swy_device&, const swy_op& op, const swy_bucket& bucket) {
  const auto& a = attention_attrs(op);
  return uint64_t{bucket.rows} * a.heads * a.head_dim * sizeof(uint16_t);
}

constexpr Kernel kKernels[] = {
    {"attention.prompt", SWY_OP_ATTENTION, kAlways, SWY_BF16, supports, cost, workspace, record}};

}  // namespace

std::span<const Kernel> attention_prompt_kernels() { return kKernels; }

}  // namespace gpu
