// SPDX-License-Identifier: Apache-2.0
// The rows of a mixture sorted by expert, one workgroup: order [rows * top_k], entry i being row * top_k + slot; and the tiles:
// word 0 their number, word 1 that of entries, from word 4 on four words each: expert, first entry, entries, 0.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 256) in;
layout(push_constant, std430) uniform Push {
  uint64_t ids, order, tiles, step;
  uint experts, top_k, tile_rows, domain;
};
const uint kMostExperts = 1024;
shared uint count[kMostExperts], place[kMostExperts];

// Entries of experts that are requested at once: a single workgroup mostly waits for memory.
const uint kAtOnce = 8;
uint expert[kAtOnce];
void ask_for(uint first, uint n) {
  [[unroll]] for (uint u = 0; u < kAtOnce; ++u) expert[u] = uint(Ints(ids).at[min(first + 256 * u, n - 1)]);
  [[unroll]] for (uint u = 0; u < kAtOnce; ++u) expert[u] = min(expert[u], experts - 1);
}

void main() {
  uint thread = gl_LocalInvocationIndex, n = step_rows(step, domain) * top_k;
  for (uint e = thread; e < experts; e += 256) count[e] = 0;
  barrier();
  for (uint i = thread; i < n; i += 256 * kAtOnce) {
    ask_for(i, n);
    [[unroll]] for (uint u = 0; u < kAtOnce; ++u) {
      if (i + 256 * u < n) atomicAdd(count[expert[u]], 1);
    }
  }
  barrier();
  if (gl_SubgroupID == 0) {  // where each expert's entries and tiles begin
    uint entries = 0, made = 0;
    for (uint e0 = 0; e0 < experts; e0 += gl_SubgroupSize) {
      uint e = e0 + gl_SubgroupInvocationID;
      uint here = e < experts ? count[e] : 0, mine = (here + tile_rows - 1) / tile_rows;
      uint first = entries + subgroupExclusiveAdd(here), tile = made + subgroupExclusiveAdd(mine);
      if (e < experts) place[e] = first;
      for (uint i = 0; i < mine; ++i) {
        Word4s(tiles + 16).at[tile + i] = uvec4(e, first + i * tile_rows, min(tile_rows, here - i * tile_rows), 0);
      }
      entries += subgroupAdd(here);
      made += subgroupAdd(mine);
    }
    if (subgroupElect()) {
      Words(tiles).at[0] = made;
      Words(tiles).at[1] = n;
    }
  }
  barrier();
  for (uint i = thread; i < n; i += 256 * kAtOnce) {
    ask_for(i, n);
    [[unroll]] for (uint u = 0; u < kAtOnce; ++u) {
      if (i + 256 * u < n) Words(order).at[atomicAdd(place[expert[u]], 1)] = i + 256 * u;
    }
  }
}
