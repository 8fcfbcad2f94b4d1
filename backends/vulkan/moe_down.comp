// SPDX-License-Identifier: Apache-2.0
// MOE, second half: y [rows, hidden] = sum over the slots of p_slot (down_slot h_slot + bias_slot) (+ residual); p of
// the shared expert is sigmoid(mix), and it has no bias. gl_WorkGroupID.y: row.
//
// PLAIN: any shape, a subgroup per element of y. Otherwise kR elements per subgroup: a row of the weights of all chosen
// experts is read like one long row. If their h does not fit, some slots come first, and the next ones add to y.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
#include "mixture.glsl"
layout(constant_id = 3) const uint kSlotsAtOnce = 0;  // slots whose h is staged at a time; 0: all
layout(local_size_x = 256) in;
layout(push_constant, std430) uniform Push {
  uint64_t h, y, residual, ids, weights, mix, step;
  uint64_t down, shared_down, biases;
  uint hidden, experts, top_k, width, shared_width, domain;
};

uint64_t h_row(uint row) { return h + uint64_t(row) * (top_k * width + shared_width) * 4; }
float shared_weight(uint row) { return sigmoid(Floats(mix).at[row]); }
uint expert_of(uint row, uint slot) { return min(uint(Ints(ids).at[row * top_k + slot]), experts - 1); }

void put(uint row, uint i, float sum) {
  uint64_t at = (uint64_t(row) * hidden + i) * 4;
  Floats(y + at).at[0] = kResidual ? sum + Floats(residual + at).at[0] : sum;
}

#ifdef PLAIN

void main() {
  uint row = gl_WorkGroupID.y, stride = gl_NumWorkGroups.x * gl_NumSubgroups, lane = gl_SubgroupInvocationID;
  if (row >= step_rows(step, domain)) return;
  uint64_t from = h_row(row);
  Weight w = weight_of(down, uint64_t(experts) * hidden, width, kForm);
  for (uint i = gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID; i < hidden; i += stride) {
    float sum = 0, part = 0;
    for (uint slot = 0; slot < top_k; ++slot) {
      uint64_t weight_row = uint64_t(expert_of(row, slot)) * hidden + i;
      part = 0;
      for (uint k = lane; k < width; k += gl_SubgroupSize) {
        part = fma(Floats(from).at[slot * width + k], weight_at(w, weight_row, k), part);
      }
      if (kBiasType != 0 && lane == 0) part += bias_of(biases, expert_of(row, slot), hidden, i);
      sum = fma(Floats(weights).at[row * top_k + slot], part, sum);
    }
    if (kShared) {
      Weight s = weight_of(shared_down, hidden, shared_width, kSharedForm);
      part = 0;
      for (uint k = lane; k < shared_width; k += gl_SubgroupSize) {
        part = fma(Floats(from).at[top_k * width + k], weight_at(s, i, k), part);
      }
      sum = fma(shared_weight(row), part, sum);
    }
    sum = subgroupAdd(sum);
    if (lane == 0) put(row, i, sum);
  }
}

#else

#include "vector.glsl"  // kM 1

shared uint slot_expert[32];
uint per_slot, scale_shift, first_row;  // pieces
uint first_slot = 0, slots;             // of those that are staged
Weight weight;
// Piece p of the long row r.
uint64_t weight_row(uint r, uint p) {
  return uint64_t(slot_expert[first_slot + p / per_slot]) * hidden + min(first_row + r, hidden - 1);
}
#define FETCH fetch
#define MULTIPLY multiply
#define PIECE_DATA(r, p) (weight.data + weight_row(r, p) * weight.row_bytes + 16 * ((p) % per_slot))
#define GROUP_AT(r, p) (weight_row(r, p) * weight.groups + ((p) % per_slot >> scale_shift))
#define PIECE_SCALE(r, p) (weight.scales + GROUP_AT(r, p) * scale_bytes(dtype))
#define PIECE_OFFSET(r, p) (weight.offsets + GROUP_AT(r, p) * 2)
#include "multiply.glsl"

