// SPDX-License-Identifier: Apache-2.0
// Shared by the kernels of GATED_DELTA: operands, and how a row finds its sequence's states.
#pragma once

#include "common/device_code.cuh"
#include "common/few_rows.cuh"
#include "common/half_rows.cuh"
#include "gated_delta_state.cuh"
#include "host/kernels.h"

namespace gpu {

struct Delta {
  const float *qkv, *z, *b, *a;  // [rows, channels], [rows, values], [rows, value_heads] twice
  Weight conv, a_log, dt_bias, norm;
  float* conv_state;       // [slots, channels, kernel - 1]
  RuleStates states;       // of the rule
  float* y;                // [rows, values]
  float* mixed;            // [rows, channels]: after the convolution, q and k normalised
  const float* convolved;  // [rows, channels], of gated_delta.cu: after the convolution; may be `mixed`
  float2* gate;            // [rows, value_heads]: beta and exp(g)
  float* squares;          // [rows, value_heads, head_parts(value_dim)]: of gated_delta_step.h
  HalfRows heads;          // [rows, values]: likewise, in place of y
  FewRows few;             // [rows, values]: of gated_delta_batch.h, in place of y
  uint32_t key_heads, value_heads, key_dim, value_dim, kernel;
  float norm_eps, l2_eps;
  // [slots, pending_rows, pending_width()]: a pending row's qkv, b and a; null in revision 1
  float* pending;
  uint32_t pending_rows, first_pending;  // first_pending: where rows that stand begin in `mixed` and `gate`

  __host__ __device__ uint32_t keys() const { return key_heads * key_dim; }
  __host__ __device__ uint32_t values() const { return value_heads * value_dim; }
  __host__ __device__ uint32_t channels() const { return 2 * keys() + values(); }
  __host__ __device__ uint32_t pending_width() const { return channels() + 2 * value_heads; }
  __device__ float* pending_row(uint64_t slot, uint32_t row) const {
    return pending + (slot * pending_rows + row) * pending_width();
  }
};

// Bytes of the rule's states that a step reads and writes, for estimates.
inline double state_bytes(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  const auto& a = *static_cast<const swy_gated_delta_attrs*>(op.attrs);
  return (device.delta_i16 ? 4.0 : 8.0) * a.value_heads * a.key_dim * a.value_dim * bucket.seqs;
}

// The operands of GATED_DELTA and of its parts, as far as an operation has them.
Delta delta_of(const Recording& r);
// Records u = silu(causal convolution of qkv) into `mixed`, and keeps the last inputs of each sequence.
swy_status record_convolution(const Recording& r, const Delta& d);
// Only keeps them.
swy_status record_kept_inputs(const Recording& r, const Delta& d);

// A sequence of the step, with its slots.
struct Sequence {
  uint32_t first, rows;  // of the step
  uint64_t read, write;  // slots
  bool active, fresh;    // fresh: begins with zeros
};
__device__ inline Sequence sequence_of(const swy_step* step, uint32_t seq) {
  const uint32_t* start = step_array<uint32_t>(step, step->row_start_at);
  const uint32_t* position = step_array<uint32_t>(step, step->row_position_at);
  const uint32_t* active = step_array<uint32_t>(step, step->seq_active_at);
  Sequence s;
  s.read = step_array<uint32_t>(step, step->seq_read_slot_at)[seq];
  s.write = step_array<uint32_t>(step, step->seq_write_slot_at)[seq];
  const uint32_t is_active = active[seq];  // loaded together with the others, not after them
  s.first = start[seq];
  s.rows = start[seq + 1] - s.first;
  s.active = is_active != 0 && s.rows > 0;
  s.fresh = s.rows > 0 && position[s.first] == 0;
  return s;
}

// A sequence with its pending rows (step.h). Rows of an earlier step that stand, and then its own, are its run.
struct Run : Sequence {
  uint32_t kept = 0;   // so many rows stand
  bool pends = false;  // its own rows stay pending

