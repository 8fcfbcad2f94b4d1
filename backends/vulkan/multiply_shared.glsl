// multiply.glsl for every encoding of a second weight (moe_down.comp): shared_fetch and shared_multiply.
#define DTYPE F32
#define VECTORS 1
#define FETCH shared_fetch_f32
#define MULTIPLY shared_multiply_f32
#include "multiply.glsl"
#define DTYPE BF16
#define VECTORS 2
#define FETCH shared_fetch_bf16
#define MULTIPLY shared_multiply_bf16
#include "multiply.glsl"
#define DTYPE I8
#define VECTORS 4
#define FETCH shared_fetch_i8
#define MULTIPLY shared_multiply_i8
#include "multiply.glsl"
#define DTYPE I4
#define VECTORS 8
#define FETCH shared_fetch_i4
#define MULTIPLY shared_multiply_i4
#include "multiply.glsl"
#define DTYPE I4A
#define VECTORS 8
#define FETCH shared_fetch_i4a
#define MULTIPLY shared_multiply_i4a
#include "multiply.glsl"

void shared_fetch(uint dtype, uint pieces) {
  if (uses(F32) && dtype == F32) shared_fetch_f32(pieces, gl_SubgroupInvocationID);
  if (uses(BF16) && dtype == BF16) shared_fetch_bf16(pieces, gl_SubgroupInvocationID);
  if (uses(I8) && dtype == I8) shared_fetch_i8(pieces, gl_SubgroupInvocationID);
  if (uses(I4) && dtype == I4) shared_fetch_i4(pieces, gl_SubgroupInvocationID);
  if (uses(I4A) && dtype == I4A) shared_fetch_i4a(pieces, gl_SubgroupInvocationID);
}
void shared_multiply(uint dtype, uint pieces, uint first_element) {
  if (uses(F32) && dtype == F32) shared_multiply_f32(pieces, first_element);
  if (uses(BF16) && dtype == BF16) shared_multiply_bf16(pieces, first_element);
  if (uses(I8) && dtype == I8) shared_multiply_i8(pieces, first_element);
  if (uses(I4) && dtype == I4) shared_multiply_i4(pieces, first_element);
  if (uses(I4A) && dtype == I4A) shared_multiply_i4a(pieces, first_element);
}
