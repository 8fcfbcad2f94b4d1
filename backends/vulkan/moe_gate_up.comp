// SPDX-License-Identifier: Apache-2.0
// MOE, first half: h [rows, top_k * width + shared_width] = act(gate, up) of the chosen experts and of the shared
// one. gl_WorkGroupID.y: row.
//
// PLAIN: any shape, a subgroup per element of h. Otherwise a subgroup computes two elements of h, from two rows of gate
// and their two rows of up. With kChoose every workgroup makes the router's choice itself, which costs less than
// waiting for another launch.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
#include "mixture.glsl"
#include "activation.glsl"
layout(local_size_x = 256) in;
layout(push_constant, std430) uniform Push {
  uint64_t x, h, ids, weights, logits, step;  // [rows, hidden]; ids and weights [rows, top_k]; logits [rows, experts]
  uint64_t gate_up, shared_gate, shared_up, biases;
  uint hidden, experts, top_k, width, shared_width, domain;
  float alpha, limit;  // kClamped
};

uint per_slot(uint per_task) { return (width + per_task - 1) / per_task; }
uint tasks(uint per_task) { return top_k * per_slot(per_task) + (shared_width + per_task - 1) / per_task; }
uint64_t h_row(uint row) { return h + uint64_t(row) * (top_k * width + shared_width) * 4; }

// Element i of an expert's h, or of the shared one's.
float middle(bool routed, uint64_t expert, uint i, float g, float u) {
  if (kBiasType != 0 && routed) {
    g += bias_of(biases, expert, 2 * width, i);
    u += bias_of(biases, expert, 2 * width, width + i);
  }
  return activated(kClamped, alpha, limit, g, u);
}

#ifdef PLAIN

void main() {
  uint row = gl_WorkGroupID.y, stride = gl_NumWorkGroups.x * gl_NumSubgroups;
  if (row >= step_rows(step, domain)) return;
  uint64_t from = x + uint64_t(row) * hidden * 4;
  for (uint task = gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID; task < tasks(1); task += stride) {
    uint slot = min(task / width, top_k), i = task - slot * width;
    bool routed = slot < top_k;
    Weight gate, up;
    uint64_t gate_row = i, up_row = i, expert = 0;
    if (routed) {
      expert = min(uint(Ints(ids).at[row * top_k + slot]), experts - 1);
      gate = up = weight_of(gate_up, uint64_t(experts) * 2 * width, hidden, kForm);
      gate_row = expert * 2 * width + i;
      up_row = gate_row + width;
    } else {
      gate = weight_of(shared_gate, shared_width, hidden, kSharedForm);
      up = weight_of(shared_up, shared_width, hidden, kSharedForm);
    }
    float g = 0, u = 0;
    for (uint k = gl_SubgroupInvocationID; k < hidden; k += gl_SubgroupSize) {
      float v = Floats(from).at[k];
      g = fma(v, weight_at(gate, gate_row, k), g);
      u = fma(v, weight_at(up, up_row, k), u);
    }
    g = subgroupAdd(g);
    u = subgroupAdd(u);
    if (gl_SubgroupInvocationID == 0) Floats(h_row(row)).at[task] = middle(routed, expert, i, g, u);
  }
}

#else

#include "vector.glsl"  // kM 1, kR 4: gate, gate, up, up
const uint kMostExperts = 512;
#include "router.glsl"

uint64_t row_data[kR], row_scales[kR], row_offsets[kR];
uint scale_shift;
#define FETCH fetch
#define MULTIPLY multiply
#define PIECE_DATA(r, p) (row_data[r] + 16 * (p))
#define PIECE_SCALE(r, p) (row_scales[r] + scale_bytes(dtype) * ((p) >> scale_shift))
#define PIECE_OFFSET(r, p) (row_offsets[r] + 2 * ((p) >> scale_shift))
#include "multiply.glsl"

void take_row(uint r, Weight w, uint64_t row) {
  row_data[r] = w.data + row * w.row_bytes;
  row_scales[r] = w.scales + row * w.groups * scale_bytes(w.dtype);
  row_offsets[r] = w.offsets + row * w.groups * 2;
}

