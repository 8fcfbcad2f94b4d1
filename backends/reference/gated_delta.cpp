// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA and its pieces: CAUSAL_CONV, DELTA_GATES, DELTA_RULE (GATED_RMS_NORM is in rms_norm.cpp).
//
// The recurrent form, token by token. The state is rounded to fp32 after every token, so the bits do not depend on how
// a prompt is divided into chunks.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "arithmetic.h"
#include "kernels.h"

namespace reference {
namespace {

uint64_t channels_of(const swy_gated_delta_attrs& a) {
  return 2 * uint64_t{a.key_heads} * a.key_dim + uint64_t{a.value_heads} * a.value_dim;
}

// One sequence of the step: its rows and its slots. Rows of an earlier step that stand come before its own: together
// they are its run.
struct Sequence {
  uint32_t first, last;  // its own rows
  uint32_t read_slot, write_slot;
  bool active, fresh;  // fresh: begins at position 0, so that the state is zeros
  uint64_t kept = 0;   // rows that stand
  uint64_t run = 0;    // where the run begins among the rows of all runs
  bool pending = false;
  uint64_t rows() const { return kept + (last - first); }
  uint64_t applied() const { return pending ? kept : rows(); }  // the states get so many rows of the run
};

Sequence sequence(const swy_step* step, uint32_t s) {
  const uint32_t* start = SWY_STEP_ARRAY(step, uint32_t, row_start_at);
  const uint32_t* positions = SWY_STEP_ARRAY(step, uint32_t, row_position_at);
  return {start[s],
          start[s + 1],
          SWY_STEP_ARRAY(step, uint32_t, seq_read_slot_at)[s],
          SWY_STEP_ARRAY(step, uint32_t, seq_write_slot_at)[s],
          SWY_STEP_ARRAY(step, uint32_t, seq_active_at)[s] != 0,
          start[s] < start[s + 1] && positions[start[s]] == 0,
          0,
          start[s]};
}

// The pending rows of GATED_DELTA r2: per slot and row the inputs qkv, b and a. Other operations have none.
struct PendingRows {
  float* state = nullptr;
  uint64_t rows = 0;  // of a slot
  uint64_t channels, heads;

  explicit PendingRows(const swy::Call& call)
      : channels(channels_of(call.attrs<swy_gated_delta_attrs>())),
        heads(call.attrs<swy_gated_delta_attrs>().value_heads) {
    if (call.op->id != SWY_OP_GATED_DELTA || call.op->revision == 1) return;
    state = call.state("pending");
    rows = swy::tensor(*call.op, "pending").dims[0];
  }

  float* qkv(uint32_t slot, uint64_t row) const { return state + (slot * rows + row) * (channels + 2 * heads); }
  float* b(uint32_t slot, uint64_t row) const { return qkv(slot, row) + channels; }
  float* a(uint32_t slot, uint64_t row) const { return b(slot, row) + heads; }

