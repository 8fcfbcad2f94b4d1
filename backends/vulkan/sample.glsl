// SPDX-License-Identifier: Apache-2.0
// Shared by the shaders of SAMPLE and TOP_CANDIDATES: one sampling row, and maxima over a workgroup.
layout(push_constant, std430) uniform Push {
  uint64_t logits, counts, tokens, results, top_ids, top_logprobs;  // counts, top_*: 0 if absent; candidates: their logits
  uint64_t parts;      // [sample rows, kParts] results of the scan
  uint64_t keys;       // [sample rows, vocab]: float keys of values; 0: not live. Of rows that are truncated
  uint64_t kept;       // [sample rows, vocab]: order keys that truncation looks at
  uint64_t step;
  uint vocab, top;
};
const uint kParts = 64;

// Result of a part of the vocabulary.
struct Part {
  uint64_t best;       // the largest order key of the last step, where nothing is truncated
  uint top, highest;   // the largest float keys of live values, and of all logits
  uint bad, live;      // ~id of the first bad logit, 0: there is none; live ids, for candidates
};
Part no_part() { return Part(0ul, 0, 0, 0, 0); }
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Parts { Part at[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Keys { uint64_t at[]; };

// swy_sample_slot and swy_sample_params.
struct Draw {
  uint logit_row, token_entry;
  uvec2 position, seed;
  uint mask_at, bias_at, bias_count, stop_at, stop_count, counts_read, counts_write;
  uint flags, top_p_q15, min_p_q30;
  int top_k;
  float inv_temperature, repetition, inv_repetition, presence, frequency;
  bool greedy, truncated;
};

Draw draw_of(uint row) {
  Step s = Step(step);
  uint64_t slot = step + s.sample_at + row * 48, p = step + s.sample_params_at + row * s.sample_params_size;
  Draw d;
  d.logit_row = Words(slot).at[0];
  d.token_entry = Words(slot).at[1];
  d.position = uvec2(Words(slot).at[2], Words(slot).at[3]);
  d.mask_at = Words(slot).at[4];
  d.bias_at = Words(slot).at[5];
  d.bias_count = Words(slot).at[6];
  d.stop_at = Words(slot).at[7];
  d.stop_count = Words(slot).at[8];
  d.counts_read = counts == 0 ? kNoSlot : Words(slot).at[9];
  d.counts_write = counts == 0 ? kNoSlot : Words(slot).at[10];
  d.flags = Words(p).at[1];
  d.seed = uvec2(Words(p).at[2], Words(p).at[3]);
  d.top_k = Ints(p).at[7];
  d.inv_temperature = Floats(p).at[11];
  d.repetition = Floats(p).at[12];
  d.inv_repetition = Floats(p).at[13];
  d.presence = Floats(p).at[14];
  d.frequency = Floats(p).at[15];
  d.top_p_q15 = Words(p).at[16];
  d.min_p_q30 = Words(p).at[17];
  d.greedy = d.inv_temperature == 0.0;
  d.truncated = !d.greedy && (d.top_k > 0 || d.top_p_q15 < kTopPOff || d.min_p_q30 != 0);
  return d;
}

uint64_t logits_of(Draw d) { return logits + uint64_t(d.logit_row) * vocab * 4; }

bool is_live(Draw d, uint id, float logit) {
  bool allowed = d.mask_at == 0 || (step_word(step, d.mask_at, id / 32) >> (id % 32) & 1) != 0;
  return allowed && floatBitsToUint(logit) != kNegInf;
}

// Steps 2 and 3 of the chain.
float value_of(Draw d, uint id, float logit) {
  float bias = 0;
  uint low = 0, high = d.bias_count;
  while (low < high) {
    uint middle = low + (high - low) / 2;
    if (step_word(step, d.bias_at, 2 * middle) < id) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low < d.bias_count && step_word(step, d.bias_at, 2 * low) == id) {
    bias = uintBitsToFloat(step_word(step, d.bias_at, 2 * low + 1));
  }
  uint count = d.counts_read == kNoSlot ? 0 : Words(counts + uint64_t(d.counts_read) * vocab * 4).at[id];
  float y = adjust(d.repetition, d.inv_repetition, d.presence, d.frequency, logit, count, bias);
  return d.greedy ? y : clamp_value(mul(y, d.inv_temperature));
}

// The order key that the last step of the chain compares.
uint64_t final_key(Draw d, uint id, float z) {
  float x = d.greedy ? z : add(z, gumbel(d.seed, d.position, id));
  return order_key(float_key(x), id);
}

shared uint64_t wide[256];
shared uint narrow[256];

// Over the workgroup; every thread gets the result.
uint64_t workgroup_max(uint64_t x) {
  barrier();
  wide[gl_LocalInvocationIndex] = x;
  barrier();
  for (uint half_size = 128; half_size > 0; half_size /= 2) {
    if (gl_LocalInvocationIndex < half_size) {
      wide[gl_LocalInvocationIndex] = max(wide[gl_LocalInvocationIndex], wide[gl_LocalInvocationIndex + half_size]);
    }
    barrier();
  }
  return wide[0];
}
uint64_t workgroup_total(uint64_t x) {
  barrier();
  wide[gl_LocalInvocationIndex] = x;
  barrier();
  for (uint half_size = 128; half_size > 0; half_size /= 2) {
    if (gl_LocalInvocationIndex < half_size) {
      wide[gl_LocalInvocationIndex] += wide[gl_LocalInvocationIndex + half_size];
    }
    barrier();
  }
  return wide[0];
}
uint workgroup_max(uint x) {
  barrier();
  narrow[gl_LocalInvocationIndex] = x;
  barrier();
  for (uint half_size = 128; half_size > 0; half_size /= 2) {
    if (gl_LocalInvocationIndex < half_size) {
      narrow[gl_LocalInvocationIndex] = max(narrow[gl_LocalInvocationIndex], narrow[gl_LocalInvocationIndex + half_size]);
    }
    barrier();
  }
  return narrow[0];
}
