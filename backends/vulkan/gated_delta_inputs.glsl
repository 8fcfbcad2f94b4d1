// SPDX-License-Identifier: Apache-2.0
// The inputs of the convolution: those of a sequence's run, and those before it. `qkv`, `conv_state`, `pending`,
// `pending_rows` and `value_heads` come from the shader.

// A pending row of a slot: qkv, then b and a of each value head.
uint64_t pending_row(uint slot, uint row, uint channels) {
  return pending + (uint64_t(slot) * pending_rows + row) * (channels + 2 * value_heads) * 4;
}

// Channel c of row i of the run; negative: before it.
float input_of(Sequence s, int i, uint c, uint channels) {
  const int keep = int(kTaps) - 1;
  if (i >= int(s.kept)) return Floats(qkv + uint64_t(s.first + uint(i) - s.kept) * channels * 4).at[c];
  if (i >= 0) return Floats(pending_row(s.read, uint(i), channels)).at[c];
  if (s.fresh) return 0;
  return Floats(conv_state + uint64_t(s.read) * channels * keep * 4).at[c * keep + keep + i];
}

// The last kTaps - 1 inputs of what is applied: this thread's channels. All workgroups of a sequence share them.
void keep_inputs(Sequence s, uint channels) {
  uint groups = gl_NumWorkGroups.x * gl_NumWorkGroups.y, group = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
  const uint keep = kTaps - 1;
  uint64_t slot = uint64_t(channels) * keep * 4;
  for (uint c = group * 256 + gl_LocalInvocationIndex; c < channels; c += groups * 256) {
    for (uint t = 0; t < keep; ++t) {  // ascending: where the slots are one, nothing is read after it was written
      float x = input_of(s, int(t + applied_of(s)) - int(keep), c, channels);
      Floats(conv_state + s.write * slot).at[c * keep + t] = x;
    }
  }
}
