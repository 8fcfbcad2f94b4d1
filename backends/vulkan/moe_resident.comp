// SPDX-License-Identifier: Apache-2.0
// MOE and MOE_ADD of one row in one launch: router, choice, gate and up, down, with meetings of all workgroups instead
// of barriers between launches. LINEAR_ADD and the norm before it are included if x comes from them. There are no more
// workgroups than run at once, whatever registers the compiler uses. (The RMS_NORM_LINEAR after it is faster as a
// launch of its own.)
//
// A phase reads another workgroup's results through Kept, bypassing the caches of its processor. It requests before a
// meeting whatever is known by then: the shared expert's h before the router is done, the rows of down before h is.
// With kNormed, x is the input of the norm.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"
#include "weights.glsl"
layout(constant_id = 0) const uint kForm = F32;            // of gate and up
layout(constant_id = 1) const uint kSharedForm = F32;
layout(constant_id = 2) const uint kDownForm = F32;
layout(constant_id = 3) const uint kSharedDownForm = F32;
layout(constant_id = 4) const uint kFlags = 0;
layout(constant_id = 5) const uint kHidden = 32;
layout(constant_id = 6) const uint kExperts = 1;
layout(constant_id = 7) const uint kTopK = 1;
layout(constant_id = 8) const uint kWidth = 32;
layout(constant_id = 9) const uint kSharedWidth = 0;
layout(constant_id = 15) const uint kThreads = 256;
layout(constant_id = 18) const uint kBeforeForm = 0;       // of the projection before the norm, if it is computed here
layout(constant_id = 19) const uint kBeforeWidth = 32;
layout(local_size_x_id = 15) in;
layout(push_constant, std430) uniform Push {
  uint64_t before_weight, before_x, before_residual;  // x = before_x * before_weight^T + before_residual
  uint64_t x, y, residual, norm;
  uint64_t work;     // logits of the experts and of the shared one, then h
  uint64_t counter;  // of arrivals, over all launches
  uint64_t step;
  uint64_t router, gate_up, down;
  uint64_t more;     // Beside
  float eps, bias;   // of the norm
};
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Beside {
  uint64_t normed;  // kNormed: [hidden], the norm's result for other readers
  uint64_t mix, shared_gate, shared_up, shared_down;
};
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer Kept { float at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) coherent buffer Kept4 { vec4 at[]; };

const bool kShared = kSharedWidth != 0, kResidual = (kFlags & 2) != 0, kNormed = (kFlags & 8) != 0;
const uint kDomain = kFlags >> 4 & 3, kNormType = kFlags >> 8 & 15, kRouterType = kFlags >> 12 & 15, kMixType = kFlags >> 16 & 15;
const uint kType = kForm & 0xff, kSharedType = kSharedForm & 0xff;
const uint kDownType = kDownForm & 0xff, kSharedDownType = kSharedDownForm & 0xff;
const bool kBefore = kBeforeForm != 0;
const uint kBeforeType = kBeforeForm & 0xff;
const uint kRouted = kTopK * kWidth, kFirstH = (kExperts + 64) / 64 * 64;

#define MORE_HELD 1
#include "vector.glsl"  // kM 1, kR 4, kU 2
#include "meeting.glsl"
#include "rank.glsl"

// ---- rows of one matrix: kU pieces of each of four rows, kR * kU of one, or half as many. A row of 2,048 elements is
// requested at once: of 4 bits by the first, of 16 bits by the second; one of 4,096 of 4 bits by the third.

