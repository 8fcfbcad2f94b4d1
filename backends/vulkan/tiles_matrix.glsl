// SPDX-License-Identifier: Apache-2.0
// Tiles of products by matrix instructions of 16x16x16: C [TILE_M, TILE_N] = A B^T, fp16 factors, fp32 sums. tiles.glsl
// says what the including shader defines.
//
// A subgroup of 32 lanes has SUB_M x SUB_N of the tile, so that each fragment of A is used SUB_N / 16 times and each of
// B SUB_M / 16 times. Per step of TILE_K elements all threads copy A and unpack B to shared memory. The next step's
// data is requested before the products, without conditions and without using any of it, so that nothing waits.
//
// DOUBLE: two buffers in shared memory and one barrier per step, instead of one and two. EMULATE: plain loads and sums
// in place of matrices, and 32 consecutive threads as a subgroup: tests the indices on any device.

const uint kBM = TILE_M, kBN = TILE_N, kBK = TILE_K;
const uint kFragmentsM = SUB_M / 16, kFragmentsN = SUB_N / 16, kSubgroupsN = kBN / SUB_N;
const uint kParts = kBK / 8, kStride = kParts + 1;  // uvec4s of a row in shared memory; odd, so that 8 rows are 8 places
const uint kA = kBM * kParts / TILE_THREADS;        // uvec4s of A per thread and step
const uint kRowParts = kBK / 32, kB = kBN * kRowParts / TILE_THREADS;  // pieces of 32 elements of B
const uint kBuffer = (kBM + kBN) * kStride;
const uint kOutStride = SUB_N / 4 + 1, kOut = TILE_THREADS / 32 * 16 * kOutStride;
#ifdef DOUBLE
const uint kBuffers = 2;
#else
const uint kBuffers = 1;
#endif
shared uvec4 tile[kBuffers * kBuffer > kOut ? kBuffers * kBuffer : kOut];

layout(buffer_reference, std430, buffer_reference_align = 2) buffer Halves { float16_t at[]; };

#ifdef EMULATE
#define UNROLL [[dont_unroll]]  // the driver takes long to compile unrolled loops
struct Sums { float at[8]; };      // lane l: row l / 2, columns 8 (l % 2) .. + 7
struct Factors { uint at; };       // where the rows of 16 elements lie
#define SUBGROUP (gl_LocalInvocationIndex / 32)
#define LANE (gl_LocalInvocationIndex % 32)
#define LOAD_A(f, place) f.at = place
#define LOAD_B(f, place) f.at = place
#define MULTIPLY(s, a, b) multiply_emulated(s, a, b)
#define STORE(s, place) store_emulated(s, place)
#define SUBGROUP_BARRIER barrier()
#define ZERO Sums(float[8](0, 0, 0, 0, 0, 0, 0, 0))
vec2 pair_of(uint row, uint k2) { return unpackHalf2x16(tile[row + k2 / 4][k2 % 4]); }
void multiply_emulated(inout Sums s, Factors a, Factors b) {
  uint row = a.at + LANE / 2 * kStride;
  [[dont_unroll]] for (uint c = 0; c < 8; ++c) {
    uint column = b.at + (LANE % 2 * 8 + c) * kStride;
    [[dont_unroll]] for (uint k2 = 0; k2 < 8; ++k2) s.at[c] += dot(pair_of(row, k2), pair_of(column, k2));
  }
}
void store_emulated(Sums s, uint place) {
  uint to = place + LANE / 2 * kOutStride + LANE % 2 * 2;
  tile[to] = floatBitsToUint(vec4(s.at[0], s.at[1], s.at[2], s.at[3]));
  tile[to + 1] = floatBitsToUint(vec4(s.at[4], s.at[5], s.at[6], s.at[7]));
}
#else
#define UNROLL [[unroll]]
#define Sums fcoopmatNV<32, gl_ScopeSubgroup, 16, 16>
#define Factors fcoopmatNV<16, gl_ScopeSubgroup, 16, 16>
layout(constant_id = 15) const uint kSixteen = 16;  // lets matrices.cpp recognise the type of second factors
#define FactorsB fcoopmatNV<16, gl_ScopeSubgroup, 16, kSixteen>
#define SUBGROUP gl_SubgroupID
#define LANE gl_SubgroupInvocationID
#define LOAD_A(f, place) coopMatLoadNV(f, tile, place, kStride, false)
#define LOAD_B(f, place) coopMatLoadNV(f, tile, place, kStride, true)
#define MULTIPLY(s, a, b) s = coopMatMulAddNV(a, b, s)
#define STORE(s, place) coopMatStoreNV(s, tile, place, kOutStride, false)
#define SUBGROUP_BARRIER \
  subgroupMemoryBarrierShared(); \
  subgroupBarrier()
