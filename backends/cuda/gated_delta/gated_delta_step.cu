// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA where every sequence has one row, or up to eight: the whole step in one kernel; from 9.0 on,
// the form without clusters (kRaw) from 8.0 on.
//
// A cluster of blocks serves one key head of one sequence: its value heads, each divided into slices of 32 columns. A
// warp keeps four columns of the state in registers, and requests them before the previous kernels have ended: only
// earlier steps write a slot. All blocks of a cluster have read the old inputs of the convolution before one of them
// writes the new ones, and they share the sums for the norm.
//
// If the reader of the result applies the norm's factor (kRaw), the blocks are no cluster: the device has no room for
// 16 clusters beside another kernel, and the last one would begin late. Then the last block that has read the shared
// inputs writes them. The gate, and the norm's weights, are applied here, where each element is computed once, and
// elements become integers; every block of the reader would compute all of them.
//
// Several rows of a sequence share the state in the registers and the weights of the convolution. Everything that does
// not depend on the state is computed for all rows at once; the state then takes one row after the other.
//
// Pending rows that stand are applied before all that, also while the previous kernels run: like the states, only
// earlier steps write them. Rows that stay pending leave the states as they are then, and are kept beside them.
#include <cooperative_groups.h>

#include "gated_delta_columns.cuh"

