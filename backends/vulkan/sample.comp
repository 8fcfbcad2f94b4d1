// SPDX-License-Identifier: Apache-2.0
// SAMPLE, second part: a workgroup per row chooses its token.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "sampling.glsl"
#include "sample.glsl"
#include "sample_select.glsl"
layout(local_size_x = 256) in;

// Steps 4 to 8: the largest final order key.
uint64_t draw_truncated(Draw d) {
  bool weighs = d.top_p_q15 < kTopPOff || d.min_p_q30 != 0;
  uint n = gather(least_weighing());
  if (d.top_k > 0 && n < uint(d.top_k) && !weighs) n = gather(1);
  uint64_t floor_key = 0, least_ranked = 0;
  if (d.top_k > 0 && n > uint(d.top_k)) floor_key = cut(n, false, 0, uint64_t(d.top_k));
  if (d.top_p_q15 < kTopPOff) {
    least_ranked = cut(n, true, floor_key, top_p_need(d.top_p_q15, total_weight(n, floor_key)));
  }
  uint64_t best = 0;
  for (uint i = thread; i < n; i += 256) {
    uint64_t key = Keys(row_kept).at[i];
    if (key < floor_key) continue;
    if (weighs) {
      uint64_t rank = ranked(key, true);
      if (rank < least_ranked || uint(rank >> 32) < max(d.min_p_q30, 1)) continue;  // no prefix ends in weight 0
    }
    best = max(best, final_key(d, id_of(key), float_of_key(uint(key >> 32))));
  }
  return workgroup_max(best);
}

// The most likely ids in the model's own distribution.
void tell_likely(uint64_t from, uint row, float highest, uint64_t total, bool ok) {
  uint64_t before = ~0ul;
  for (uint k = 0; k < top; ++k) {
    uint64_t best = 0;
    for (uint id = thread; ok && id < vocab; id += 256) {
      float logit = Floats(from).at[id];
      if (floatBitsToUint(logit) == kNegInf) continue;
      uint64_t key = order_key(float_key(clamp_value(logit)), id);
      if (key < before) best = max(best, key);
    }
    before = best = workgroup_max(best);
    if (thread != 0) continue;
    uint id = id_of(best);
    Ints(top_ids).at[row * top + k] = best == 0 ? -1 : int(id);
    Floats(top_logprobs).at[row * top + k] = best == 0 ? 0.0 : logprob_of(Floats(from).at[id], highest, total);
  }
}

// Copies counts from the slot read to the slot written, with the sampled token counted.
void count_token(Draw d, uint token) {
  if (d.counts_write == kNoSlot) return;
  uint64_t to = counts + uint64_t(d.counts_write) * vocab * 4;
  if (d.counts_write == d.counts_read) {
    if (thread == 0) Words(to).at[token] = count_output(Words(to).at[token]);
    return;
  }
  uint64_t from = counts + uint64_t(d.counts_read) * vocab * 4;
  for (uint id = thread; id < vocab; id += 256) {
    uint word = d.counts_read == kNoSlot ? 0 : Words(from).at[id];
    Words(to).at[id] = id == token ? count_output(word) : word;
  }
}

void tell(Draw d, uint row, uint status, uint token, float logprob) {
  bool ok = status == kSampleOk;
  uint stopped = 0;
  for (uint i = 0; ok && d.stop_at != 0 && i < d.stop_count; ++i) {
    if (step_word(step, d.stop_at, i) == token) stopped = 1;
  }
  Word4s(results).at[row] = uvec4(ok ? token : 0xffffffffu, status, floatBitsToUint(logprob), stopped);
  Words(tokens).at[d.token_entry] = ok ? token : 0;
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
  uint bad = workgroup_max(part.bad), most = workgroup_max(part.top), highest_key = workgroup_max(part.highest);
  uint64_t best = workgroup_max(part.best), from = logits_of(d);
  uint status = bad != 0 ? kBadLogit : most == 0 ? kNoToken : kSampleOk;
  top_value = float_of_key(most);
  if (status == kSampleOk && d.truncated) best = draw_truncated(d);
  uint token = id_of(best);
  float highest = float_of_key(highest_key), logprob = 0;
  bool wants = (d.flags & kWantsLogprob) != 0;
  uint64_t total = 0;
  if (status == kSampleOk && (wants || top != 0)) total = total_of(from, highest);
  if (status == kSampleOk && wants) logprob = logprob_of(Floats(from).at[token], highest, total);
  tell_likely(from, row, highest, total, status == kSampleOk);
  if (status == kSampleOk) count_token(d, token);
  if (thread == 0) tell(d, row, status, token, logprob);
}