  Sequence sequence(const swy_step* step, uint32_t s) const {
    Sequence q = reference::sequence(step, s);
    q.run += s * rows;
    if (state == nullptr || step->seq_kept_at == 0) return q;
    const uint32_t word = SWY_STEP_ARRAY(step, uint32_t, seq_kept_at)[s];
    q.kept = SWY_KEPT_COUNT(word);
    q.pending = (word & SWY_KEPT_PENDING) != 0;
    return q;
  }
};

// silu(conv(x)) of one channel of one sequence; the state keeps the last kernel - 1 inputs, oldest first.
void conv_channel(const Sequence& q, const PendingRows& pending, const Weight& w, uint64_t c, uint32_t kernel,
                  const float* x, const float* before, float* after, float* y) {
  const uint64_t channels = pending.channels;
  const uint32_t keep = kernel - 1;
  const auto input = [&](int64_t row) {  // row of the run; negative: from the state
    if (row < 0) return q.fresh ? 0.0f : before[static_cast<int64_t>(keep) + row];
    const auto r = static_cast<uint64_t>(row);
    return r < q.kept ? pending.qkv(q.read_slot, r)[c] : x[(q.first + r - q.kept) * channels + c];
  };
  for (uint64_t r = 0; r < q.rows(); ++r) {
    double sum = 0;
    for (uint32_t j = 0; j < kernel; ++j) sum += w.at(c * kernel + j) * input(static_cast<int64_t>(r + j) - keep);
    y[(q.run + r) * channels + c] = static_cast<float>(silu(sum));
  }
  if (!q.active) return;
  for (uint32_t j = 0; j < keep; ++j) {  // oldest first: reads stay ahead of writes
    after[j] = input(static_cast<int64_t>(q.applied() + j) - keep);
  }
}

// All channels, split over the team; for every sequence.
void conv(const swy::Call& call, const swy_gated_delta_attrs& a, const Weight& w, const float* x, float* state,
          float* y) {
  const PendingRows pending(call);
  const uint64_t channels = channels_of(a), keep = a.conv_kernel - 1;
  const auto [first, last] = call.split(channels);
  for (uint32_t s = 0; s < call.step->seqs; ++s) {
    const Sequence q = pending.sequence(call.step, s);
    if (q.first == q.last) continue;
    for (uint64_t c = first; c < last; ++c) {
      conv_channel(q, pending, w, c, a.conv_kernel, x, state + (q.read_slot * channels + c) * keep,
                   state + (q.write_slot * channels + c) * keep, y);
    }
  }
}

void causal_conv(const swy::Call& call) {
  conv(call, call.attrs<swy_gated_delta_attrs>(), Weight(call, "conv"), call.input("x"), call.state("conv_state"),
       call.output("y"));
}

// beta = sigmoid(b); g = -exp(a_log) * softplus(a + dt_bias), of a value head.
void gate(float b, float a, double a_log, double dt_bias, float* beta, float* g) {
  const double t = a + dt_bias;
  const double softplus = t > 30 ? t : std::log1p(std::exp(t));
  *beta = static_cast<float>(sigmoid(b));
  *g = static_cast<float>(-std::exp(a_log) * softplus);
}

void delta_gates(const swy::Call& call) {
  const float *b = call.input("b"), *a = call.input("a");
  const Weight a_log(call, "a_log"), dt_bias(call, "dt_bias");
  const uint64_t heads = call.attrs<swy_gated_delta_attrs>().value_heads;
  float *beta = call.output("beta"), *g = call.output("g");
  const auto [first, last] = call.split(call.step->rows * heads);
  for (uint64_t i = first; i < last; ++i) gate(b[i], a[i], a_log.at(i % heads), dt_bias.at(i % heads), beta + i, g + i);
}

// Of all runs, split over the team by heads.
void run_gates(const swy::Call& call, float* beta, float* g) {
  const PendingRows pending(call);
  const float *b = call.input("b"), *a = call.input("a");
  const Weight a_log(call, "a_log"), dt_bias(call, "dt_bias");
  const auto [first, last] = call.split(pending.heads);
  for (uint32_t s = 0; s < call.step->seqs; ++s) {
    const Sequence q = pending.sequence(call.step, s);
    for (uint64_t r = 0; r < q.rows(); ++r) {
      const uint64_t own = (q.first + r - q.kept) * pending.heads, at = (q.run + r) * pending.heads;
      const float* bs = r < q.kept ? pending.b(q.read_slot, r) : b + own;
      const float* as = r < q.kept ? pending.a(q.read_slot, r) : a + own;
      for (uint64_t h = first; h < last; ++h) gate(bs[h], as[h], a_log.at(h), dt_bias.at(h), beta + at + h, g + at + h);
    }
  }
}

// Keeps the inputs of rows that stay pending, split over the team. Nobody reads rows of an earlier step any more.
void keep_pending(const swy::Call& call) {
  const PendingRows pending(call);
  const float *qkv = call.input("qkv"), *b = call.input("b"), *a = call.input("a");
  for (uint32_t s = 0; s < call.step->seqs; ++s) {
    const Sequence q = pending.sequence(call.step, s);
    if (!q.pending || !q.active) continue;
    const auto [first, last] = call.split(q.last - q.first);
    for (uint64_t r = first; r < last; ++r) {
      const uint64_t row = q.first + r;
      std::copy_n(qkv + row * pending.channels, pending.channels, pending.qkv(q.write_slot, r));
      std::copy_n(b + row * pending.heads, pending.heads, pending.b(q.write_slot, r));
      std::copy_n(a + row * pending.heads, pending.heads, pending.a(q.write_slot, r));
    }
  }
}

// One token of one head. S [key_dim, value_dim]; q, k normalised, fp64; `d` and `o` are scratch [value_dim]. `out`
// [value_dim], or NULL.
void delta_token(float* S, const double* q, const double* k, const float* v, double decay, double beta,
                 uint32_t key_dim, uint32_t value_dim, double* d, double* o, float* out) {
  std::fill(d, d + value_dim, 0.0);
  std::fill(o, o + value_dim, 0.0);
  for (uint32_t i = 0; i < key_dim; ++i) {
    float* row = S + uint64_t{i} * value_dim;
    for (uint32_t j = 0; j < value_dim; ++j) d[j] += decay * row[j] * k[i];
  }
  for (uint32_t j = 0; j < value_dim; ++j) d[j] = beta * (v[j] - d[j]);
  for (uint32_t i = 0; i < key_dim; ++i) {
    float* row = S + uint64_t{i} * value_dim;
    for (uint32_t j = 0; j < value_dim; ++j) {
      row[j] = static_cast<float>(decay * row[j] + k[i] * d[j]);
      o[j] += row[j] * q[i];
    }
  }
  for (uint32_t j = 0; j < value_dim && out != nullptr; ++j) out[j] = static_cast<float>(o[j]);
}

void l2_normalise(const float* x, uint32_t n, double eps, double scale, double* y) {
  const double factor = scale / std::sqrt(dot(x, x, n) + eps);
  for (uint32_t i = 0; i < n; ++i) y[i] = x[i] * factor;
}

// q, k, d and o in fp64, and a state.
uint64_t rule_scratch_floats(const swy_gated_delta_attrs& a) {
  return 4 * (uint64_t{a.key_dim} + a.value_dim) + uint64_t{a.key_dim} * a.value_dim;
}

// The rows of a run, of one head: applied to its state S, and to `dropped` from the first on that stays pending.
// mixed [rows of runs, channels], beta and g [rows of runs, value_heads].
void run_rows(const swy_gated_delta_attrs& a, const Sequence& seq, uint64_t h, const float* mixed, const float* beta,
              const float* g, float* S, double* scratch, float* y) {
  double *q = scratch, *k = q + a.key_dim, *d = k + a.key_dim, *o = d + a.value_dim;
  auto* dropped = reinterpret_cast<float*>(o + a.value_dim);
  const uint64_t keys = uint64_t{a.key_heads} * a.key_dim, key = h / (a.value_heads / a.key_heads) * a.key_dim;
  for (uint64_t r = 0; r < seq.rows(); ++r) {
    if (r == seq.applied()) {
      std::copy_n(S, uint64_t{a.key_dim} * a.value_dim, dropped);
      S = dropped;
    }
    const float* row = mixed + (seq.run + r) * channels_of(a);
    l2_normalise(row + key, a.key_dim, a.l2_eps, 1.0 / std::sqrt(double(a.key_dim)), q);
    l2_normalise(row + keys + key, a.key_dim, a.l2_eps, 1.0, k);
    const uint64_t i = (seq.run + r) * a.value_heads + h;
    float* out = r < seq.kept ? nullptr : y + ((seq.first + r - seq.kept) * a.value_heads + h) * a.value_dim;
    delta_token(S, q, k, row + 2 * keys + h * a.value_dim, std::exp(static_cast<double>(g[i])), beta[i], a.key_dim,
                a.value_dim, d, o, out);
  }
}

// All heads of all sequences, split over the team.
void rule(const swy::Call& call, const swy_gated_delta_attrs& a, const float* mixed, const float* beta, const float* g,
          float* state, float* y) {
  const PendingRows pending(call);
  auto* own = reinterpret_cast<double*>(scratch(call, rule_scratch_floats(a)));
  const uint64_t unit = uint64_t{a.key_dim} * a.value_dim;
  const auto [first, last] = call.split(uint64_t{call.step->seqs} * a.value_heads);
  for (uint64_t item = first; item < last; ++item) {
    const Sequence seq = pending.sequence(call.step, static_cast<uint32_t>(item / a.value_heads));
    const uint64_t h = item % a.value_heads;
    if (seq.first == seq.last) continue;
    if (!seq.active) {
      for (uint64_t r = seq.first; r < seq.last; ++r) {
        std::fill_n(y + (r * a.value_heads + h) * a.value_dim, a.value_dim, 0.0f);
      }
      continue;
    }
    float* S = state + (uint64_t{seq.write_slot} * a.value_heads + h) * unit;
    const float* from = state + (uint64_t{seq.read_slot} * a.value_heads + h) * unit;
    if (seq.fresh) {
      std::fill_n(S, unit, 0.0f);
    } else if (S != from) {
      std::memcpy(S, from, unit * 4);
    }
    run_rows(a, seq, h, mixed, beta, g, S, own, y);
  }
}

const swy_gated_delta_attrs& attrs_of(const swy_op& op) { return *static_cast<const swy_gated_delta_attrs*>(op.attrs); }

uint64_t delta_rule_workspace(const swy_op& op, const swy_bucket&) {
  return scratch_bytes(rule_scratch_floats(attrs_of(op)));
}

void delta_rule(const swy::Call& call) {
  rule(call, call.attrs<swy_gated_delta_attrs>(), call.input("qkv"), call.input("beta"), call.input("g"),
       call.state("delta_state"), call.output("y"));
}

// The most rows of all runs of a step.
uint64_t run_rows_of(const swy_op& op, uint64_t rows, uint64_t seqs) {
  return rows + (op.revision == 1 ? 0 : seqs * swy::tensor(op, "pending").dims[0]);
}

// Workspace of the composite: scratch, mixed [rows of runs, channels], beta and g [rows of runs, value_heads].
uint64_t gated_delta_workspace(const swy_op& op, const swy_bucket& bucket) {
  const auto& a = attrs_of(op);
  return delta_rule_workspace(op, bucket) +
         run_rows_of(op, bucket.rows, bucket.seqs) * (channels_of(a) + 2 * uint64_t{a.value_heads}) * 4;
}

void gated_delta(const swy::Call& call) {
  const auto& a = call.attrs<swy_gated_delta_attrs>();
  const uint64_t rows = call.step->rows, n = a.value_dim, runs = run_rows_of(*call.op, rows, call.step->seqs);
  auto* mixed = call.work<float>(scratch_bytes(rule_scratch_floats(a)));
  float* beta = mixed + runs * channels_of(a);
  float* g = beta + runs * a.value_heads;
  float* y = call.output("y");
  conv(call, a, Weight(call, "conv"), call.input("qkv"), call.state("conv_state"), mixed);
  run_gates(call, beta, g);
  call.barrier();
  rule(call, a, mixed, beta, g, call.state("delta_state"), y);
  keep_pending(call);
  call.barrier();
  const Weight norm(call, "norm");
  const float* z = call.input("z");
  const auto [first, last] = call.split(rows * a.value_heads);
  for (uint64_t h = first; h < last; ++h) {
    gated_rms_norm_row(y + h * n, z + h * n, norm, a.norm_eps, n, y + h * n);
  }
}

double gated_delta_cost(const swy_op& op, const swy_bucket& bucket) {
  const auto& a = attrs_of(op);
  return cost_of(4.0 * bucket.rows * a.value_heads * a.key_dim * a.value_dim);
}

constexpr swy::HostKernel kKernels[] = {
    {.name = "gated_delta.recurrent",
     .op = SWY_OP_GATED_DELTA,
     .cost = gated_delta_cost,
     .run = gated_delta,
     .workspace = gated_delta_workspace,
     .op_revision = 2},
    {.name = "causal_conv.plain", .op = SWY_OP_CAUSAL_CONV, .cost = generic_cost, .run = causal_conv},
    {.name = "delta_gates.plain", .op = SWY_OP_DELTA_GATES, .cost = generic_cost, .run = delta_gates},
    {.name = "delta_rule.recurrent",
     .op = SWY_OP_DELTA_RULE,
     .cost = gated_delta_cost,
     .run = delta_rule,
     .workspace = delta_rule_workspace},
};

}  // namespace

std::span<const swy::HostKernel> gated_delta_kernels() { return kKernels; }

}  // namespace reference
