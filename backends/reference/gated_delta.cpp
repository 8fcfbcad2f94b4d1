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

// One sequence of the step: its rows and its slots.
struct Sequence {
  uint32_t first, last;
  uint32_t read_slot, write_slot;
  bool active, fresh;  // fresh: begins at position 0, so that the state is zeros
};

Sequence sequence(const swy_step* step, uint32_t s) {
  const uint32_t* start = SWY_STEP_ARRAY(step, uint32_t, row_start_at);
  const uint32_t* positions = SWY_STEP_ARRAY(step, uint32_t, row_position_at);
  return {start[s],
          start[s + 1],
          SWY_STEP_ARRAY(step, uint32_t, seq_read_slot_at)[s],
          SWY_STEP_ARRAY(step, uint32_t, seq_write_slot_at)[s],
          SWY_STEP_ARRAY(step, uint32_t, seq_active_at)[s] != 0,
          start[s] < start[s + 1] && positions[start[s]] == 0};
}

// silu(conv(x)) of one channel of one sequence; the state keeps the last kernel - 1 inputs, oldest first.
void conv_channel(const Sequence& q, const Weight& w, uint64_t c, uint64_t channels, uint32_t kernel, const float* x,
                  const float* before, float* after, float* y) {
  const uint32_t keep = kernel - 1;
  const auto input = [&](int64_t row) {  // row of the sequence; negative: from the state
    if (row >= 0) return x[(q.first + static_cast<uint64_t>(row)) * channels + c];
    return q.fresh ? 0.0f : before[static_cast<int64_t>(keep) + row];
  };
  const int64_t rows = q.last - q.first;
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (uint32_t j = 0; j < kernel; ++j) sum += w.at(c * kernel + j) * input(r - keep + j);
    y[(q.first + static_cast<uint64_t>(r)) * channels + c] = static_cast<float>(silu(sum));
  }
  if (!q.active) return;
  for (uint32_t j = 0; j < keep; ++j) after[j] = input(rows - keep + j);  // oldest first: reads stay ahead of writes
}

// All channels, split over the team; for every sequence.
void conv(const swy::Call& call, const swy_gated_delta_attrs& a, const Weight& w, const float* x, float* state,
          float* y) {
  const uint64_t channels = channels_of(a), keep = a.conv_kernel - 1;
  const auto [first, last] = call.split(channels);
  for (uint32_t s = 0; s < call.step->seqs; ++s) {
    const Sequence q = sequence(call.step, s);
    if (q.first == q.last) continue;
    for (uint64_t c = first; c < last; ++c) {
      conv_channel(q, w, c, channels, a.conv_kernel, x, state + (q.read_slot * channels + c) * keep,
                   state + (q.write_slot * channels + c) * keep, y);
    }
  }
}

void causal_conv(const swy::Call& call) {
  conv(call, call.attrs<swy_gated_delta_attrs>(), Weight(call, "conv"), call.input("x"), call.state("conv_state"),
       call.output("y"));
}

// beta = sigmoid(b); g = -exp(a_log) * softplus(a + dt_bias). Over [rows, value_heads].
void gates(const swy::Call& call, const float* b, const float* a, const Weight& a_log, const Weight& dt_bias,
           uint64_t heads, float* beta, float* g) {
  const auto [first, last] = call.split(call.step->rows * heads);
  for (uint64_t i = first; i < last; ++i) {
    const double t = a[i] + dt_bias.at(i % heads);
    const double softplus = t > 30 ? t : std::log1p(std::exp(t));
    beta[i] = static_cast<float>(sigmoid(b[i]));
    g[i] = static_cast<float>(-std::exp(a_log.at(i % heads)) * softplus);
  }
}

void delta_gates(const swy::Call& call) {
  gates(call, call.input("b"), call.input("a"), Weight(call, "a_log"), Weight(call, "dt_bias"),
        call.attrs<swy_gated_delta_attrs>().value_heads, call.output("beta"), call.output("g"));
}

// One token of one head. S [key_dim, value_dim]; q, k normalised, fp64; `d` and `o` are scratch [value_dim].
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
  for (uint32_t j = 0; j < value_dim; ++j) out[j] = static_cast<float>(o[j]);
}

void l2_normalise(const float* x, uint32_t n, double eps, double scale, double* y) {
  const double factor = scale / std::sqrt(dot(x, x, n) + eps);
  for (uint32_t i = 0; i < n; ++i) y[i] = x[i] * factor;
}

uint64_t rule_scratch_floats(const swy_gated_delta_attrs& a) { return 4 * (uint64_t{a.key_dim} + a.value_dim); }

// All heads of all sequences, split over the team. mixed [rows, channels], beta and g [rows, value_heads].
void rule(const swy::Call& call, const swy_gated_delta_attrs& a, const float* mixed, const float* beta, const float* g,
          float* state, float* y) {
  auto* q = reinterpret_cast<double*>(scratch(call, rule_scratch_floats(a)));
  double* k = q + a.key_dim;
  double* d = k + a.key_dim;
  double* o = d + a.value_dim;
  const uint64_t channels = channels_of(a), keys = uint64_t{a.key_heads} * a.key_dim;
  const uint64_t unit = uint64_t{a.key_dim} * a.value_dim;
  const uint32_t ratio = a.value_heads / a.key_heads;
  const auto [first, last] = call.split(uint64_t{call.step->seqs} * a.value_heads);
  for (uint64_t item = first; item < last; ++item) {
    const Sequence seq = sequence(call.step, static_cast<uint32_t>(item / a.value_heads));
    const uint64_t h = item % a.value_heads;
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
    for (uint64_t r = seq.first; r < seq.last; ++r) {
      const float* row = mixed + r * channels;
      l2_normalise(row + h / ratio * a.key_dim, a.key_dim, a.l2_eps, 1.0 / std::sqrt(double(a.key_dim)), q);
      l2_normalise(row + keys + h / ratio * a.key_dim, a.key_dim, a.l2_eps, 1.0, k);
      const uint64_t i = r * a.value_heads + h;
      delta_token(S, q, k, row + 2 * keys + h * a.value_dim, std::exp(static_cast<double>(g[i])), beta[i], a.key_dim,
                  a.value_dim, d, o, y + i * a.value_dim);
    }
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

// Workspace of the composite: scratch, mixed [rows, channels], beta and g [rows, value_heads].
uint64_t gated_delta_workspace(const swy_op& op, const swy_bucket& bucket) {
  const auto& a = attrs_of(op);
  return delta_rule_workspace(op, bucket) + bucket.rows * (channels_of(a) + 2 * uint64_t{a.value_heads}) * 4;
}

void gated_delta(const swy::Call& call) {
  const auto& a = call.attrs<swy_gated_delta_attrs>();
  const uint64_t rows = call.step->rows, n = a.value_dim;
  auto* mixed = call.work<float>(scratch_bytes(rule_scratch_floats(a)));
  float* beta = mixed + rows * channels_of(a);
  float* g = beta + rows * a.value_heads;
  float* y = call.output("y");
  conv(call, a, Weight(call, "conv"), call.input("qkv"), call.state("conv_state"), mixed);
  gates(call, call.input("b"), call.input("a"), Weight(call, "a_log"), Weight(call, "dt_bias"), a.value_heads, beta, g);
  call.barrier();
  rule(call, a, mixed, beta, g, call.state("delta_state"), y);
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
     .workspace = gated_delta_workspace},
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