namespace gpu {
namespace {

namespace cg = cooperative_groups;

constexpr uint32_t kThreads = kColumnThreads, kSlice = kColumns, kMostCluster = 8, kMostRows = 8;
constexpr uint32_t kMostRawRows = 4;
static_assert(kMostRows * kSlice <= kThreads);

// For __launch_bounds__: with two such blocks, 512 threads leave 64 registers for each, 448 leave 72. States in fp32
// need these, and before 9.0 no kernel runs beside another. Blocks have 256 threads.
constexpr uint32_t one_row_threads([[maybe_unused]] bool i16) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  if (!i16) return 448;
#endif
  return 512;
}

// blockIdx.x: key head * cluster size + block; blockIdx.y: sequence. N: groups of 32 keys. kRows: the most rows of a
// sequence. kRaw, with one row: 64 registers at most, so that two blocks, of two sequences, fit beside a projection's.
// kPends: with pending rows. kI16: states of 16 bits.
template <int N, bool kRaw, uint32_t kRows, bool kPends, bool kI16>
__global__ void __launch_bounds__(kRaw&& kRows == 1 && !kPends ? one_row_threads(kI16) : kThreads, kRaw ? 2 : 1)
    delta_step(const __grid_constant__ Delta d, uint32_t slices, uint32_t* readers, const swy_step* step) {
#if __CUDA_ARCH__ < 900
  if (!kRaw) return;  // what follows needs clusters
#endif
  constexpr uint32_t kHeld = kPends && kRows < kRowsAtOnce ? kRowsAtOnce : kRows;
  // With one row the next kernel begins at once; with more that is slower, and with pending rows it was not measured.
  constexpr bool kReleasesAtOnce = kRows == 1 && !kPends;
  static_assert(!kRaw || kRows <= kMostRawRows);
  using Own = Columns<N, kI16>;
  constexpr int kChannels = Own::kChannels;
  using Held = ColumnRows<N, kHeld>;
  __shared__ __align__(16) Held m;
  __shared__ __align__(16) float out[kRows][kSlice];
  Stamps stamps(kStampDelta);
  if (kReleasesAtOnce) release_next();
  const ColumnPlace place(d, slices);
  const uint32_t key_head = place.key_head, head = place.head, slice = place.slice;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, part = lane % 8, column = place.column;
  const uint32_t dim = d.key_dim, channels = d.channels(), taps = d.kernel;
  const bool valid = blockIdx.y < step->seqs;
  const Run s = valid ? run_of<kPends>(step, blockIdx.y) : Run{};
  const bool active = valid && s.active;
  const auto has = [&](uint32_t r) { return active && (kRows == 1 || r < s.rows); };
  Own own(d, s, active, place);
  const bool there = own.there;
  const GateWeights gate_of = gate_weights(d, head);
  const bool writes = kRaw && there && part == 0;
  const uint32_t norm_bits = writes ? plain_bits_at(d.norm, column) : 0;
  stamps.note(kAsked);
  if (!kReleasesAtOnce) release_next();
  stamps.take_place();
  if constexpr (kPends) {
    own.take_state();
    own.apply_standing(d, s, head, gate_of, m);
    if (s.pends && (s.kept > 0 || s.moves())) own.store(d, s, place);
  }
  depend();
  stamps.note(kWaited);
  float line[kChannels][kMostTaps - 1 + kRows], z[kRows];  // loaded before the gates are computed
#pragma unroll
  for (int i = 0; i < kChannels; ++i) {
#pragma unroll
    for (uint32_t t = 0; t + 1 < kMostTaps; ++t) line[i][t] = own.old[i][t];
  }
#pragma unroll
  for (uint32_t r = 0; r < kRows; ++r) {
    const uint64_t row = s.first + r;
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
      const bool in = own.channel[i] != Own::kNone && (r == 0 || has(r));
      line[i][kMostTaps - 1 + r] = in ? d.qkv[row * channels + own.channel[i]] : 0.0f;
    }
    z[r] = writes && (r == 0 || has(r)) ? d.z[row * d.values() + head * d.value_dim + column] : 0.0f;
  }
  if constexpr (!kPends) own.take_state();  // a conversion takes place while these loads are under way
  // One warp each: the first warp has the most channels, the last one the fewest. A lane has a row.
  if (warp == kThreads / 32 - 1 && active) {
    const float2 of = gates(d, gate_of, kRows == 1 ? s.first : s.first + min(lane, s.rows - 1), head);
    if (lane < kRows) m.gate[lane] = of;
  }
  float squares[2][kRows] = {};  // of q, of k
#pragma unroll
  for (uint32_t r = 0; r < kRows; ++r) {
    if (r != 0 && !has(r)) continue;
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
      if (own.channel[i] != Own::kNone) own.mix(d, i, line[i] + r, m.mixed[r], squares[0][r], squares[1][r]);
    }
  }
  // Writes the new inputs: this block's own, of v; and those of q and k once all blocks of the key head have read the
  // old ones.
  const auto keep_inputs = [&](bool of_v) {
    const uint32_t applied = kPends && s.pends ? 0 : s.rows;  // of the step's own rows
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
      const uint32_t j = i * kThreads + threadIdx.x, channel = own.channel[i];
      if (channel == Own::kNone || (j >= 2 * dim) != of_v) continue;
      float* to = d.conv_state + ((s.write * channels + channel) * (taps - 1) - uint64_t{kMostTaps - taps});
#pragma unroll
      for (uint32_t t = 0; t + 1 < kMostTaps; ++t) {
        float x = line[i][t + 1];
#pragma unroll
        for (uint32_t r = 2; r <= kRows; ++r) x = applied >= r ? line[i][t + r] : x;
        if (kPends && applied == 0) x = line[i][t];
        if (t + taps >= kMostTaps) to[t] = x;
      }
#pragma unroll
      for (uint32_t r = 0; r < kRows; ++r) {
        if (kPends && s.pends && r < s.rows) d.pending_row(s.write, r)[channel] = line[i][kMostTaps - 1 + r];
      }
    }
    if (!kPends || of_v || !active || !s.pends) return;
    const uint32_t heads = d.value_heads / d.key_heads;  // the key head's; of each row b, then a
    for (uint32_t i = threadIdx.x; i < s.rows * 2 * heads; i += kThreads) {
      const uint32_t row = i / (2 * heads), of = key_head * heads + i % heads, is_a = i / heads % 2;
      const float* from = is_a != 0 ? d.a : d.b;
      d.pending_row(s.write, row)[channels + is_a * d.value_heads + of] =
          from[uint64_t{s.first + row} * d.value_heads + of];
    }
  };
  stamps.note(kRead);
  // All sums over the block at once.
#pragma unroll
  for (uint32_t r = 0; r < kRows; ++r) {
#pragma unroll
    for (uint32_t k = 0; k < 2; ++k) {
      const float sum = warp_sum(squares[k][r]);
      if (lane == 0) m.sums[r][8 * k + warp] = sum;
    }
  }
  __syncthreads();
  uint32_t before = 0;  // how many blocks have read; this block has used what it read, or it would not be here
  if (kRaw && threadIdx.x == 0) before = atomicAdd(readers + blockIdx.y * d.key_heads + key_head, 1u);
  if (kRaw) keep_inputs(true);
  stamps.note(kArrived);
  float o[kRows] = {};