#define ZERO Sums(0.0)
#endif
#ifndef FactorsB
#define FactorsB Factors
#endif

// The next step's data.
uint64_t from_a[kA], from_b[kB], from_scale[kB], from_offset[kB];
uvec4 next_a[kA], next_b[kB * 8];
float16_t next_scale[kB], next_offset[kB];
bool next_there;
uint scale_shift;

uint vectors_of(uint dtype) { return dtype == F32 ? 8 : dtype == BF16 ? 4 : dtype == I8 ? 2 : 1; }  // in 32 elements

void find_rows(Weight w) {
  uint thread = gl_LocalInvocationIndex;
  UNROLL for (uint i = 0; i < kA; ++i) {
    from_a[i] = a_row(thread / kParts + i * (TILE_THREADS / kParts));
  }
  UNROLL for (uint i = 0; i < kB; ++i) {
    find_b_row(thread / kRowParts + i * (TILE_THREADS / kRowParts));
    from_b[i] = b_data;
    from_scale[i] = b_scale;
    from_offset[i] = b_offset;
  }
  scale_shift = w.groups > 1 ? findLSB(w.group) : 31;
}

// Past the end of a row the last elements are read again; those of B are set to zero when they are unpacked.
void ask_for(uint dtype, uint width, uint k0) {
  uint part = gl_LocalInvocationIndex % kParts, k = k0 + 32 * (gl_LocalInvocationIndex % kRowParts);
  uint a_at = 2 * min(k0 + 8 * part, width - 8);
  UNROLL for (uint i = 0; i < kA; ++i) next_a[i] = Word4s(from_a[i] + a_at).at[0];
  next_there = k < width;
  k = min(k, width - 32);
  const uint vectors = vectors_of(dtype);
  UNROLL for (uint i = 0; i < kB; ++i) {
    uint64_t from = from_b[i] + 16 * vectors * (k / 32);
    UNROLL for (uint v = 0; v < vectors; ++v) next_b[i * vectors + v] = Word4s(from).at[v];
    if (dtype == F32 || dtype == BF16) continue;
    next_scale[i] = Halves(from_scale[i]).at[k >> scale_shift];
    if (dtype == I4A) next_offset[i] = Halves(from_offset[i]).at[k >> scale_shift];
  }
}

// Elements in the order 0 4 1 5 2 6 3 7, as tiles_prepare.comp writes them.
uvec4 pack_eight(vec4 low, vec4 high) {
  return uvec4(packHalf2x16(vec2(low.x, high.x)), packHalf2x16(vec2(low.y, high.y)), packHalf2x16(vec2(low.z, high.z)),
               packHalf2x16(vec2(low.w, high.w)));
}

// Two quants of 4 bits are unpacked into the mantissas of two halves: 1024 + q, or with the high nibbles 1024 + 16 q.
uvec4 eight_nibbles(uint dtype, uint q, f16vec2 scale, f16vec2 offset) {
  f16vec2 v[4], zero = f16vec2(dtype == I4 ? 1032.0 : 1024.0), zero16 = f16vec2(dtype == I4 ? -72.0 : -64.0);
  UNROLL for (uint i = 0; i < 2; ++i) {
    v[2 * i] = unpackFloat2x16((q >> (8 * i) & 0x000f000fu) | 0x64006400u) - zero;
    v[2 * i + 1] = fma(unpackFloat2x16((q >> (8 * i) & 0x00f000f0u) | 0x64006400u), f16vec2(0.0625), zero16);
  }
  uvec4 out_words;
  UNROLL for (uint i = 0; i < 4; ++i) {
    out_words[i] = packFloat2x16(dtype == I4 ? v[i] * scale : fma(v[i], scale, offset));
  }
  return out_words;
}

