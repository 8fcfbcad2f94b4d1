// multiply.glsl for every encoding: fetch and multiply choose among those that `uses` allows.
#define DTYPE F32
#define VECTORS 1
#define FETCH fetch_f32
#define MULTIPLY multiply_f32
#include "multiply.glsl"
#define DTYPE BF16
#define VECTORS 2
#define FETCH fetch_bf16
#define MULTIPLY multiply_bf16
#include "multiply.glsl"
#define DTYPE I8
#define VECTORS 4
#define FETCH fetch_i8
#define MULTIPLY multiply_i8
#include "multiply.glsl"
#define DTYPE I4
#define VECTORS 8
#define FETCH fetch_i4
#define MULTIPLY multiply_i4
#include "multiply.glsl"
#define DTYPE I4A
#define VECTORS 8
#define FETCH fetch_i4a
#define MULTIPLY multiply_i4a
#include "multiply.glsl"

void fetch(uint dtype, uint pieces) {
  if (uses(F32) && dtype == F32) fetch_f32(pieces, gl_SubgroupInvocationID);
  if (uses(BF16) && dtype == BF16) fetch_bf16(pieces, gl_SubgroupInvocationID);
  if (uses(I8) && dtype == I8) fetch_i8(pieces, gl_SubgroupInvocationID);
  if (uses(I4) && dtype == I4) fetch_i4(pieces, gl_SubgroupInvocationID);
  if (uses(I4A) && dtype == I4A) fetch_i4a(pieces, gl_SubgroupInvocationID);
}
void multiply(uint dtype, uint pieces, uint first_element) {
  if (uses(F32) && dtype == F32) multiply_f32(pieces, first_element);
  if (uses(BF16) && dtype == BF16) multiply_bf16(pieces, first_element);
  if (uses(I8) && dtype == I8) multiply_i8(pieces, first_element);
  if (uses(I4) && dtype == I4) multiply_i4(pieces, first_element);
  if (uses(I4A) && dtype == I4A) multiply_i4a(pieces, first_element);
}
