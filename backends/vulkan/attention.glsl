// SPDX-License-Identifier: Apache-2.0
// Shared by the shaders of ATTENTION: where keys and values lie.
layout(constant_id = 0) const uint kHeadDim = 256;
layout(constant_id = 1) const bool kBf16 = true;   // keys and values; otherwise fp32
layout(constant_id = 2) const bool kGated = true;

const uint kBytes = kBf16 ? 2 : 4;  // of a key's element

// The address of a KV head's key at a position; the value follows page_size keys later. Pages are
// [kv_heads][k, v][page_size][head_dim].
uint64_t key_at(uint64_t pages, uint64_t step, uint seq, uint kv_heads, uint kv, uint position) {
  Step s = Step(step);
  uint page = step_word(step, s.block_table_at, seq * s.block_table_stride + position / s.page_size);
  uint64_t first = (uint64_t(page) * kv_heads + kv) * 2 * s.page_size + position % s.page_size;
  return pages + first * kHeadDim * kBytes;
}

// Four elements from element 4 c on.
vec4 load_four(uint64_t a, uint c) {
  if (!kBf16) return Float4s(a).at[c];
  uint low = Words(a).at[2 * c], high = Words(a).at[2 * c + 1];
  return uintBitsToFloat(uvec4(low << 16, low & 0xffff0000u, high << 16, high & 0xffff0000u));
}
void store_four(uint64_t a, uint c, vec4 v) {
  if (kBf16) {
    Words(a).at[2 * c] = to_bf16(v.x) | to_bf16(v.y) << 16;
    Words(a).at[2 * c + 1] = to_bf16(v.z) | to_bf16(v.w) << 16;
  } else {
    Float4s(a).at[c] = v;
  }
}

// The first position that a row reads which reads `context - 1` as its last; window 0: all.
uint first_read(uint context, uint window) { return window != 0 && context > window ? context - window : 0; }

// The factor of a head's output element i of a row. q [rows, heads, 2 head_dim]: [q | gate].
float gate_of(uint64_t q, uint row, uint heads, uint head, uint i) {
  if (!kGated) return 1.0;
  return sigmoid(Floats(q + (uint64_t(row) * heads + head) * 2 * kHeadDim * 4).at[kHeadDim + i]);
}