uint64_t row_data[4], row_scales[4], row_offsets[4];
uint scale_shift;
#define PIECE_DATA(r, p) (row_data[r] + 16 * (p))
#define PIECE_SCALE(r, p) (row_scales[r] + 2 * ((p) >> scale_shift))
#define PIECE_OFFSET(r, p) (row_offsets[r] + 2 * ((p) >> scale_shift))
#define FETCH fetch_four
#define MULTIPLY multiply_four
#include "multiply.glsl"
#undef FETCH
#undef MULTIPLY
#undef ROWS
#undef AT_ONCE
#define FETCH fetch_one
#define MULTIPLY multiply_one
#define ROWS 1
#define AT_ONCE (kR * kU)
#include "multiply.glsl"
#undef FETCH
#undef MULTIPLY
#undef AT_ONCE
#define FETCH fetch_half
#define MULTIPLY multiply_half
#define AT_ONCE 4
#include "multiply.glsl"
#undef FETCH
#undef MULTIPLY
#undef PIECE_DATA
#undef PIECE_SCALE
#undef PIECE_OFFSET

void take_row(uint r, Weight w, uint64_t row) {
  row_data[r] = w.data + row * w.row_bytes;
  row_scales[r] = w.scales + row * w.groups * 2;
  row_offsets[r] = w.offsets + row * w.groups * 2;
}

// ---- a row of down, over all chosen experts and the shared one

const uint kPerSlot = kWidth / (kDownType == I8 ? 16 : kDownType == BF16 ? 8 : kDownType == F32 ? 4 : 32);  // pieces
uint down_row, down_shift, shared_shift;
Weight down_weight, shared_weight;
uint64_t routed_row(uint p) { return uint64_t(chosen_id[p / kPerSlot]) * kHidden + down_row; }
#define FETCH fetch_down
#define MULTIPLY multiply_down
#define PIECE_DATA(r, p) (down_weight.data + routed_row(p) * down_weight.row_bytes + 16 * ((p) % kPerSlot))
#define PIECE_SCALE(r, p) (down_weight.scales + (routed_row(p) * down_weight.groups + ((p) % kPerSlot >> down_shift)) * 2)
#define PIECE_OFFSET(r, p) (down_weight.offsets + (routed_row(p) * down_weight.groups + ((p) % kPerSlot >> down_shift)) * 2)
#include "multiply.glsl"
#undef FETCH
#undef MULTIPLY
#undef AT_ONCE
#undef HELD_AT
#undef PIECE_DATA
#undef PIECE_SCALE
#undef PIECE_OFFSET
#define FETCH fetch_shared
#define MULTIPLY multiply_shared
#define AT_ONCE 1
#define HELD_AT 4
#define PIECE_DATA(r, p) (shared_weight.data + uint64_t(down_row) * shared_weight.row_bytes + 16 * (p))
#define PIECE_SCALE(r, p) (shared_weight.scales + (uint64_t(down_row) * shared_weight.groups + ((p) >> shared_shift)) * 2)
#define PIECE_OFFSET(r, p) (shared_weight.offsets + (uint64_t(down_row) * shared_weight.groups + ((p) >> shared_shift)) * 2)
#include "multiply.glsl"

uint shared_pieces() { return kSharedWidth / piece_elements(kSharedDownType); }

// ---- phases. Task t of a phase belongs to a subgroup; neighbouring tasks belong to neighbouring workgroups.