uint64_t shared_row(uint r) { return min(first_row + r, hidden - 1); }
#undef FETCH
#undef MULTIPLY
#undef PIECE_DATA
#undef PIECE_SCALE
#undef PIECE_OFFSET
#define FETCH fetch_shared
#define MULTIPLY multiply_shared
#define PIECE_DATA(r, p) (weight.data + shared_row(r) * weight.row_bytes + 16 * (p))
#define PIECE_SCALE(r, p) (weight.scales + (shared_row(r) * weight.groups + ((p) >> scale_shift)) * scale_bytes(dtype))
#define PIECE_OFFSET(r, p) (weight.offsets + (shared_row(r) * weight.groups + ((p) >> scale_shift)) * 2)
#include "multiply.glsl"

// Whether the shared expert's h is staged, too.
bool last_slots() { return kSlotsAtOnce == 0 || first_slot + slots == top_k; }

void stage_h(uint row) {
  uint64_t from = h_row(row) + uint64_t(first_slot) * width * 4;
  uint routed = slots * width, all = routed + (last_slots() ? shared_width : 0);
  for (uint e4 = gl_LocalInvocationIndex; e4 < all / 4; e4 += 256) {
    float p = 4 * e4 < routed ? Floats(weights).at[row * top_k + first_slot + 4 * e4 / width] : shared_weight(row);
    stage(0, e4, Float4s(from).at[e4], p);
  }
}

// The biases of element i, weighted.
float biases_of(uint row, uint i) {
  float sum = 0;
  for (uint slot = 0; slot < top_k; ++slot) {
    sum = fma(Floats(weights).at[row * top_k + slot], bias_of(biases, slot_expert[slot], hidden, i), sum);
  }
  return sum;
}

const uint kType = kForm & 0xff, kSharedType = kSharedForm & 0xff;

// The routed rows of a task, and their first pieces. slot_expert is known.
void begin(uint task) {
  first_row = task * kR;
  weight = weight_of(down, uint64_t(experts) * hidden, width, kForm);
  scale_shift = group_shift(weight);
  fetch(kType, slots * per_slot, gl_SubgroupInvocationID);
}

// Element i of y: the first slots set it, the others add to it.
void put_part(uint row, uint i, float sum) {
  if (kSlotsAtOnce != 0 && first_slot != 0) {
    uint64_t at = (uint64_t(row) * hidden + i) * 4;
    Floats(y + at).at[0] += sum;
  } else {
    put(row, i, kBiasType == 0 ? sum : sum + biases_of(row, i));
  }
}

// Adds what the staged slots give to this subgroup's elements of y, from `task` on.
void add_slots(uint row, uint task, uint stride) {
  if (task * kR < hidden) begin(task);  // weights are on their way while h is staged
  stage_h(row);
  barrier();
  while (task * kR < hidden) {
    [[unroll]] for (uint a = 0; a < kR; ++a) vector_acc[a] = 0;
    multiply(kType, slots * per_slot, 0);
    if (kShared && last_slots()) {
      weight = weight_of(shared_down, hidden, shared_width, kSharedForm);
      scale_shift = group_shift(weight);
      fetch_shared(kSharedType, shared_width / piece_elements(kSharedType), gl_SubgroupInvocationID);
      multiply_shared(kSharedType, shared_width / piece_elements(kSharedType), slots * width);
    }
    [[unroll]] for (uint r = 0; r < kR; ++r) {
      float sum = subgroupAdd(vector_acc[r]);
      if (gl_SubgroupInvocationID == r && first_row + r < hidden) put_part(row, first_row + r, sum);
    }
    task += stride;
    if (task * kR < hidden) begin(task);
  }
}

void main() {
  uint row = gl_WorkGroupID.y, stride = gl_NumWorkGroups.x * gl_NumSubgroups, rows = step_rows(step, domain);
  uint task = gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID;
  per_slot = width / piece_elements(kType);
  if (gl_LocalInvocationIndex < top_k) slot_expert[gl_LocalInvocationIndex] = expert_of(row, gl_LocalInvocationIndex);
  if (row >= rows) return;
  barrier();
  slots = kSlotsAtOnce == 0 ? top_k : min(kSlotsAtOnce, top_k);
  add_slots(row, task, stride);
  if (kSlotsAtOnce == 0) return;
  for (first_slot = slots; first_slot < top_k; first_slot += kSlotsAtOnce) {
    slots = min(kSlotsAtOnce, top_k - first_slot);
    barrier();  // what was staged has been read
    add_slots(row, task, stride);
  }
}

#endif
