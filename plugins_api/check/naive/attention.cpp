// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "plugins_api/check/naive.h"
#include "plugins_api/check/naive/rms_norm.h"

namespace switchyard::check::naive {
namespace {

using Numbers = std::vector<double>;

struct Row {
  const Sequence* seq;
  uint32_t position;
};

std::vector<Row> rows_of(const Step& step) {
  std::vector<Row> out;
  for (const Sequence& q : step.seqs) {
    for (uint32_t r = 0; r < q.rows; ++r) out.push_back({&q, q.position + r});
  }
  return out;
}

struct Rotation {
  uint32_t rotary;  // elements of a head
  double theta;
  const Weight* inv_freq;  // NULL: by theta
  double scale;
};

// Rotates the first elements of a head, i with i + rotary / 2.
void rotate(double* x, uint32_t position, const Rotation& r) {
  for (uint32_t i = 0; i < r.rotary / 2; ++i) {
    const double angle =
        r.inv_freq != nullptr ? position * (*r.inv_freq)[i] : position / std::pow(r.theta, 2.0 * i / r.rotary);
    const double u = x[i], v = x[i + r.rotary / 2];
    x[i] = r.scale * (u * std::cos(angle) - v * std::sin(angle));
    x[i + r.rotary / 2] = r.scale * (u * std::sin(angle) + v * std::cos(angle));
  }
}

// Element 0 of token `position` in the KV state: [2, kv_heads, head_dim] follow.
double* token_at(Numbers& state, const swy_attention_attrs& a, uint32_t page_size, const Sequence& q,
                 uint32_t position) {
  const uint64_t token = uint64_t{q.pages[position / page_size]} * page_size + position % page_size;
  return &state[token * 2 * a.kv_heads * a.head_dim];
}

void append(const Case& c, const swy_attention_attrs& a, const Step& step, const Numbers& k,
            const std::vector<float>& v, Numbers& state) {
  const uint64_t width = uint64_t{a.kv_heads} * a.head_dim;
  const std::vector<Row> rows = rows_of(step);
  for (uint64_t r = 0; r < rows.size(); ++r) {
    if (!rows[r].seq->active) continue;
    double* to = token_at(state, a, c.bucket.page_size, *rows[r].seq, rows[r].position);
    for (uint64_t i = 0; i < width; ++i) {
      to[i] = k[r * width + i];
      to[width + i] = v[r * width + i];
    }
  }
}

Numbers attended(const Case& c, const swy_attention_attrs& a, const Step& step, const Numbers& q, Numbers& state) {
  const uint64_t d = a.head_dim;
  Numbers y(q.size());
  const Weight* sinks = c.weight("sinks");
  const std::vector<Row> rows = rows_of(step);
  for (uint64_t r = 0; r < rows.size(); ++r) {
    if (!rows[r].seq->active) continue;
    for (uint64_t h = 0; h < a.heads; ++h) {
      const uint64_t kv = h / (a.heads / a.kv_heads) * d, at = (r * a.heads + h) * d;
      const uint32_t position = rows[r].position;
      const uint32_t first = a.window == 0 || a.window > position ? 0 : position + 1 - a.window;
      Numbers weights;
      double total = 0;
      for (uint32_t t = first; t <= position; ++t) {
        const double* k = token_at(state, a, c.bucket.page_size, *rows[r].seq, t) + kv;
        double score = 0;
        for (uint64_t i = 0; i < d; ++i) score += q[at + i] * k[i];
        weights.push_back(score * a.scale);
      }
      if (sinks != nullptr) weights.push_back((*sinks)[h]);  // the last one, without a value
      const double top = *std::max_element(weights.begin(), weights.end());
      for (double& w : weights) total += w = std::exp(w - top);
      for (uint32_t t = first; t <= position; ++t) {
        const double* v = token_at(state, a, c.bucket.page_size, *rows[r].seq, t) + a.kv_heads * d + kv;
        for (uint64_t i = 0; i < d; ++i) y[at + i] += weights[t - first] / total * v[i];
      }
    }
  }
  return y;
}

// Norm per head if there is one, then rotation, of x [rows, heads, stride] whose heads begin with head_dim elements.
Numbers prepared(const swy_attention_attrs& a, const Step& step, const std::vector<float>& x, uint64_t heads,
                 uint64_t stride, const Weight* norm, const Rotation& rotation) {
  Numbers out;
  const std::vector<Row> rows = rows_of(step);
  for (uint64_t h = 0; h < rows.size() * heads; ++h) {
    Numbers y(x.begin() + static_cast<ptrdiff_t>(h * stride),
              x.begin() + static_cast<ptrdiff_t>(h * stride + a.head_dim));
    if (norm != nullptr) y = normed(y.data(), a.head_dim, a.norm_eps);
    for (uint64_t i = 0; norm != nullptr && i < a.head_dim; ++i) y[i] *= a.norm_weight_bias + (*norm)[i];
    rotate(y.data(), rows[h / heads].position, rotation);
    out.insert(out.end(), y.begin(), y.end());
  }
  return out;
}

using Attention = swy::Operands<SWY_OP_ATTENTION>;
using KvAppend = swy::Operands<SWY_OP_KV_APPEND>;
using Attend = swy::Operands<SWY_OP_ATTEND>;
using Rope = swy::Operands<SWY_OP_ROPE>;
using HeadSplit = swy::Operands<SWY_OP_HEAD_SPLIT>;

swy_attention_attrs attrs_of(const Case& c) {
  const swy_op op = c.header();
  return swy_attention_of(&op);
}

Numbers wide(const std::vector<float>& x) { return {x.begin(), x.end()}; }

}  // namespace

void attention(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs) {
  const swy_attention_attrs a = attrs_of(c);
  const Rotation rotation{a.rotary_dim, a.rope_theta, c.weight("inv_freq"), a.rope_scale};
  const uint64_t d = a.head_dim, stride = a.gated != 0 ? 2 * d : d;
  const std::vector<float>& q_in = step.inputs[Attention::input("q")].floats;
  const Numbers k =
      prepared(a, step, step.inputs[Attention::input("k")].floats, a.kv_heads, d, c.weight("k_norm"), rotation);
  append(c, a, step, k, step.inputs[Attention::input("v")].floats, all.states[Attention::state("kv")]);
  const Numbers q = prepared(a, step, q_in, a.heads, stride, c.weight("q_norm"), rotation);
  Numbers y = attended(c, a, step, q, all.states[Attention::state("kv")]);
  for (uint64_t i = 0; a.gated != 0 && i < y.size(); ++i) {
    y[i] *= sigmoid(q_in[i / d * stride + d + i % d]);
  }
  outputs[Attention::output("y")].values = std::move(y);
}

void kv_append(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>&) {
  append(c, attrs_of(c), step, wide(step.inputs[KvAppend::input("k")].floats), step.inputs[KvAppend::input("v")].floats,
         all.states[KvAppend::state("kv")]);
}

void attend(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs) {
  outputs[Attend::output("y")].values =
      attended(c, attrs_of(c), step, wide(step.inputs[Attend::input("q")].floats), all.states[Attend::state("kv")]);
}

void rope(const Case& c, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  const auto a = c.attributes<swy_heads_attrs>();
  const Rotation rotation{a.rotary_dim, a.rope_theta, c.weight("inv_freq"), c.revision == 1 ? 1 : a.rope_scale};
  const std::vector<Row> rows = rows_of(step);
  std::vector<double>& y = outputs[Rope::output("y")].values;
  y = wide(step.inputs[Rope::input("x")].floats);
  for (uint64_t h = 0; h < rows.size() * a.heads; ++h) {
    rotate(&y[h * a.head_dim], rows[h / a.heads].position, rotation);
  }
}

void head_split(const Case& c, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  const uint64_t d = c.attributes<swy_heads_attrs>().head_dim;
  const std::vector<float>& x = step.inputs[HeadSplit::input("x")].floats;
  std::vector<double>&first = outputs[HeadSplit::output("first")].values,
  &second = outputs[HeadSplit::output("second")].values;
  for (uint64_t i = 0; i < first.size(); ++i) {
    first[i] = x[i / d * 2 * d + i % d];
    second[i] = x[i / d * 2 * d + d + i % d];
  }
}

}  // namespace switchyard::check::naive