uint first_task() { return gl_SubgroupID * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
uint all_tasks() { return gl_NumSubgroups * gl_NumWorkGroups.x; }

void clear_sums() {
  [[unroll]] for (uint a = 0; a < kR; ++a) vector_acc[a] = 0;
}

// The projection before the norm: one element of x per task.
void begin_before(uint task) {
  Weight w = weight_of(before_weight, kHidden, kBeforeWidth, kBeforeForm);
  scale_shift = group_shift(w);
  take_row(0, w, task);
  fetch_half(kBeforeType, kBeforeWidth / piece_elements(kBeforeType), gl_SubgroupInvocationID);
}
void project() {
  uint task = first_task(), stride = all_tasks();
  if (task < kHidden) begin_before(task);
  for (uint e4 = gl_LocalInvocationIndex; e4 < kBeforeWidth / 4; e4 += kThreads) stage(0, e4, Float4s(before_x).at[e4], 1.0);
  barrier();
  while (task < kHidden) {
    float rest = Floats(before_residual).at[task];
    clear_sums();
    multiply_half(kBeforeType, kBeforeWidth / piece_elements(kBeforeType), 0);
    float sum = subgroupAdd(vector_acc[0]);
    if (gl_SubgroupInvocationID == 0) Kept(x).at[task] = sum + rest;
    task += stride;
    if (task < kHidden) begin_before(task);
  }
}

// The factor of the results.
float stage_input() {
  float squares = 0;
  for (uint e4 = gl_LocalInvocationIndex; e4 < kHidden / 4; e4 += kThreads) {
    vec4 v = kBefore ? Kept4(x).at[e4] : Float4s(x).at[e4];
    if (kNormed) {
      squares = fma(v.x, v.x, fma(v.y, v.y, fma(v.z, v.z, fma(v.w, v.w, squares))));
      v *= bias + plain_four(norm, kNormType, e4);
    }
    stage(0, e4, v, 1.0);
  }
  return kNormed ? inversesqrt(workgroup_sum(squares) / float(kHidden) + eps) : 1.0;
}

// Two elements of h: rows i and i + 1 of gate, and of up.
void take_pair(Weight gate, Weight up, uint64_t gate_row, uint64_t up_row) {
  scale_shift = group_shift(gate);
  [[unroll]] for (uint i = 0; i < 2; ++i) {
    take_row(i, gate, gate_row + i);
    take_row(2 + i, up, up_row + i);
  }
}
void put_pair(uint at, float inverse) {
  [[unroll]] for (uint i = 0; i < 2; ++i) {
    float g = subgroupAdd(vector_acc[i]) * inverse, u = subgroupAdd(vector_acc[2 + i]) * inverse;
    if (gl_SubgroupInvocationID == i) Kept(work).at[kFirstH + at + i] = silu(g) * u;
  }
}
// The norm's result, by one workgroup while it waits.
void put_norm(float inverse) {
  uint64_t to = Beside(more).normed;
  for (uint e4 = gl_LocalInvocationIndex; e4 < kHidden / 4; e4 += kThreads) {
    Float4s(to).at[e4] = Kept4(x).at[e4] * inverse * (bias + plain_four(norm, kNormType, e4));
  }
}

// First phase: one row of the router per task, one of the shared expert's gate, and the shared expert's h.
const uint kFrontTasks = kExperts + (kShared ? 1 + kSharedWidth / 2 : 0);
void begin_front(uint task) {
  uint lane = gl_SubgroupInvocationID;
  if (task < kExperts) {
    take_row(0, weight_of(router, kExperts, kHidden, kRouterType), task);
    fetch_one(kRouterType, kHidden / piece_elements(kRouterType), lane);
  } else if (task == kExperts) {
    take_row(0, weight_of(Beside(more).mix, 1, kHidden, kMixType), 0);
    fetch_one(kMixType, kHidden / piece_elements(kMixType), lane);
  } else {
    uint i = (task - kExperts - 1) * 2;
    take_pair(weight_of(Beside(more).shared_gate, kSharedWidth, kHidden, kSharedForm),
              weight_of(Beside(more).shared_up, kSharedWidth, kHidden, kSharedForm), i, i);
    fetch_four(kSharedType, kHidden / piece_elements(kSharedType), lane);
  }
}
void finish_front(uint task, float inverse) {
  clear_sums();
  if (task <= kExperts) {
    if (task < kExperts) {
      multiply_one(kRouterType, kHidden / piece_elements(kRouterType), 0);
    } else {
      multiply_one(kMixType, kHidden / piece_elements(kMixType), 0);
    }
    float sum = subgroupAdd(vector_acc[0]) * inverse;
    if (gl_SubgroupInvocationID == 0) Kept(work).at[task] = sum;
    return;
  }
  multiply_four(kSharedType, kHidden / piece_elements(kSharedType), 0);
  put_pair(kRouted + (task - kExperts - 1) * 2, inverse);
}

// Second phase: h of the chosen experts.
void begin_middle(uint task) {
  Weight w = weight_of(gate_up, uint64_t(kExperts) * 2 * kWidth, kHidden, kForm);
  uint slot = task * 2 / kWidth, i = task * 2 - slot * kWidth;
  uint64_t first = uint64_t(chosen_id[slot]) * 2 * kWidth + i;
  take_pair(w, w, first, first + kWidth);
  fetch_four(kType, kHidden / piece_elements(kType), gl_SubgroupInvocationID);
}
void finish_middle(uint task, float inverse) {
  clear_sums();
  multiply_four(kType, kHidden / piece_elements(kType), 0);
  put_pair(task * 2, inverse);
}

// Third phase: one element of y per task.
void begin_back(uint task) {
  down_row = task;
  fetch_down(kDownType, kTopK * kPerSlot, gl_SubgroupInvocationID);
  if (kShared) fetch_shared(kSharedDownType, shared_pieces(), gl_SubgroupInvocationID);
}
void stage_h() {
  float p_shared = kShared ? sigmoid(Kept(work).at[kExperts]) : 0.0;
  for (uint e4 = gl_LocalInvocationIndex; e4 < (kRouted + kSharedWidth) / 4; e4 += kThreads) {
    float p = 4 * e4 < kRouted ? chosen_weight[min(4 * e4 / kWidth, kTopK - 1)] : p_shared;
    stage(0, e4, Kept4(work + kFirstH * 4).at[e4], p);
  }
}
void finish_back(uint task, bool wanted) {
  float rest = kResidual ? Kept(residual).at[task] : 0.0;
  clear_sums();
  multiply_down(kDownType, kTopK * kPerSlot, 0);
  if (kShared) multiply_shared(kSharedDownType, shared_pieces(), kRouted);
  float sum = subgroupAdd(vector_acc[0]);
  if (gl_SubgroupInvocationID != 0 || !wanted) return;
  sum += rest;
  Floats(y).at[task] = gave_up ? uintBitsToFloat(0x7fc00000u) : sum;
}

// Phases whose first weights have been requested when they begin.
void run_front(uint task, float inverse) {
  while (task < kFrontTasks) {
    finish_front(task, inverse);
    task += all_tasks();
    if (task < kFrontTasks) begin_front(task);
  }
}
void run_middle(float inverse) {
  const uint kTasks = kRouted / 2;
  uint task = first_task();
  if (task < kTasks) begin_middle(task);
  while (task < kTasks) {
    finish_middle(task, inverse);
    task += all_tasks();
    if (task < kTasks) begin_middle(task);
  }
}
void run_back(uint task, bool wanted) {
  while (task < kHidden) {
    finish_back(task, wanted);
    task += all_tasks();
    if (task < kHidden) begin_back(task);
  }
}

void main() {
  uint task = first_task();
  bool wanted = step_rows(step, kDomain) != 0;
  uint64_t shared_down = Beside(more).shared_down;
  if (gl_LocalInvocationIndex == 0) gave_up = false;
  if (kBefore) {
    project();
    arrive(counter);
  }
  if (task < kFrontTasks) begin_front(task);  // weights are on their way while the row is awaited and staged
  if (kBefore) await(counter);
  float inverse = stage_input();
  barrier();
  run_front(task, inverse);
  arrive(counter);
  if (kNormed && gl_WorkGroupID.x == gl_NumWorkGroups.x - 1) put_norm(inverse);
  await(counter);
  rank_experts(work);
  run_middle(inverse);
  arrive(counter);
  down_weight = weight_of(down, uint64_t(kExperts) * kHidden, kWidth, kDownForm);
  shared_weight = weight_of(shared_down, kHidden, max(kSharedWidth, 1), kSharedDownForm);
  down_shift = group_shift(down_weight);
  shared_shift = group_shift(shared_weight);
  if (task < kHidden) begin_back(task);
  await(counter);
  stage_h();
  barrier();
  run_back(task, wanted);
}
