// SPDX-License-Identifier: Apache-2.0
// Included by every shader: extensions, memory by address, the step, reductions over a workgroup.
//
// Large offsets are added to addresses in 64 bits; indices stay within a row.
#ifndef SWITCHYARD_COMMON_GLSL_
#define SWITCHYARD_COMMON_GLSL_

#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference2 : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_ballot : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Ints { int at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Words { uint at[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Float2s { vec2 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Word2s { uvec2 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Float4s { vec4 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Word4s { uvec4 at[]; };

// Element types, as ops.h numbers them.
const uint F32 = 1, BF16 = 2, I32 = 3, I8 = 4, I4 = 5, I4A = 6, MXFP4 = 11;

// ---- the step (step.h)

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Step {
  uint struct_size, total_bytes;
  uvec2 number;
  uint rows, seqs, logit_rows, sample_rows;
  uint page_size, block_table_stride, max_context, sample_params_size;
  uint row_token_at, row_position_at, row_seq_at;
  uint row_start_at, seq_active_at, seq_read_slot_at, seq_write_slot_at, block_table_at;
  uint logit_row_at, sample_at, sample_params_at, seq_kept_at;
};

// Entry i of an array of the step, `at` being one of its *_at.
uint step_word(uint64_t step, uint at, uint i) { return Words(step + at).at[i]; }

// How many rows an activation has in this step: 0 of the step, 1 logits, 2 sampled.
uint step_rows(uint64_t step, uint domain) {
  Step s = Step(step);
  return domain == 1 ? s.logit_rows : domain == 2 ? s.sample_rows : s.rows;
}

// ---- functions

float bf16_bits(uint h) { return uintBitsToFloat(h << 16); }
// To the nearest, ties to even; a NaN stays a NaN.
uint to_bf16(float x) {
  uint u = floatBitsToUint(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (u >> 16) | 0x40u;
  return (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
}
float sigmoid(float x) { return 1.0 / (1.0 + exp(-x)); }
float silu(float x) { return x / (1.0 + exp(-x)); }

#endif
