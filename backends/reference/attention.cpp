// SPDX-License-Identifier: Apache-2.0
// ATTENTION and its pieces: HEAD_SPLIT, ROPE, KV_APPEND, ATTEND (HEAD_RMS_NORM is in rms_norm.cpp).
//
// The KV state holds per token [2 (k, v), kv_heads, head_dim] in fp32, in pages of page_size tokens.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "arithmetic.h"
#include "kernels.h"

namespace reference {
namespace {

// Where token `position` of a row's sequence lies in the KV state.
float* kv_at(const swy::Call& call, const swy_attention_attrs& a, float* kv, uint32_t seq, uint32_t position) {
  const swy_step& s = *call.step;
  const uint32_t* table = SWY_STEP_ARRAY(&s, uint32_t, block_table_at) + uint64_t{seq} * s.block_table_stride;
  const uint64_t token = uint64_t{table[position / s.page_size]} * s.page_size + position % s.page_size;
  return kv + token * 2 * a.kv_heads * a.head_dim;
}

// Half-split rotation of the first rotary_dim elements of a head, by a table of frequencies or by theta.
class Rotation {
 public:
  Rotation(const swy::Call& call, uint32_t head_dim, uint32_t rotary_dim, double theta, double scale)
      : inv_freq_(static_cast<const float*>(call.weight("inv_freq"))),
        head_dim_(head_dim),
        rotary_dim_(rotary_dim),
        theta_(theta),
        scale_(call.op->revision == 1 ? 1 : scale) {}

  // y may be x.
  void rotate(const float* x, uint32_t position, float* y) const {
    const uint32_t half = rotary_dim_ / 2;
    for (uint32_t i = 0; i < half; ++i) {
      const double angle = position * frequency(i);
      const double c = std::cos(angle) * scale_, s = std::sin(angle) * scale_;
      const double u = x[i], v = x[i + half];
      y[i] = static_cast<float>(u * c - v * s);
      y[i + half] = static_cast<float>(v * c + u * s);
    }
    for (uint32_t i = rotary_dim_; i < head_dim_; ++i) y[i] = x[i];
  }

 private:
  double frequency(uint32_t i) const {
    return inv_freq_ != nullptr ? inv_freq_[i] : std::pow(theta_, -2.0 * i / rotary_dim_);
  }