#pragma unroll
  for (uint32_t r = 0; r < kRows; ++r) {
    if (r != 0 && !has(r)) continue;
    o[r] = own.template apply<true>(d, m.mixed[r], m.sums[r], active ? m.gate[r] : make_float2(0, 0));
    if ((r + 1 == kRows || !has(r + 1)) && !(kPends && s.pends)) own.store(d, s, place);
  }
  stamps.note(kMultiplied);
#pragma unroll
  for (uint32_t r = 0; r < kRows; ++r) {
    float sum = there && part == 0 ? o[r] * o[r] : 0.0f;
    sum += __shfl_xor_sync(kAll, sum, 8);
    sum += __shfl_xor_sync(kAll, sum, 16);
    if (lane == 0) m.sums[r][16 + warp] = sum;
    const float element = kRaw ? o[r] * plain_of(d.norm, norm_bits) * quick_silu(z[r]) : o[r];
    if (part == 0) out[r][warp * 4 + lane / 8] = there ? element : 0.0f;
  }
  __shared__ bool last;
  if (kRaw && threadIdx.x == 0) last = before + 1 == place.blocks;
  __syncthreads();
  const uint32_t summed = threadIdx.x - 32;  // the second warp's first threads have a row each
  const auto sum_of_row = [&] {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < 8; ++w) sum += m.sums[summed][16 + w];
    return sum;
  };
  if constexpr (kRaw) {
    if (summed < kRows && valid && summed < s.rows) {
      const uint32_t parts = head_parts(d.value_dim);
      float* to = d.squares + (uint64_t{s.first + summed} * d.value_heads + head) * parts;
      to[slice] = sum_of_row();
      for (uint32_t i = slices; slice == 0 && i < parts; ++i) to[i] = 0;
    }
    if (last) keep_inputs(false);
    if (last && threadIdx.x == 0) readers[blockIdx.y * d.key_heads + key_head] = 0;
    const uint32_t r = warp - 2;  // the third warp and those behind it have a row each
    if (r < kRows && valid && r < s.rows) {
      const auto* from = reinterpret_cast<const float4*>(&out[r][lane % 4 * 8]);
      const float4 a = from[0], b = from[1];
      const float v[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
      put_half(d.heads, v, s.first + r, d.values(), (head * d.value_dim + column) / kSlice);
    }
    return;
  }
#if __CUDA_ARCH__ >= 900
  __shared__ float shared_squares[kRows];
  const uint32_t rank = place.rank;
  if (summed < kRows) shared_squares[summed] = sum_of_row();
  cg::cluster_group cluster = cg::this_cluster();
  cluster.sync();
  keep_inputs(true);
  if (rank == 0) keep_inputs(false);
  const uint32_t r = threadIdx.x / kSlice, mine = slice * kSlice + threadIdx.x % kSlice;
  if (r < kRows) {
    float sum = 0;
    for (uint32_t b = 0; b < slices; ++b) {
      sum += *cluster.map_shared_rank(&shared_squares[r], rank / slices * slices + b);
    }
    if (valid && r < s.rows && mine < d.value_dim) {
      const uint64_t to = uint64_t{s.first + r} * d.values() + head * d.value_dim + mine;
      const float scale = rsqrtf(sum / static_cast<float>(d.value_dim) + d.norm_eps);
      d.y[to] = active ? out[r][threadIdx.x % kSlice] * scale * plain_at(d.norm, mine) * silu(d.z[to]) : 0.0f;
    }
  }
  cluster.sync();  // no block exits while another reads its shared memory
#endif
}

uint32_t slices_of(const swy_gated_delta_attrs& a) { return (a.value_dim + kSlice - 1) / kSlice; }
uint32_t cluster_of(const swy_gated_delta_attrs& a) { return a.value_heads / a.key_heads * slices_of(a); }