// The chosen experts of the row, into chosen_id; the first workgroup stores them.
void make_choice(uint row) {
  if (gl_SubgroupID == 0) {
    if (kChoose) {
      choose(logits + uint64_t(row) * experts * 4, experts, top_k);
      subgroupMemoryBarrierShared();
      subgroupBarrier();
    }
    for (uint k = gl_SubgroupInvocationID; k < top_k; k += gl_SubgroupSize) {
      if (kChoose && gl_WorkGroupID.x == 0) {
        Ints(ids).at[row * top_k + k] = int(chosen_id[k]);
        Floats(weights).at[row * top_k + k] = chosen_weight[k];
      }
      if (!kChoose) chosen_id[k] = min(uint(Ints(ids).at[row * top_k + k]), experts - 1);
    }
  }
}

void main() {
  // The values are loaded speculatively: rows past the step's count have memory, too, and are discarded.
  uint row = gl_WorkGroupID.y, stride = gl_NumWorkGroups.x * gl_NumSubgroups, rows = step_rows(step, domain);
  make_choice(row);
  uint64_t from = x + uint64_t(row) * hidden * 4;
  for (uint e4 = gl_LocalInvocationIndex; e4 < hidden / 4; e4 += 256) stage(0, e4, Float4s(from).at[e4], 1.0);
  if (row >= rows) return;
  barrier();
  for (uint task = gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID; task < tasks(2); task += stride) {
    uint slot = min(task / per_slot(2), top_k), first = (task - slot * per_slot(2)) * 2;
    bool routed = slot < top_k;
    uint count = routed ? width : shared_width;
    Weight gate, up;
    uint64_t base = 0, between = 0;
    if (routed) {
      gate = up = weight_of(gate_up, uint64_t(experts) * 2 * width, hidden, kForm);
      base = uint64_t(chosen_id[slot]) * 2 * width;
      between = width;
    } else {
      gate = weight_of(shared_gate, shared_width, hidden, kSharedForm);
      up = weight_of(shared_up, shared_width, hidden, kSharedForm);
    }
    scale_shift = group_shift(gate);
    [[unroll]] for (uint i = 0; i < 2; ++i) {
      uint at = min(first + i, count - 1);
      take_row(i, gate, base + at);
      take_row(2 + i, up, base + between + at);
    }
    [[unroll]] for (uint a = 0; a < kR; ++a) vector_acc[a] = 0;
    if (uses(F32) && gate.dtype == F32) {
      fetch(F32, hidden / 4, gl_SubgroupInvocationID);
      multiply(F32, hidden / 4, 0);
    }
    if (uses(BF16) && gate.dtype == BF16) {
      fetch(BF16, hidden / 8, gl_SubgroupInvocationID);
      multiply(BF16, hidden / 8, 0);
    }
    if (uses(I8) && gate.dtype == I8) {
      fetch(I8, hidden / 16, gl_SubgroupInvocationID);
      multiply(I8, hidden / 16, 0);
    }
    if (uses(I4) && gate.dtype == I4) {
      fetch(I4, hidden / 32, gl_SubgroupInvocationID);
      multiply(I4, hidden / 32, 0);
    }
    if (uses(I4A) && gate.dtype == I4A) {
      fetch(I4A, hidden / 32, gl_SubgroupInvocationID);
      multiply(I4A, hidden / 32, 0);
    }
    if (uses(MXFP4) && gate.dtype == MXFP4) {
      fetch(MXFP4, hidden / 32, gl_SubgroupInvocationID);
      multiply(MXFP4, hidden / 32, 0);
    }
    [[unroll]] for (uint i = 0; i < 2; ++i) {
      float g = subgroupAdd(vector_acc[i]), u = subgroupAdd(vector_acc[2 + i]);
      if (gl_SubgroupInvocationID == i && first + i < count) {
        uint64_t expert = routed ? chosen_id[slot] : 0;
        Floats(h_row(row)).at[slot * width + first + i] = middle(routed, expert, first + i, g, u);
      }
    }
  }
}

#endif
