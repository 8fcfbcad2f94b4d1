// SPDX-License-Identifier: Apache-2.0
// SAMPLE and TOP_CANDIDATES, first part: every part of the vocabulary of every row. gl_WorkGroupID.x: part; .y:
// sampling row.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "sampling.glsl"
#include "sample.glsl"
layout(local_size_x = 256) in;
layout(constant_id = 0) const bool kCandidates = false;

void main() {
  uint row = gl_WorkGroupID.y;
  if (row >= Step(step).sample_rows) return;
  Draw d = draw_of(row);
  uint64_t from = logits_of(d), best = 0;
  uint most = 0, highest = 0, bad = 0, live = 0;
  bool keeps_keys = kCandidates || d.truncated;
  for (uint id = gl_WorkGroupID.x * 256 + gl_LocalInvocationIndex; id < vocab; id += kParts * 256) {
    float logit = Floats(from).at[id];
    if (is_bad_logit(logit)) bad = max(bad, ~id);
    highest = max(highest, float_key(clamp_value(logit)));
    uint key = 0;
    if (is_live(d, id, logit)) {
      float z = value_of(d, id, logit);
      key = float_key(z);
      most = max(most, key);
      ++live;
      if (!keeps_keys) best = max(best, final_key(d, id, z));
    }
    if (keeps_keys) Words(keys + uint64_t(row) * vocab * 4).at[id] = key;
  }
  best = workgroup_max(best);
  most = workgroup_max(most);
  highest = workgroup_max(highest);
  bad = workgroup_max(bad);
  if (kCandidates) live = uint(workgroup_total(uint64_t(live)));
  if (gl_LocalInvocationIndex == 0) {
    Parts(parts).at[row * kParts + gl_WorkGroupID.x] = Part(best, most, highest, bad, live);
  }
}