  const float* inv_freq_;  // [rotary_dim / 2]; NULL: theta^(-2 i / rotary_dim)
  uint32_t head_dim_, rotary_dim_;
  double theta_, scale_;
};

void head_split(const swy::Call& call) {
  const auto& a = call.attrs<swy_heads_attrs>();
  const float* x = call.input("x");
  float *one = call.output("first"), *two = call.output("second");
  const auto [first, last] = call.split(uint64_t{call.step->rows} * a.heads);
  for (uint64_t h = first; h < last; ++h) {
    std::memcpy(one + h * a.head_dim, x + h * 2 * a.head_dim, a.head_dim * 4);
    std::memcpy(two + h * a.head_dim, x + (h * 2 + 1) * a.head_dim, a.head_dim * 4);
  }
}

void rope(const swy::Call& call) {
  const auto& a = call.attrs<swy_heads_attrs>();
  const uint32_t* positions = SWY_STEP_ARRAY(call.step, uint32_t, row_position_at);
  const float* x = call.input("x");
  float* y = call.output("y");
  const Rotation rotation(call, a.head_dim, a.rotary_dim, a.rope_theta, a.rope_scale);
  const auto [first, last] = call.split(uint64_t{call.step->rows} * a.heads);
  for (uint64_t h = first; h < last; ++h) {
    rotation.rotate(x + h * a.head_dim, positions[h / a.heads], y + h * a.head_dim);
  }
}

void append(const swy::Call& call, const swy_attention_attrs& a, const float* k, const float* v) {
  const uint32_t* positions = SWY_STEP_ARRAY(call.step, uint32_t, row_position_at);
  const uint32_t* seqs = SWY_STEP_ARRAY(call.step, uint32_t, row_seq_at);
  const uint32_t* active = SWY_STEP_ARRAY(call.step, uint32_t, seq_active_at);
  const uint64_t width = uint64_t{a.kv_heads} * a.head_dim;
  auto* kv = call.state("kv");
  const auto [first, last] = call.split(call.step->rows);
  for (uint64_t r = first; r < last; ++r) {
    if (active[seqs[r]] == 0) continue;
    float* to = kv_at(call, a, kv, seqs[r], positions[r]);
    std::memcpy(to, k + r * width, width * 4);
    std::memcpy(to + width, v + r * width, width * 4);
  }
}

void kv_append(const swy::Call& call) {
  append(call, call.attrs<swy_attention_attrs>(), call.input("k"), call.input("v"));
}

// One query head [head_dim] over the positions up to its own that its window holds. `sink` is one more score, without a
// value; without one it is -inf.
void attend_head(const swy::Call& call, const swy_attention_attrs& a, float* kv, const float* q, uint32_t head,
                 uint32_t seq, uint32_t position, double sink, double* scores, double* sum, float* out) {
  const uint32_t begin = a.window != 0 && position >= a.window ? position - a.window + 1 : 0;
  const uint64_t k_offset = uint64_t{head / (a.heads / a.kv_heads)} * a.head_dim;
  const uint64_t v_offset = k_offset + uint64_t{a.kv_heads} * a.head_dim;
  double top = sink;
  for (uint32_t t = begin; t <= position; ++t) {
    scores[t] = dot(q, kv_at(call, a, kv, seq, t) + k_offset, a.head_dim) * a.scale;
    top = std::max(top, scores[t]);
  }
  double total = std::exp(sink - top);
  std::fill(sum, sum + a.head_dim, 0.0);
  for (uint32_t t = begin; t <= position; ++t) {
    const double p = std::exp(scores[t] - top);
    const float* v = kv_at(call, a, kv, seq, t) + v_offset;
    total += p;
    for (uint32_t i = 0; i < a.head_dim; ++i) sum[i] += p * v[i];
  }
  for (uint32_t i = 0; i < a.head_dim; ++i) out[i] = static_cast<float>(sum[i] / total);
}

// `work` holds scores and sums per member.
void attend_rows(const swy::Call& call, const swy_attention_attrs& a, const float* q, float* y, char* work,
                 uint64_t member_bytes) {
  const uint32_t* positions = SWY_STEP_ARRAY(call.step, uint32_t, row_position_at);
  const uint32_t* seqs = SWY_STEP_ARRAY(call.step, uint32_t, row_seq_at);
  const uint32_t* active = SWY_STEP_ARRAY(call.step, uint32_t, seq_active_at);
  auto* sum = reinterpret_cast<double*>(work + call.rank() * member_bytes);
  double* scores = sum + a.head_dim;
  auto* kv = call.state("kv");
  const auto sinks = optional_weight(call, "sinks");
  const auto [first, last] = call.split(uint64_t{call.step->rows} * a.heads);
  for (uint64_t i = first; i < last; ++i) {
    const uint64_t r = i / a.heads;
    const auto head = static_cast<uint32_t>(i % a.heads);
    float* out = y + i * a.head_dim;
    if (active[seqs[r]] == 0) {
      std::fill(out, out + a.head_dim, 0.0f);
    } else {
      attend_head(call, a, kv, q + i * a.head_dim, head, seqs[r], positions[r], sinks ? sinks->at(head) : -INFINITY,
                  scores, sum, out);
    }
  }
}

// Scratch of one member: the sum over the values, then a score per position of the context, in fp64.
uint64_t member_bytes(const swy_attention_attrs& a, uint64_t context) {
  return swy_align64((context + a.head_dim) * sizeof(double));
}

uint64_t attend_workspace(const swy_op& op, const swy_bucket& bucket) {
  return member_bytes(swy_attention_of(&op), bucket.context) * swy::team_width;
}

void attend(const swy::Call& call) {
  const swy_attention_attrs a = swy_attention_of(call.op);
  attend_rows(call, a, call.input("q"), call.output("y"), call.work<char>(0), member_bytes(a, call.step->max_context));
}

// Workspace of the composite: q, gate, k [rows, heads * head_dim] each, then ATTEND's.
uint64_t attention_workspace(const swy_op& op, const swy_bucket& bucket) {
  const swy_attention_attrs a = swy_attention_of(&op);
  return 3 * uint64_t{bucket.rows} * a.heads * a.head_dim * 4 + 64 + attend_workspace(op, bucket);
}

void attention(const swy::Call& call) {
  const swy_attention_attrs a = swy_attention_of(call.op);
  const uint32_t* positions = SWY_STEP_ARRAY(call.step, uint32_t, row_position_at);
  const auto q_norm = optional_weight(call, "q_norm"), k_norm = optional_weight(call, "k_norm");
  const Rotation rotation(call, a.head_dim, a.rotary_dim, a.rope_theta, a.rope_scale);
  const float *q_in = call.input("q"), *k_in = call.input("k");
  float* y = call.output("y");
  const uint64_t rows = call.step->rows, d = a.head_dim, width = a.heads * d;
  float* q = call.work<float>(0);
  float* gate = q + rows * width;
  float* k = gate + rows * width;
  const auto prepare = [&](const float* x, const std::optional<Weight>& norm, uint32_t position, float* out) {
    if (norm) rms_norm_row(x, *norm, a.norm_weight_bias, a.norm_eps, d, out);
    rotation.rotate(norm ? out : x, position, out);
  };
  const auto [first_q, last_q] = call.split(rows * a.heads);
  for (uint64_t h = first_q; h < last_q; ++h) {
    const float* x = q_in + h * d * (a.gated != 0 ? 2 : 1);
    prepare(x, q_norm, positions[h / a.heads], q + h * d);
    if (a.gated != 0) std::memcpy(gate + h * d, x + d, d * 4);
  }
  const auto [first_k, last_k] = call.split(rows * a.kv_heads);
  for (uint64_t h = first_k; h < last_k; ++h) {
    prepare(k_in + h * d, k_norm, positions[h / a.kv_heads], k + h * d);
  }
  call.barrier();
  append(call, a, k, call.input("v"));
  call.barrier();
  const uint64_t work_at = swy_align64(3 * rows * width * 4);
  attend_rows(call, a, q, y, call.work<char>(work_at), member_bytes(a, call.step->max_context));
  if (a.gated == 0) return;
  const auto [first, last] = call.split(rows * a.heads);  // the same heads as attend_rows gave this member
  for (uint64_t i = first * d; i < last * d; ++i) {
    y[i] = static_cast<float>(y[i] * sigmoid(gate[i]));
  }
}

double attention_cost(const swy_op& op, const swy_bucket& bucket) {
  const swy_attention_attrs a = swy_attention_of(&op);
  const uint32_t read = a.window == 0 ? bucket.context : std::min(a.window, bucket.context);
  return cost_of(2.0 * bucket.rows * read * a.heads * a.head_dim);
}

constexpr swy::HostKernel kKernels[] = {
    {.name = "attention.plain",
     .op = SWY_OP_ATTENTION,
     .cost = attention_cost,
     .run = attention,
     .workspace = attention_workspace,
     .op_revision = 2},
    {.name = "head_split.plain", .op = SWY_OP_HEAD_SPLIT, .cost = generic_cost, .run = head_split},
    {.name = "rope.plain", .op = SWY_OP_ROPE, .cost = generic_cost, .run = rope, .op_revision = 2},
    {.name = "kv_append.plain", .op = SWY_OP_KV_APPEND, .cost = generic_cost, .run = kv_append},
    {.name = "attend.plain",
     .op = SWY_OP_ATTEND,
     .cost = attention_cost,
     .run = attend,
     .workspace = attend_workspace,
     .op_revision = 2},
};

}  // namespace

std::span<const swy::HostKernel> attention_kernels() { return kKernels; }

}  // namespace reference
