// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "plugins_api/check/naive.h"
#include "plugins_api/check/naive/rms_norm.h"

namespace switchyard::check::naive {
namespace {

using Numbers = std::vector<double>;

struct Shape {
  uint64_t key_heads, value_heads, key_dim, value_dim, kernel;
  uint64_t keys, values, channels;
  explicit Shape(const swy_gated_delta_attrs& a)
      : key_heads(a.key_heads),
        value_heads(a.value_heads),
        key_dim(a.key_dim),
        value_dim(a.value_dim),
        kernel(a.conv_kernel),
        keys(key_heads * key_dim),
        values(value_heads * value_dim),
        channels(2 * keys + values) {}
};

// The rows of an active sequence that are computed: first those of an earlier step that stand, then the step's own.
// The states get the first `applied` of them.
struct Run {
  const Sequence* sequence;
  uint64_t first, rows, applied;  // first: among all runs' rows
};

// Runs of a step, without rows of earlier steps. Rows of inactive sequences are not checked, and belong to no run.
std::vector<Run> runs_of(const Step& step) {
  std::vector<Run> out;
  uint64_t first = 0;
  for (const Sequence& q : step.seqs) {
    if (q.active && q.rows > 0) out.push_back({&q, first, q.rows, q.rows});
    first += q.rows;
  }
  return out;
}

// silu of the causal convolution of x [rows, channels].
Numbers convolved(const Shape& s, const std::vector<Run>& runs, const Weight& w, const std::vector<float>& x,
                  Numbers& state) {
  Numbers y(x.size());
  const uint64_t keep = s.kernel - 1;
  for (const Run& run : runs) {
    const Sequence& q = *run.sequence;
    for (uint64_t c = 0; c < s.channels; ++c) {
      Numbers line(keep, 0.0);  // the inputs so far
      for (uint64_t j = 0; j < keep && q.position > 0; ++j) line[j] = state[(q.read_slot * s.channels + c) * keep + j];
      for (uint64_t r = run.first; r < run.first + run.rows; ++r) line.push_back(x[r * s.channels + c]);
      for (uint64_t r = 0; r < run.rows; ++r) {
        double sum = 0;
        for (uint64_t j = 0; j < s.kernel; ++j) sum += w.at(c, j) * line[r + j];
        y[(run.first + r) * s.channels + c] = silu(sum);
      }
      for (uint64_t j = 0; j < keep; ++j) state[(q.write_slot * s.channels + c) * keep + j] = line[run.applied + j];
    }
  }
  return y;
}

struct Gates {
  Numbers beta, g;
};

Gates gates_of(const Shape& s, const std::vector<float>& b, const std::vector<float>& a, const Weight& a_log,
               const Weight& dt_bias) {
  Gates out;
  for (size_t i = 0; i < b.size(); ++i) {
    const uint64_t h = i % s.value_heads;
    const double t = a[i] + dt_bias[h];
    out.beta.push_back(sigmoid(b[i]));
    out.g.push_back(-std::exp(a_log[h]) * (std::max(t, 0.0) + std::log1p(std::exp(-std::fabs(t)))));
  }
  return out;
}

Numbers unit_vector(const double* x, uint64_t n, double eps, double scale) {
  double squares = 0;
  for (uint64_t i = 0; i < n; ++i) squares += x[i] * x[i];
  Numbers y(n);
  for (uint64_t i = 0; i < n; ++i) y[i] = x[i] * scale / std::sqrt(squares + eps);
  return y;
}

// One token: S *= exp(g); d = beta (v - S^T k); S += k d^T; returns S^T q. S [key_dim, value_dim].
Numbers token(Numbers& S, const Numbers& q, const Numbers& k, const double* v, double g, double beta) {
  const uint64_t n = S.size() / k.size();
  for (double& x : S) x *= std::exp(g);
  Numbers d(v, v + n), o(n, 0.0);
  for (uint64_t i = 0; i < k.size(); ++i) {
    for (uint64_t j = 0; j < n; ++j) d[j] -= S[i * n + j] * k[i];
  }
  for (uint64_t i = 0; i < k.size(); ++i) {
    for (uint64_t j = 0; j < n; ++j) {
      S[i * n + j] += k[i] * beta * d[j];
      o[j] += S[i * n + j] * q[i];
    }
  }
  return o;
}

// o [rows, values] of mixed [rows, channels].
Numbers ruled(const Shape& s, double l2_eps, const std::vector<Run>& runs, const Numbers& mixed, const Gates& gates,
              Numbers& state) {
  Numbers y(mixed.size() / s.channels * s.values);
  const uint64_t unit = s.key_dim * s.value_dim;
  for (const Run& run : runs) {
    const Sequence& q = *run.sequence;
    for (uint64_t h = 0; h < s.value_heads; ++h) {
      Numbers S(unit, 0.0);
      const auto slot = [&](uint64_t n) {
        return state.begin() + static_cast<ptrdiff_t>((n * s.value_heads + h) * unit);
      };
      if (q.position > 0) std::copy_n(slot(q.read_slot), unit, S.begin());
      Numbers applied = S;
      const uint64_t key_head = h / (s.value_heads / s.key_heads);
      for (uint64_t r = 0; r < run.rows; ++r) {
        const double* row = &mixed[(run.first + r) * s.channels];
        const Numbers query =
            unit_vector(row + key_head * s.key_dim, s.key_dim, l2_eps, 1 / std::sqrt(static_cast<double>(s.key_dim)));
        const Numbers key = unit_vector(row + s.keys + key_head * s.key_dim, s.key_dim, l2_eps, 1);
        const uint64_t i = (run.first + r) * s.value_heads + h;
        const Numbers o = token(S, query, key, row + 2 * s.keys + h * s.value_dim, gates.g[i], gates.beta[i]);
        std::copy(o.begin(), o.end(), y.begin() + static_cast<ptrdiff_t>(i * s.value_dim));
        if (r + 1 == run.applied) applied = S;
      }
      std::copy_n(applied.begin(), unit, slot(q.write_slot));
    }
  }
  return y;
}

Numbers wide(const std::vector<float>& x) { return {x.begin(), x.end()}; }

// The inputs of GATED_DELTA's runs: rows that stand, from the pending state, before the step's own. What the naive form
// keeps of a pending row is its qkv, b and a.
struct Rows {
  std::vector<Run> runs;
  std::vector<float> qkv, b, a;

