// SPDX-License-Identifier: Apache-2.0
// Shared by the shaders of the chunked delta rule (the WY form of Yang et al., "Parallelizing Linear Transformers with
// the Delta Rule over Sequence Length", 2024, with decays as in "Gated Delta Networks", 2024).
//
// A chunk has up to 32 rows of one sequence. With G_i the sum of g up to row i, and S the state before the chunk:
//   T = (I + A)^-1 diag(beta),  A_ij = beta_i exp(G_i - G_j) k_i k_j for j < i
//   W_ij = exp(G_i - G_j) q_i k_j for j <= i
//   U = T (V - diag(exp(G)) K S)
//   O = diag(exp(G)) Q S + W U
//   S = exp(G_last) S + (diag(exp(G_last - G)) K)^T U
//
// The triangles T and W lie in [slots, value_heads, 32, 32], exp(G_i) and exp(G_last - G_i) in [slots, value_heads,
// 32]. The first slot of a sequence is its first row / 32 + its number.
const uint kChunk = 32;
const uint kKeyBlocks = (kKeyDim + 31) / 32;

// Thread (x, y) of 16 x 16 computes rows 2 y and 2 y + 1, columns 2 x and 2 x + 1 of a result. Rows of 32 elements in
// shared memory, 36 floats apart.
shared vec4 keys[32 * 9], queries[32 * 9];

uint slot_of(Sequence s, uint seq) { return s.first / kChunk + seq; }

// This thread's four elements of row `row` of block `block` of q or k of a head, 0 beyond the end.
vec4 four_of(uint64_t mixed, uint channels, uint first_channel, uint row, uint end, uint block) {
  uint i = block * 32 + gl_LocalInvocationIndex % 8 * 4;
  if (row >= end || i >= kKeyDim) return vec4(0);
  return Float4s(mixed + (uint64_t(row) * channels + first_channel + i) * 4).at[0];
}
uint place() { return gl_LocalInvocationIndex / 8 * 9 + gl_LocalInvocationIndex % 8; }
