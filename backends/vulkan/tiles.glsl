// Tiles of products: C [kBM, kBN] = A B^T, A of activations, B of weights in any encoding that is readable in pieces.
//
// COOPERATIVE: fp16 factors (tiles_prepare.comp makes A's), matrix instructions of 16x16x16, fp32 sums; eight subgroups of
// 32 lanes. Else fp32 by all threads.
//
// The includer gives:
//   uint64_t a_row(uint m)      where row m of the tile begins
//   void find_b_row(uint n)     sets b_data, b_scale, b_offset: where row n of the tile begins, and its first scale
//   void finish(uint m, uint n, vec4 v, vec4 w)   takes results: columns n .. n + 3 of row m; with kPairs, n counts pairs of
//                               columns, v is from the first and w from the second of each
// Pairs: of every 32 rows of B the first 16 are the first ones of 16 pairs.

const uint kBK = 64;
uint64_t b_data, b_scale, b_offset;

// Quants are put into the mantissa of a float between 1 and 2.
void eight_of_bytes(uint a, uint b, vec2 scale, out vec4 low, out vec4 high) {
  a ^= 0x80808080u;
  b ^= 0x80808080u;
  low = uintBitsToFloat((uvec4(a << 15, a << 7, a >> 1, a >> 9) & 0x7f8000u) | 0x3f800000u);
  high = uintBitsToFloat((uvec4(b << 15, b << 7, b >> 1, b >> 9) & 0x7f8000u) | 0x3f800000u);
  low = (low - 1.5) * (256 * scale.x);
  high = (high - 1.5) * (256 * scale.x);
}
void eight_of_nibbles(uint dtype, uint q, vec2 scale, out vec4 low, out vec4 high) {
  low = uintBitsToFloat((uvec4(q << 19, q << 15, q << 11, q << 7) & 0x780000u) | 0x3f800000u);
  high = uintBitsToFloat((uvec4(q << 3, q >> 1, q >> 5, q >> 9) & 0x780000u) | 0x3f800000u);
  float zero = dtype == I4 ? 1.5 : 1.0;
  low = fma(low - zero, vec4(16 * scale.x), vec4(scale.y));
  high = fma(high - zero, vec4(16 * scale.x), vec4(scale.y));
}

// Scale and offset of element k of the row that find_b_row found.
vec2 scale_of(Weight w, uint k) {
  if (w.dtype == F32 || w.dtype == BF16) return vec2(0);
  uint g = k / w.group;
  return vec2(half_at(b_scale, g), w.dtype == I4A ? half_at(b_offset, g) : 0.0);
}

#ifdef COOPERATIVE

layout(constant_id = 10) const uint kBM = 128;  // 32, 64 or 128; with kPairs 64 or 128
const uint kBN = 128, kStride = kBK / 8 + 1;    // in uvec4s, of a row in shared memory
const uint kRowGroups = kBM / 32, kColumns = kBM / 2, kFragments = kColumns / 16;
shared uvec4 tile_a[kBM * kStride], tile_b[kBN * kStride];
#define Sums fcoopmatNV<32, gl_ScopeSubgroup, 16, 16>
#define Factors fcoopmatNV<16, gl_ScopeSubgroup, 16, 16>

// What the next step of 64 elements brings of A and B: asked for while this one is multiplied.
const uint kA = kBM / 32;  // uvec4s of A per thread
uvec4 next_a[kA], next_b[8];
vec2 next_scale;
uint64_t a_from[kA];

#else

const uint kBM = 64, kBN = 64, kHalf = 32;
shared float tile_a[kHalf * (kBM + 1)], tile_b[kHalf * (kBN + 1)];  // [k][row]

#endif

// The loops of tiles_multiply.glsl have bounds that depend on the encoding, which the compiler must know when it unrolls them.
#define DTYPE F32
#define VECTORS 8
#define ASK_FOR ask_for_f32
#define EIGHT eight_f32
#define MULTIPLY_TILE multiply_tile_f32
#include "tiles_multiply.glsl"
#define DTYPE BF16
#define VECTORS 4
#define ASK_FOR ask_for_bf16
#define EIGHT eight_bf16
#define MULTIPLY_TILE multiply_tile_bf16
#include "tiles_multiply.glsl"
#define DTYPE I8
#define VECTORS 2
#define ASK_FOR ask_for_i8
#define EIGHT eight_i8
#define MULTIPLY_TILE multiply_tile_i8
#include "tiles_multiply.glsl"
#define DTYPE I4
#define VECTORS 1
#define ASK_FOR ask_for_i4
#define EIGHT eight_i4
#define MULTIPLY_TILE multiply_tile_i4
#include "tiles_multiply.glsl"
#define DTYPE I4A
#define VECTORS 1
#define ASK_FOR ask_for_i4a
#define EIGHT eight_i4a
#define MULTIPLY_TILE multiply_tile_i4a
#include "tiles_multiply.glsl"

// `uses` says which encodings this pipeline can meet.
void multiply_tile(Weight w, uint width) {
  if (uses(F32) && w.dtype == F32) multiply_tile_f32(w, width);
  if (uses(BF16) && w.dtype == BF16) multiply_tile_bf16(w, width);
  if (uses(I8) && w.dtype == I8) multiply_tile_i8(w, width);
  if (uses(I4) && w.dtype == I4) multiply_tile_i4(w, width);
  if (uses(I4A) && w.dtype == I4A) multiply_tile_i4a(w, width);
}