  Rows(const Case& c, const Shape& s, const Step& step, const Outcome& all) : step_(step) {
    for (const Sequence& q : step.seqs) {
      if (!q.active || q.rows == 0) continue;
      const uint64_t first = b.size() / s.value_heads;
      for (uint32_t r = 0; r < q.kept; ++r) {
        const double* at = &all.states[kPending][place(c, s, q.read_slot, r)];
        append(s, [&](uint64_t i) { return static_cast<float>(at[i]); });
      }
      for (uint64_t r = in_step(q); r < in_step(q) + q.rows; ++r) {
        append(s, [&](uint64_t i) {
          using Op = swy::Operands<SWY_OP_GATED_DELTA>;
          if (i < s.channels) return step.inputs[Op::input("qkv")].floats[r * s.channels + i];
          i -= s.channels;
          const uint32_t input = i < s.value_heads ? Op::input("b") : Op::input("a");
          return step.inputs[input].floats[r * s.value_heads + i % s.value_heads];
        });
      }
      runs.push_back({&q, first, q.kept + q.rows, q.kept + (q.pending ? 0 : q.rows)});
    }
  }

  uint64_t in_step(const Sequence& q) const {
    uint64_t first = 0;
    for (const Sequence* p = step_.seqs.data(); p != &q; ++p) first += p->rows;
    return first;
  }

  // Keeps the rows that stay pending, in place of those that were.
  void leave(const Case& c, const Shape& s, Outcome& all) const {
    for (const Run& run : runs) {
      for (uint64_t r = 0; r < run.rows - run.applied; ++r) {
        double* to = &all.states[kPending][place(c, s, run.sequence->write_slot, r)];
        const uint64_t from = run.first + run.applied + r;
        std::copy_n(&qkv[from * s.channels], s.channels, to);
        std::copy_n(&b[from * s.value_heads], s.value_heads, to + s.channels);
        std::copy_n(&a[from * s.value_heads], s.value_heads, to + s.channels + s.value_heads);
      }
    }
  }