// Elements 8 part .. + 7 of piece i, in fp16.
uvec4 eight_halves(uint dtype, uint i, uint part) {
  const uint first = i * vectors_of(dtype);
  if (dtype == F32) {
    return pack_eight(uintBitsToFloat(next_b[first + 2 * part]), uintBitsToFloat(next_b[first + 2 * part + 1]));
  }
  if (dtype == BF16) {
    uvec4 h = next_b[first + part];
    return pack_eight(uintBitsToFloat(uvec4(h.x << 16, h.x & 0xffff0000u, h.y << 16, h.y & 0xffff0000u)),
                      uintBitsToFloat(uvec4(h.z << 16, h.z & 0xffff0000u, h.w << 16, h.w & 0xffff0000u)));
  }
  if (dtype == I8) {
    vec4 low, high;
    eight_of_bytes(next_b[first + part / 2][part % 2 * 2], next_b[first + part / 2][part % 2 * 2 + 1],
                   vec2(float(next_scale[i]), 0), low, high);
    return pack_eight(low, high);
  }
  return eight_nibbles(dtype, next_b[first][part], f16vec2(next_scale[i]),
                       f16vec2(dtype == I4A ? next_offset[i] : float16_t(0)));
}

void put_down(uint dtype, uint buffer_at) {
  uint thread = gl_LocalInvocationIndex, a = buffer_at + thread / kParts * kStride + thread % kParts;
  uint b = buffer_at + (kBM + thread / kRowParts) * kStride + 4 * (thread % kRowParts);
  UNROLL for (uint i = 0; i < kA; ++i) tile[a + i * (TILE_THREADS / kParts) * kStride] = next_a[i];
  UNROLL for (uint i = 0; i < kB; ++i) {
    UNROLL for (uint part = 0; part < 4; ++part) {
      uvec4 v = eight_halves(dtype, i, part);
      tile[b + i * (TILE_THREADS / kRowParts) * kStride + part] = next_there ? v : uvec4(0);
    }
  }
}

// Sums pass through shared memory, 16 rows of each subgroup at a time.
#define FINISH_ROWS(i) \
  { \
    UNROLL for (uint j = 0; j < kFragmentsN; ++j) STORE(sums[(i) * kFragmentsN + j], place + 4 * j); \
    SUBGROUP_BARRIER; \
    finish_rows(place, m0 + 16 * (i), n0); \
    SUBGROUP_BARRIER; \
  }
void finish_rows(uint place, uint m, uint n) {
  const uint per_row = kPairs ? SUB_N / 8 : SUB_N / 4;  // results of four columns
  UNROLL for (uint e0 = 0; e0 < 16 * per_row; e0 += 32) {
    uint e = e0 + LANE, row = e / per_row, c = e % per_row, at = place + row * kOutStride;
    if (kPairs) {
      at += c / 4 * 8 + c % 4;
      finish(m + row, n / 2 + 4 * c, uintBitsToFloat(tile[at]), uintBitsToFloat(tile[at + 4]));
    } else {
      finish(m + row, n + 4 * c, uintBitsToFloat(tile[at + c]), vec4(0));
    }
  }
}

void multiply_tile(uint dtype, Weight w, uint width) {
  find_rows(w);
  ask_for(dtype, width, 0);
  Sums sums[kFragmentsM * kFragmentsN];
  UNROLL for (uint i = 0; i < kFragmentsM * kFragmentsN; ++i) sums[i] = ZERO;
  uint m0 = SUBGROUP / kSubgroupsN * SUB_M, n0 = SUBGROUP % kSubgroupsN * SUB_N;
#ifdef DOUBLE
  uint here = 0;
  put_down(dtype, 0);
  for (uint k0 = 0; k0 < width; k0 += kBK) {
    ask_for(dtype, width, k0 + kBK);
    barrier();
#else
  const uint here = 0;
  for (uint k0 = 0; k0 < width; k0 += kBK) {
    barrier();
    put_down(dtype, 0);
    barrier();
    ask_for(dtype, width, k0 + kBK);
#endif
    UNROLL for (uint kk = 0; kk < kBK / 16; ++kk) {
      Factors fa[kFragmentsM];
      UNROLL for (uint i = 0; i < kFragmentsM; ++i) LOAD_A(fa[i], here + (m0 + 16 * i) * kStride + 2 * kk);
      UNROLL for (uint j = 0; j < kFragmentsN; ++j) {
        FactorsB fb;
        LOAD_B(fb, here + (kBM + n0 + 16 * j) * kStride + 2 * kk);
        UNROLL for (uint i = 0; i < kFragmentsM; ++i) MULTIPLY(sums[i * kFragmentsN + j], fa[i], fb);
      }
    }
#ifdef DOUBLE
    here = kBuffer - here;
    put_down(dtype, here);
#endif
  }
  barrier();
  uint place = SUBGROUP * 16 * kOutStride;
  UNROLL for (uint i = 0; i < kFragmentsM; ++i) FINISH_ROWS(i)
}