  __device__ uint32_t applied() const { return pends ? kept : kept + rows; }  // of the run, to the states
  __device__ bool moves() const { return fresh || read != write; }  // states are written even if nothing is applied
};
// kPends: the operation has pending rows. Without, a run has the step's rows only.
template <bool kPends>
__device__ inline Run run_of(const swy_step* step, uint32_t seq, const Sequence& own) {
  Run s{own};
  if constexpr (kPends) {
    if (!s.active || step->seq_kept_at == 0) return s;
    const uint32_t word = step_array<uint32_t>(step, step->seq_kept_at)[seq];
    s.kept = SWY_KEPT_COUNT(word);
    s.pends = (word & SWY_KEPT_PENDING) != 0;
  }
  return s;
}
template <bool kPends>
__device__ inline Run run_of(const swy_step* step, uint32_t seq) {
  return run_of<kPends>(step, seq, sequence_of(step, seq));
}

// Channel c of row i of a run, before the convolution; negative: of the last rows before it.
template <bool kPends>
__device__ inline float input_of(const Delta& d, const Run& s, int i, uint32_t c) {
  const uint32_t channels = d.channels(), keep = d.kernel - 1;
  if (const int own = i - static_cast<int>(s.kept); own >= 0) return d.qkv[uint64_t{s.first + own} * channels + c];
  if (kPends && i >= 0) return d.pending_row(s.read, i)[c];
  return s.fresh ? 0.0f : d.conv_state[(s.read * channels + c) * keep + (keep + i)];
}

// A row that gated_delta.cu computes, in a place of `mixed` and `gate`: one of the step, or one that stands.
struct RunRow {
  Run run;
  uint32_t nth, place;  // nth: of the run
  bool own, there;
};
// They are counted with a place for every row that may be pending.
template <bool kPends>
__device__ inline uint32_t run_rows(const Delta& d, const swy_step* step) {
  return kPends ? step->rows + step->seqs * d.pending_rows : step->rows;
}
template <bool kPends>
__device__ inline RunRow run_row(const Delta& d, const swy_step* step, uint32_t n) {
  const uint32_t rows = step->rows;
  RunRow r;
  r.own = !kPends || n < rows;
  r.run = run_of<kPends>(step, r.own ? step_array<uint32_t>(step, step->row_seq_at)[n] : (n - rows) / d.pending_rows);
  r.nth = r.own ? r.run.kept + n - r.run.first : (n - rows) % d.pending_rows;
  r.place = r.own ? n : d.first_pending + n - rows;
  r.there = r.own || r.nth < r.run.kept;
  return r;
}

// Keeps a row of the step if it stays pending. All threads of blocks with this blockIdx.y share it.
__device__ inline void keep_row(const Delta& d, const swy_step* step, uint32_t row) {
  const Run s = run_of<true>(step, step_array<uint32_t>(step, step->row_seq_at)[row]);
  if (!s.pends) return;
  const uint32_t channels = d.channels(), heads = d.value_heads;
  float* to = d.pending_row(s.write, row - s.first);
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < d.pending_width(); i += gridDim.x * blockDim.x) {
    to[i] = i < channels           ? d.qkv[uint64_t{row} * channels + i]
            : i < channels + heads ? d.b[uint64_t{row} * heads + i - channels]
                                   : d.a[uint64_t{row} * heads + i - channels - heads];
  }
}

// What the gates of one head depend on besides the row.
struct GateWeights {
  uint32_t a_log, bias;  // plain_bits_at
};
__device__ inline GateWeights gate_weights(const Delta& d, uint32_t head) {
  return {plain_bits_at(d.a_log, head), plain_bits_at(d.dt_bias, head)};
}
// beta and g of one head, from its b and a.
__device__ inline float2 log_gates_of(const Delta& d, const GateWeights& w, float b, float a) {
  const float x = a + plain_of(d.dt_bias, w.bias);
  const float softplus = x > 20.0f ? x : log1pf(expf(x));
  return make_float2(sigmoid(b), -expf(plain_of(d.a_log, w.a_log)) * softplus);
}
__device__ inline float2 log_gates(const Delta& d, const GateWeights& w, uint32_t row, uint32_t head) {
  const uint64_t at = uint64_t{row} * d.value_heads + head;
  const float a = d.a[at];
  return log_gates_of(d, w, d.b[at], a);
}
// beta and exp(g).
__device__ inline float2 gates_of(const Delta& d, const GateWeights& w, float b, float a) {
  const float2 g = log_gates_of(d, w, b, a);
  return make_float2(g.x, expf(g.y));
}
__device__ inline float2 gates(const Delta& d, const GateWeights& w, uint32_t row, uint32_t head) {
  const float2 g = log_gates(d, w, row, head);
  return make_float2(g.x, expf(g.y));
}
// Of a pending row.
__device__ inline float2 pending_gates(const Delta& d, const GateWeights& w, const float* row, uint32_t head) {
  const float* b = row + d.channels() + head;
  return gates_of(d, w, b[0], b[d.value_heads]);
}
__device__ inline float2 gates(const Delta& d, uint32_t row, uint32_t head) {
  return gates(d, gate_weights(d, head), row, head);
}

}  // namespace gpu
