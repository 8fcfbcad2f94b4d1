// SPDX-License-Identifier: Apache-2.0
// TOP_CANDIDATES, second part: a workgroup per row lists its best ids, and the other values that the host needs.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "sampling.glsl"
#include "sample.glsl"
#include "sample_select.glsl"
layout(local_size_x = 256) in;

const uint kMost = 1024;
shared uint64_t best[kMost];

// Lists the `listed` best of n ids in row_kept, best first, and nothing in the other places.
void list_best(uint row, uint n, uint listed, uint64_t from) {
  uint64_t floor_key = n > listed ? cut(n, false, 0, uint64_t(listed)) : 0;
  barrier();
  if (thread == 0) found = 0;
  barrier();
  for (uint i = thread; i < n; i += 256) {
    uint64_t key = Keys(row_kept).at[i];
    if (key >= floor_key) best[atomicAdd(found, 1)] = key;
  }
  barrier();
  for (uint i = thread; i < listed; i += 256) {
    uint place = row * top;
    for (uint j = 0; j < listed; ++j) place += uint(best[j] > best[i]);
    uint id = id_of(best[i]);
    Ints(top_ids).at[place] = int(id);
    Floats(top_logprobs).at[place] = Floats(from).at[id];
  }
  for (uint i = listed + thread; i < top; i += 256) {
    Ints(top_ids).at[row * top + i] = -1;
    Floats(top_logprobs).at[row * top + i] = 0.0;
  }
}

void main() {
  uint row = gl_WorkGroupID.x;
  if (row >= Step(step).sample_rows) return;
  thread = gl_LocalInvocationIndex;
  row_keys = keys + uint64_t(row) * vocab * 4;
  row_kept = kept + uint64_t(row) * vocab * 8;
  Draw d = draw_of(row);
  Part part = no_part();
  if (thread < kParts) part = Parts(parts).at[row * kParts + thread];
  uint bad = workgroup_max(part.bad), live = uint(workgroup_total(uint64_t(part.live)));
  top_value = float_of_key(workgroup_max(part.top));
  float highest = float_of_key(workgroup_max(part.highest));
  uint64_t from = logits_of(d), total = 0, logprob_total = 0;
  uint status = bad != 0 ? kBadLogit : live == 0 ? kNoToken : kSampleOk;
  bool ok = status == kSampleOk, wants = ok && (d.flags & kWantsLogprob) != 0;
  uint listed = ok ? min(live, top) : 0, n = 0;
  if (ok) {
    n = gather(least_weighing());
    if (!d.greedy) total = total_weight(n, 0);
    if (n < listed) n = gather(1);
  }
  list_best(row, n, listed, from);
  if (wants) logprob_total = total_of(from, highest);
  if (thread != 0) return;
  Word4s(results).at[2 * row] = uvec4(status, bad != 0 ? ~bad : 0xffffffffu, ok ? live : 0, wants ? floatBitsToUint(highest) : 0);
  Word4s(results).at[2 * row + 1] = uvec4(uint(total), uint(total >> 32), uint(logprob_total), uint(logprob_total >> 32));
}
