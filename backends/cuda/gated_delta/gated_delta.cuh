// SPDX-License-Identifier: Apache-2.0
// Shared by the kernels of GATED_DELTA: operands, and how a row finds its sequence's states.
#pragma once

#include "common/device_code.cuh"
#include "host/kernels.h"

namespace gpu {

struct Delta {
  const float *qkv, *z, *b, *a;  // [rows, channels], [rows, values], [rows, value_heads] twice
  Weight conv, a_log, dt_bias, norm;
  float* conv_state;       // [slots, channels, kernel - 1]
  float* rule_state;       // [slots, value_heads, value_dim, key_dim]
  float* y;                // [rows, values]
  float* mixed;            // [rows, channels]: after the convolution, q and k normalised
  const float* convolved;  // [rows, channels], of gated_delta.cu: after the convolution; may be `mixed`
  float2* gate;            // [rows, value_heads]: beta and exp(g)
  float* squares;          // [rows, value_heads, head_parts(value_dim)]: of gated_delta_step.h
  uint32_t key_heads, value_heads, key_dim, value_dim, kernel;
  float norm_eps, l2_eps;

  __host__ __device__ uint32_t keys() const { return key_heads * key_dim; }
  __host__ __device__ uint32_t values() const { return value_heads * value_dim; }
  __host__ __device__ uint32_t channels() const { return 2 * keys() + values(); }
};

// The operands of GATED_DELTA and of its parts, as far as an operation has them.
Delta delta_of(const Recording& r);
// Records u = silu(causal convolution of qkv) into `mixed`, and keeps the last inputs of each sequence.
swy_status record_convolution(const Recording& r, const Delta& d);

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

// What the gates of one head depend on besides the row.
struct GateWeights {
  uint32_t a_log, bias;  // plain_bits_at
};
__device__ inline GateWeights gate_weights(const Delta& d, uint32_t head) {
  return {plain_bits_at(d.a_log, head), plain_bits_at(d.dt_bias, head)};
}
// beta and g of one head.
__device__ inline float2 log_gates(const Delta& d, const GateWeights& w, uint32_t row, uint32_t head) {
  const uint64_t at = uint64_t{row} * d.value_heads + head;
  const float a = d.a[at], b = d.b[at], x = a + plain_of(d.dt_bias, w.bias);
  const float softplus = x > 20.0f ? x : log1pf(expf(x));
  return make_float2(sigmoid(b), -expf(plain_of(d.a_log, w.a_log)) * softplus);
}
// beta and exp(g).
__device__ inline float2 gates(const Delta& d, const GateWeights& w, uint32_t row, uint32_t head) {
  const float2 g = log_gates(d, w, row, head);
  return make_float2(g.x, expf(g.y));
}
__device__ inline float2 gates(const Delta& d, uint32_t row, uint32_t head) {
  return gates(d, gate_weights(d, head), row, head);
}

}  // namespace gpu
