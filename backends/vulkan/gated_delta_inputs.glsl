// SPDX-License-Identifier: Apache-2.0
// The states of the convolution, for shaders of the rule: all workgroups of a sequence share its channels.

// The last kTaps - 1 inputs of the sequence: this thread's channels.
void keep_inputs(Sequence s, uint channels) {
  uint groups = gl_NumWorkGroups.x * gl_NumWorkGroups.y, group = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
  const uint keep = kTaps - 1;
  uint64_t slot = uint64_t(channels) * keep * 4;
  for (uint c = group * 256 + gl_LocalInvocationIndex; c < channels; c += groups * 256) {
    for (uint t = 0; t < keep; ++t) {  // ascending: where the slots are one, nothing is read after it was written
      uint at = t + s.rows;            // among the old inputs and then the rows
      float x = 0;
      if (at >= keep) {
        x = Floats(qkv + uint64_t(s.first + at - keep) * channels * 4).at[c];
      } else if (!s.fresh) {
        x = Floats(conv_state + s.read * slot).at[c * keep + at];
      }
      Floats(conv_state + s.write * slot).at[c * keep + t] = x;
    }
  }
}
