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

// Calls f(sequence, first row) for active sequences; rows of the others are not checked.
template <class F>
void each_active(const Step& step, F f) {
  uint64_t first = 0;
  for (const Sequence& q : step.seqs) {
    if (q.active && q.rows > 0) f(q, first);
    first += q.rows;
  }
}

// silu of the causal convolution of x [rows, channels].
Numbers convolved(const Shape& s, const Step& step, const Weight& w, const std::vector<float>& x, Numbers& state) {
  Numbers y(x.size());
  const uint64_t keep = s.kernel - 1;
  each_active(step, [&](const Sequence& q, uint64_t first) {
    for (uint64_t c = 0; c < s.channels; ++c) {
      Numbers line(keep, 0.0);  // the inputs so far
      for (uint64_t j = 0; j < keep && q.position > 0; ++j) line[j] = state[(q.read_slot * s.channels + c) * keep + j];
      for (uint64_t r = first; r < first + q.rows; ++r) line.push_back(x[r * s.channels + c]);
      for (uint64_t r = 0; r < q.rows; ++r) {
        double sum = 0;
        for (uint64_t j = 0; j < s.kernel; ++j) sum += w.at(c, j) * line[r + j];
        y[(first + r) * s.channels + c] = silu(sum);
      }
      for (uint64_t j = 0; j < keep; ++j) state[(q.write_slot * s.channels + c) * keep + j] = line[q.rows + j];
    }
  });
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
Numbers ruled(const Shape& s, double l2_eps, const Step& step, const Numbers& mixed, const Gates& gates,
              Numbers& state) {
  Numbers y(step.rows() * s.values);
  const uint64_t unit = s.key_dim * s.value_dim;
  each_active(step, [&](const Sequence& q, uint64_t first) {
    for (uint64_t h = 0; h < s.value_heads; ++h) {
      Numbers S(unit, 0.0);
      const auto slot = [&](uint64_t n) {
        return state.begin() + static_cast<ptrdiff_t>((n * s.value_heads + h) * unit);
      };
      if (q.position > 0) std::copy_n(slot(q.read_slot), unit, S.begin());
      const uint64_t key_head = h / (s.value_heads / s.key_heads);
      for (uint64_t r = first; r < first + q.rows; ++r) {
        const double* row = &mixed[r * s.channels];
        const Numbers query =
            unit_vector(row + key_head * s.key_dim, s.key_dim, l2_eps, 1 / std::sqrt(static_cast<double>(s.key_dim)));
        const Numbers key = unit_vector(row + s.keys + key_head * s.key_dim, s.key_dim, l2_eps, 1);
        const uint64_t i = r * s.value_heads + h;
        const Numbers o = token(S, query, key, row + 2 * s.keys + h * s.value_dim, gates.g[i], gates.beta[i]);
        std::copy(o.begin(), o.end(), y.begin() + static_cast<ptrdiff_t>(i * s.value_dim));
      }
      std::copy_n(S.begin(), unit, slot(q.write_slot));
    }
  });
  return y;
}

Numbers wide(const std::vector<float>& x) { return {x.begin(), x.end()}; }

}  // namespace

void causal_conv(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs) {
  const Shape s(c.attributes<swy_gated_delta_attrs>());
  using Op = swy::Operands<SWY_OP_CAUSAL_CONV>;
  outputs[Op::output("y")].values = convolved(s, step, c.weights[Op::weight("conv")],
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
  outputs[Op::output("y")].values = ruled(Shape(a), a.l2_eps, step, wide(step.inputs[Op::input("qkv")].floats), gates,
                                          all.states[Op::state("delta_state")]);
}

void gated_delta(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs) {
  const auto a = c.attributes<swy_gated_delta_attrs>();
  const Shape s(a);
  using Op = swy::Operands<SWY_OP_GATED_DELTA>;
  const Numbers mixed = convolved(s, step, c.weights[Op::weight("conv")], step.inputs[Op::input("qkv")].floats,
                                  all.states[Op::state("conv_state")]);
  const Gates gates = gates_of(s, step.inputs[Op::input("b")].floats, step.inputs[Op::input("a")].floats,
                               c.weights[Op::weight("a_log")], c.weights[Op::weight("dt_bias")]);
  const Numbers o = ruled(s, a.l2_eps, step, mixed, gates, all.states[Op::state("delta_state")]);
  const Weight& norm = c.weights[Op::weight("norm")];
  const std::vector<float>& z = step.inputs[Op::input("z")].floats;
  std::vector<double>& out = outputs[Op::output("y")].values;
  for (uint64_t at = 0; at < o.size(); at += s.value_dim) {
    const Numbers y = normed(&o[at], s.value_dim, a.norm_eps);
    for (uint64_t i = 0; i < s.value_dim; ++i) {
      out[at + i] = y[i] * norm[i] * silu(z[at + i]);
    }
  }
}

}  // namespace switchyard::check::naive