 private:
  static constexpr uint32_t kPending = swy::Operands<SWY_OP_GATED_DELTA>::state("pending");
  static uint64_t place(const Case& c, const Shape& s, uint64_t slot, uint64_t row) {
    return slot * c.states[kPending].unit + row * (s.channels + 2 * s.value_heads);
  }
  void append(const Shape& s, const auto& element) {
    for (uint64_t i = 0; i < s.channels + 2 * s.value_heads; ++i) {
      (i < s.channels ? qkv : i < s.channels + s.value_heads ? b : a).push_back(element(i));
    }
  }

  const Step& step_;
};

}  // namespace

void causal_conv(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs) {
  const Shape s(c.attributes<swy_gated_delta_attrs>());
  using Op = swy::Operands<SWY_OP_CAUSAL_CONV>;
  outputs[Op::output("y")].values = convolved(s, runs_of(step), c.weights[Op::weight("conv")],
                                              step.inputs[Op::input("x")].floats, all.states[Op::state("conv_state")]);
}

void delta_gates(const Case& c, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  const Shape s(c.attributes<swy_gated_delta_attrs>());
  using Op = swy::Operands<SWY_OP_DELTA_GATES>;
  Gates g = gates_of(s, step.inputs[Op::input("b")].floats, step.inputs[Op::input("a")].floats,
                     c.weights[Op::weight("a_log")], c.weights[Op::weight("dt_bias")]);
  outputs[Op::output("beta")].values = std::move(g.beta);
  outputs[Op::output("g")].values = std::move(g.g);
}

void delta_rule(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs) {
  const auto a = c.attributes<swy_gated_delta_attrs>();
  using Op = swy::Operands<SWY_OP_DELTA_RULE>;
  const Gates gates{wide(step.inputs[Op::input("beta")].floats), wide(step.inputs[Op::input("g")].floats)};
  outputs[Op::output("y")].values = ruled(Shape(a), a.l2_eps, runs_of(step), wide(step.inputs[Op::input("qkv")].floats),
                                          gates, all.states[Op::state("delta_state")]);
}

void gated_delta(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs) {
  const auto a = c.attributes<swy_gated_delta_attrs>();
  const Shape s(a);
  using Op = swy::Operands<SWY_OP_GATED_DELTA>;
  const Rows rows(c, s, step, all);
  const Numbers mixed =
      convolved(s, rows.runs, c.weights[Op::weight("conv")], rows.qkv, all.states[Op::state("conv_state")]);
  const Gates gates = gates_of(s, rows.b, rows.a, c.weights[Op::weight("a_log")], c.weights[Op::weight("dt_bias")]);
  const Numbers o = ruled(s, a.l2_eps, rows.runs, mixed, gates, all.states[Op::state("delta_state")]);
  rows.leave(c, s, all);
  const Weight& norm = c.weights[Op::weight("norm")];
  const std::vector<float>& z = step.inputs[Op::input("z")].floats;
  std::vector<double>& out = outputs[Op::output("y")].values;
  for (const Run& run : rows.runs) {
    const uint64_t kept = run.rows - run.sequence->rows;
    for (uint64_t r = 0; r < run.sequence->rows; ++r) {
      for (uint64_t h = 0; h < s.value_heads; ++h) {
        const uint64_t from = ((run.first + kept + r) * s.value_heads + h) * s.value_dim;
        const uint64_t at = ((rows.in_step(*run.sequence) + r) * s.value_heads + h) * s.value_dim;
        const Numbers y = normed(&o[from], s.value_dim, a.norm_eps);
        for (uint64_t i = 0; i < s.value_dim; ++i) out[at + i] = y[i] * norm[i] * silu(z[at + i]);
      }
    }
  }
}

}  // namespace switchyard::check::naive