// The most rows of a sequence.
uint32_t sequence_rows(const swy_bucket& bucket) { return (bucket.flags & SWY_BUCKET_DECODE) != 0 ? 1 : bucket.rows; }

template <int N, bool kRaw, uint32_t kRows, bool kPends, bool kI16>
swy_status record_step(const Recording& r, const Delta& d) {
  const auto& a = r.attrs<swy_gated_delta_attrs>();
  uint32_t* readers = nullptr;  // [sequences, key heads]
  if (kRaw) {
    readers = take_counters(r.list, r.bucket().seqs * a.key_heads, r.error);
    if (readers == nullptr) return SWY_UNSUPPORTED;  // the message has been set already
  }
  return launch_clusters(r, delta_step<N, kRaw, kRows, kPends, kI16>, kRaw ? 1 : cluster_of(a),
                         dim3(a.key_heads * cluster_of(a), r.bucket().seqs), kThreads, 0, d, slices_of(a), readers,
                         r.list.step);
}

template <bool kRaw, uint32_t kRows, bool kPends, bool kI16>
swy_status record_form(const Recording& r, const Delta& d) {
  return d.key_dim <= 32   ? record_step<1, kRaw, kRows, kPends, kI16>(r, d)
         : d.key_dim <= 64 ? record_step<2, kRaw, kRows, kPends, kI16>(r, d)
                           : record_step<4, kRaw, kRows, kPends, kI16>(r, d);
}
template <bool kRaw, uint32_t kRows, bool kPends>
swy_status record_rows(const Recording& r, const Delta& d) {
  return d.states.i16 ? record_form<kRaw, kRows, kPends, true>(r, d) : record_form<kRaw, kRows, kPends, false>(r, d);
}
template <bool kRaw, bool kPends>
swy_status record_any(const Recording& r, const Delta& d) {
  const uint32_t rows = sequence_rows(r.bucket());
  if (rows == 1) return record_rows<kRaw, 1, kPends>(r, d);
  if constexpr (!kRaw) {
    if (rows > kMostRawRows) return record_rows<kRaw, kMostRows, kPends>(r, d);
  }
  return rows > 2 ? record_rows<kRaw, kMostRawRows, kPends>(r, d) : record_rows<kRaw, 2, kPends>(r, d);
}
template <bool kRaw>
swy_status record_delta(const Recording& r, const Delta& d) {
  return d.pending != nullptr ? record_any<kRaw, true>(r, d) : record_any<kRaw, false>(r, d);
}

swy_status record(const Recording& r) { return record_delta<false>(r, delta_of(r)); }

swy_status supports(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  SWY_CUDA_TRY(needs_copy_engine(device, error));
  return supports_delta_step(device, op, bucket, error);
}

double cost(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  return cost_of(device, row_bytes(op) + state_bytes(device, op, bucket), 0) + 0.5 * (sequence_rows(bucket) - 1);
}

// Adds in another order than the kernels for prompts.
constexpr Kernel kKernels[] = {{.name = "gated_delta.step",
                                .op = SWY_OP_GATED_DELTA,
                                .flags = kAlways,
                                .activations = SWY_F32,
                                .supports = supports,
                                .cost = cost,
                                .record = record,
                                .op_revision = 2}};

}  // namespace

swy_status supports_delta_step(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  const auto& a = *static_cast<const swy_gated_delta_attrs*>(op.attrs);
  if (sequence_rows(bucket) > kMostRows) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_FLAGS,
                     "serves steps with one row per sequence, or of up to %u rows", kMostRows);
  }
  const uint32_t keys = device.delta_i16 && a.key_dim > 32 ? 8 : 4;
  if (a.key_dim % keys != 0 || a.key_dim > 128 || a.conv_kernel > kMostTaps || cluster_of(a) > kMostCluster) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                     "key_dim %u, kernel %u, %u slices of value columns per key head; multiples of %u up to 128, at "
                     "most %u and %u",
                     a.key_dim, a.conv_kernel, cluster_of(a), keys, kMostTaps, kMostCluster);
  }
  return SWY_OK;
}

swy_status record_delta_raw(const Recording& r, const Delta& d) { return record_delta<true>(r, d); }

std::span<const Kernel> gated_delta_step_kernels() { return kKernels; }

}  // namespace gpu
