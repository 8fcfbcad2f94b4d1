// SPDX-License-Identifier: Apache-2.0
// Shared by the shaders of GATED_DELTA: shapes, a sequence with its slots and pending rows, and the gates.
layout(constant_id = 0) const uint kKeyDim = 128;    // per head
layout(constant_id = 1) const uint kValueDim = 128;  // per head
layout(constant_id = 2) const uint kTaps = 4;        // of the convolution
layout(constant_id = 3) const uint kTypes = 0;       // of conv, a_log, dt_bias, norm: 4 bits each
const uint kConvType = kTypes & 15, kALogType = kTypes >> 4 & 15, kBiasType = kTypes >> 8 & 15, kNormType = kTypes >> 12;

struct Sequence {
  uint first, rows;   // of the step
  uint read, write;   // slots
  bool live, fresh; // fresh: begins with zeros
  // Pending rows (step.h): how many stand, and whether its own stay pending. Those that stand and its own are its run.
  uint kept;
  bool pends;
};

Sequence sequence_of(uint64_t step, uint seq) {
  Step t = Step(step);
  Sequence s;
  s.first = step_word(step, t.row_start_at, seq);
  s.rows = step_word(step, t.row_start_at, seq + 1) - s.first;
  s.read = step_word(step, t.seq_read_slot_at, seq);
  s.write = step_word(step, t.seq_write_slot_at, seq);
  s.live = step_word(step, t.seq_active_at, seq) != 0 && s.rows > 0;
  s.fresh = s.rows > 0 && step_word(step, t.row_position_at, s.first) == 0;
  s.kept = 0;
  s.pends = false;
  return s;
}

// The same where the operation has pending rows: `pending` is not 0.
Sequence run_of(uint64_t step, uint seq, uint64_t pending) {
  Sequence s = sequence_of(step, seq);
  uint at = Step(step).seq_kept_at;
  if (pending == 0 || at == 0) return s;
  uint word = step_word(step, at, seq);
  s.kept = word & 0x3fffffffu;
  s.pends = (word & 0x40000000u) != 0;
  return s;
}
// The states get so many rows of the run.
uint applied_of(Sequence s) { return s.pends ? s.kept : s.kept + s.rows; }

// log(1 + exp(x)), also if exp(x) is small compared with 1.
float softplus(float x) {
  if (x > 20.0) return x;
  float e = exp(x);
  if (e > 0.1) return log(1.0 + e);
  return e * (1.0 - e * (0.5 - e * (1.0 / 3.0 - e * (0.25 - e * (0.2 - e / 6.0)))));
}

// beta and g of a head; beta and exp(g).
vec2 log_gates(float b, float a, float a_log, float bias) { return vec2(sigmoid(b), -exp(a_log) * softplus(a + bias)); }
vec2 gates(float b, float a, float a_log, float bias) {
  vec2 g = log_gates(b, a, a_log, bias);
  return vec2(g.x, exp(g.y));
}
