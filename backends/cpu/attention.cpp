// SPDX-License-Identifier: Apache-2.0
// ATTENTION: q/k norm, rotation, cache append, grouped-query softmax, output gate. ATTEND: the softmax alone.
//
// First every row's keys and values are written to the pages. Then the query heads of a row that share a KV head
// process the context in splits of 256 positions. Each split gives a maximum, a weight and a weighted sum; the splits
// of a row are merged in order. With few rows the splits are divided among the team and merged after a barrier; with
// many rows, one member does all splits of a row. Both give the same bits.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention.cpp"
#include "simd.h"
// after simd.h
#include <hwy/foreach_target.h>

#include <cmath>

#include "attention.h"
#include "attention_work.h"
#include "norm-inl.h"
#include "rope-inl.h"
#include "switchyard/sdk/error.hpp"

HWY_BEFORE_NAMESPACE();
namespace cpu {
namespace HWY_NAMESPACE {

// q of a row, normed, rotated and scaled; its k and v into the pages.
void prepare_row(const swy::Call& call, const swy_attention_attrs& a, const AttentionRows& work, uint64_t r) {
  const uint64_t hd = a.head_dim;
  const auto norm = [&](const float* x, uint32_t weight, float* y) {
    if (a.qk_norm != 0) {
      rms_norm_row(x, Plain(call, weight), a.norm_weight_bias, a.norm_eps, hd, y);
    } else {
      std::memcpy(y, x, hd * sizeof(float));
    }
  };
  const uint32_t position = SWY_STEP_ARRAY(call.step, uint32_t, row_position_at)[r];
  const RowRotation rotation(call, work.rotation);
  rotation.turn(position);
  const V scale = hn::Set(F(), a.scale);
  for (uint64_t h = 0; h < a.heads; ++h) {
    const float* x = call.input(kQueries) + (r * a.heads + h) * hd * (a.gated != 0 ? 2 : 1);
    float* q = work.q + (r * a.heads + h) * hd;
    norm(x, Attention::weight("q_norm"), q);
    rotation.head(q, q);
    each_vector(hd, [&](uint64_t i, uint64_t count) { store(hn::Mul(load(q + i, count), scale), q + i, count); });
  }
  const uint32_t seq = SWY_STEP_ARRAY(call.step, uint32_t, row_seq_at)[r];
  if (SWY_STEP_ARRAY(call.step, uint32_t, seq_active_at)[seq] == 0) return;
  const KvPages kv(call, a, seq);
  float* k = work.key + call.rank() * work.key_stride;
  for (uint64_t h = 0; h < a.kv_heads; ++h) {
    norm(call.input(Attention::input("k")) + (r * a.kv_heads + h) * hd, Attention::weight("k_norm"), k);
    rotation.head(k, k);
    kv.put(position, h, k, call.input(Attention::input("v")) + (r * a.kv_heads + h) * hd);
  }
}

// ATTEND's rows are normed and rotated, and its keys and values in the pages.
void scale_row(const swy::Call& call, const swy_attention_attrs& a, const AttentionRows& work, uint64_t r) {
  const uint64_t width = uint64_t{a.heads} * a.head_dim;
  const V scale = hn::Set(F(), a.scale);
  const float* x = call.input(kQueries) + r * width;
  float* q = work.q + r * width;
  each_vector(width, [&](uint64_t i, uint64_t count) { store(hn::Mul(load(x + i, count), scale), q + i, count); });
}

// scores [G, at ..] of G queries (rows of head_dim) against n keys of one page, n <= 2 vectors.
template <uint32_t G>
HWY_INLINE void score_block(const float* q, uint64_t hd, const float* keys, uint64_t page, uint64_t n, float* scores) {
  const F d;
  const uint64_t L = hn::Lanes(d), n0 = n < L ? n : L, n1 = n - n0;
  V s0[G], s1[G];
  for (uint32_t g = 0; g < G; ++g) s0[g] = s1[g] = hn::Zero(d);
  for (uint64_t i = 0; i < hd; ++i, keys += page) {
    const V k0 = load(keys, n0), k1 = n1 == 0 ? hn::Zero(d) : load(keys + L, n1);
    for (uint32_t g = 0; g < G; ++g) {
      const V x = hn::Set(d, q[g * hd + i]);
      s0[g] = hn::MulAdd(k0, x, s0[g]);
      s1[g] = hn::MulAdd(k1, x, s1[g]);
    }
  }
  for (uint32_t g = 0; g < G; ++g) {
    store(s0[g], scores + g * kSplit, n0);
    if (n1 != 0) store(s1[g], scores + g * kSplit + L, n1);
  }
}

// out [G, head_dim] += weights [G, n] * values [n, head_dim], for two vectors of columns from `column`.
template <uint32_t G>
HWY_INLINE void value_block(const float* weights, const float* values, uint64_t hd, uint64_t n, uint64_t column,
                            float* out) {
  const F d;
  const uint64_t L = hn::Lanes(d), left = hd - column, n0 = left < L ? left : L, n1 = left - n0 < L ? left - n0 : L;
  V o0[G], o1[G];
  for (uint32_t g = 0; g < G; ++g) {
    o0[g] = load(out + g * hd + column, n0);
    o1[g] = n1 == 0 ? hn::Zero(d) : load(out + g * hd + column + L, n1);
  }
  for (uint64_t t = 0; t < n; ++t) {
    const float* v = values + t * hd + column;
    const V v0 = load(v, n0), v1 = n1 == 0 ? hn::Zero(d) : load(v + L, n1);
    for (uint32_t g = 0; g < G; ++g) {
      const V p = hn::Set(d, weights[g * kSplit + t]);
      o0[g] = hn::MulAdd(p, v0, o0[g]);
      o1[g] = hn::MulAdd(p, v1, o1[g]);
    }
  }
  for (uint32_t g = 0; g < G; ++g) {
    store(o0[g], out + g * hd + column, n0);
    if (n1 != 0) store(o1[g], out + g * hd + column + L, n1);
  }
}

// Positions [begin, end) of one split for G queries: per query a maximum, a weight, and out [head_dim].
template <uint32_t G>
HWY_INLINE void split_block(const KvPages& kv, uint64_t head, const float* q, uint64_t begin, uint64_t end,
                            float* scores, float* top, float* total, float* out) {
  const F d;
  const uint64_t hd = kv.head_dim, L = hn::Lanes(d);
  for (uint64_t at = begin; at < end;) {
    const uint64_t in_page = at % kv.page, stop = at - in_page + kv.page < end ? at - in_page + kv.page : end;
    for (uint64_t t = at; t < stop; t += 2 * L) {
      const uint64_t n = stop - t < 2 * L ? stop - t : 2 * L;
      score_block<G>(q, hd, kv.keys(t, head) + t % kv.page, kv.page, n, scores + (t - begin));
    }
    at = stop;
  }
  for (uint32_t g = 0; g < G; ++g) {
    float* s = scores + g * kSplit;
    V most = hn::Set(d, s[0]);
    each_vector(end - begin, [&](uint64_t i, uint64_t count) {
      const V x = count == L ? hn::LoadU(d, s + i) : hn::IfThenElse(hn::FirstN(d, count), load(s + i, count), most);
      most = hn::Max(most, x);
    });
    top[g] = hn::GetLane(hn::MaxOfLanes(d, most));
    V sum = hn::Zero(d);
    each_vector(end - begin, [&](uint64_t i, uint64_t count) {
      const V p = exp(hn::Sub(load(s + i, count), hn::Set(d, top[g])));
      sum = hn::Add(sum, count == L ? p : hn::IfThenElseZero(hn::FirstN(d, count), p));
      store(p, s + i, count);
    });
    total[g] = sum_of(sum);
    each_vector(hd, [&](uint64_t i, uint64_t count) { store(hn::Zero(d), out + g * hd + i, count); });
  }
  for (uint64_t at = begin; at < end;) {
    const uint64_t in_page = at % kv.page, stop = at - in_page + kv.page < end ? at - in_page + kv.page : end;
    const float* values = kv.values(at, head) + in_page * hd;
    for (uint64_t c = 0; c < hd; c += 2 * L) value_block<G>(scores + (at - begin), values, hd, stop - at, c, out);
    at = stop;
  }
}

// One split of a row for all query heads of a KV head, into `part`.
void attend_split(const KvPages& kv, uint64_t head, uint32_t queries, const float* q, uint64_t begin, uint64_t end,
                  float* scores, const SplitResult& part) {
  uint32_t g = 0;
  for (; g + 4 <= queries; g += 4) {
    split_block<4>(kv, head, q + g * kv.head_dim, begin, end, scores, part.top + g, part.total + g,
                   part.out + g * kv.head_dim);
  }
  for (; g < queries; ++g) {
    split_block<1>(kv, head, q + g * kv.head_dim, begin, end, scores, part.top + g, part.total + g,
                   part.out + g * kv.head_dim);
  }
}

// into = the softmax over the positions of both.
void merge_split(const SplitResult& part, uint32_t queries, uint64_t hd, const SplitResult& into) {
  for (uint32_t g = 0; g < queries; ++g) {
    const float top = into.top[g] > part.top[g] ? into.top[g] : part.top[g];
    const float old_share = std::exp(into.top[g] - top), new_share = std::exp(part.top[g] - top);
    into.top[g] = top;
    into.total[g] = into.total[g] * old_share + part.total[g] * new_share;
    const V a = hn::Set(F(), old_share), b = hn::Set(F(), new_share);
    each_vector(hd, [&](uint64_t i, uint64_t count) {
      float* o = into.out + g * hd + i;
      store(hn::MulAdd(a, load(o, count), hn::Mul(b, load(part.out + g * hd + i, count))), o, count);
    });
  }
}

// y [queries, head_dim] = out / total, times the sigmoid of the gate; q rows in the input are [q | gate]. With a sink
// the total has one weight more.
void finish_row(const AttentionForm& form, uint64_t head, const SplitResult& from, uint32_t queries, uint64_t hd,
                const float* gates, float* y) {
  for (uint32_t g = 0; g < queries; ++g) {
    float share = 1.0f, total = from.total[g];
    if (form.sinks != nullptr) {
      const float sink = form.sink(head + g), top = sink > from.top[g] ? sink : from.top[g];
      share = std::exp(from.top[g] - top);
      total = total * share + std::exp(sink - top);
    }
    const V inverse = hn::Set(F(), share / total);
    each_vector(hd, [&](uint64_t i, uint64_t count) {
      V v = hn::Mul(load(from.out + g * hd + i, count), inverse);
      if (gates != nullptr) v = hn::Mul(v, sigmoid(load(gates + g * 2 * hd + i, count)));
      store(v, y + g * hd + i, count);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cpu {

AttentionForm::AttentionForm(const swy::Call& call)
    : a(swy_attention_of(call.op)), inv_freq(nullptr), sinks(nullptr), sinks_are_floats(false) {
  if (call.op->revision == 1) return;
  inv_freq = static_cast<const float*>(call.weight("inv_freq"));
  if (a.sinks == 0) return;
  sinks = call.weight("sinks");
  sinks_are_floats = swy::tensor(*call.op, "sinks").dtype == SWY_F32;
}

void prepare_attention(const swy::Call& call, const AttentionForm& form, const AttentionRows& work) {
  const bool whole = call.op->id == SWY_OP_ATTENTION;
  const auto row = whole ? CPU_BEST(prepare_row) : CPU_BEST(scale_row);
  const auto [first, last] = call.split(call.step->rows);
  if (whole && first < last) work.rotation.begin(call, form.a.rope_theta, form.inv_freq);
  for (uint64_t r = first; r < last; ++r) row(call, form.a, work, r);
}

void finish_attention(const swy::Call& call, const AttentionForm& form, uint64_t r, uint64_t h,
                      const SplitResult& from) {
  const swy_attention_attrs& a = form.a;
  const uint64_t queries = a.heads / a.kv_heads, hd = a.head_dim, first = r * a.heads + h * queries;
  const bool gated = call.op->id == SWY_OP_ATTENTION && a.gated != 0;
  const float* gates = gated ? call.input(kQueries) + first * 2 * hd + hd : nullptr;
  CPU_BEST(finish_row)
  (form, h * queries, from, static_cast<uint32_t>(queries), hd, gates, call.output(kAttended) + first * hd);
}

void silence_attention(const swy::Call& call, const swy_attention_attrs& a, uint64_t r, uint64_t h) {
  const uint64_t width = a.heads / a.kv_heads * a.head_dim;
  std::fill_n(call.output(kAttended) + r * a.heads * a.head_dim + h * width, width, 0.0f);
}

namespace {

// Layout of the workspace; `rows` and `context` are the bucket's.
uint64_t splits_of(const swy_attention_attrs& a, uint64_t context) {
  const uint64_t all = (context + kSplit - 1) / kSplit;
  return a.window == 0 ? all : std::min(all, (uint64_t{a.window} + kSplit - 2) / kSplit + 1);
}
bool spread(uint64_t rows, const swy_attention_attrs& a) { return rows * a.kv_heads < 4 * uint64_t{swy::team_width}; }

uint64_t attention_workspace(const swy_op& op, const swy_bucket& bucket) {
  Arena arena(nullptr);
  AttentionWork(arena, swy_attention_of(&op), op.inputs[kQueries]->dims[0], bucket.context);
  return arena.used();
}

// The splits of one row: `first` is aligned, and the row reads from `begin` to its own position.
struct RowSplits {
  uint64_t first, begin, end, count;
  RowSplits(const swy_attention_attrs& a, uint64_t position) : begin(first_read(a, position)), end(position + 1) {
    first = begin / kSplit * kSplit;
    count = (end - first + kSplit - 1) / kSplit;
  }
  std::pair<uint64_t, uint64_t> at(uint64_t s) const {
    return {std::max(begin, first + s * kSplit), std::min(end, first + (s + 1) * kSplit)};
  }
};

void attention(const swy::Call& call) {
  const AttentionForm form(call);
  const swy_attention_attrs& a = form.a;
  const swy_step& step = *call.step;
  const uint32_t* positions = SWY_STEP_ARRAY(&step, uint32_t, row_position_at);
  const uint32_t* seqs = SWY_STEP_ARRAY(&step, uint32_t, row_seq_at);
  const uint32_t* active = SWY_STEP_ARRAY(&step, uint32_t, seq_active_at);
  const uint32_t queries = a.heads / a.kv_heads;
  const uint64_t hd = a.head_dim;
  Arena arena(call.workspace);
  const AttentionWork work(arena, a, call.op->inputs[kQueries]->dims[0], step.max_context);
  prepare_attention(call, form, work.rows);
  call.barrier();

  const auto attend = CPU_BEST(attend_split);
  const auto merge = CPU_BEST(merge_split);
  float* scores = work.scores + call.rank() * work.score_stride;
  const auto run_split = [&](uint64_t r, uint64_t h, uint64_t s, const SplitResult& part) {
    const auto [begin, end] = RowSplits(a, positions[r]).at(s);
    attend(KvPages(call, a, seqs[r]), h, queries, work.rows.q + (r * a.heads + h * queries) * hd, begin, end, scores,
           part);
  };
  const uint64_t units = step.rows * a.kv_heads, splits = work.splits;
  if (work.spread) {
    for (uint64_t u = call.rank(); u < units * splits; u += call.members()) {
      const uint64_t r = u / splits / a.kv_heads, h = u / splits % a.kv_heads, s = u % splits;
      if (active[seqs[r]] != 0 && s < RowSplits(a, positions[r]).count) run_split(r, h, s, work.part(u));
    }
    call.barrier();
  }
  // Not spread, a member has room for two splits: what it has of a row, and the next one.
  const SplitResult own = work.part(work.spread ? 0 : 2 * call.rank()), next = work.part(2 * call.rank() + 1);
  for (uint64_t u = call.rank(); u < units; u += call.members()) {
    const uint64_t r = u / a.kv_heads, h = u % a.kv_heads;
    if (active[seqs[r]] == 0) {
      silence_attention(call, a, r, h);
      continue;
    }
    const SplitResult into = work.spread ? work.part(u * splits) : own;
    if (!work.spread) run_split(r, h, 0, into);
    for (uint64_t s = 1; s < RowSplits(a, positions[r]).count; ++s) {
      if (!work.spread) run_split(r, h, s, next);
      merge(work.spread ? work.part(u * splits + s) : next, queries, hd, into);
    }
    finish_attention(call, form, r, h, into);
  }
}

swy_status supports_tiles(const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  if (const swy_status s = kv_supported(op, bucket, error); s != SWY_OK) return s;
  if (const uint32_t hd = swy_attention_of(&op).head_dim; hd % 32 != 0) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "a head of %u is no multiple of 32", hd);
  }
  return mode_usable(Mode::tiles_bf16, false, error);
}

// Positions that `rows` neighbours read at most.
double positions_read(const swy_attention_attrs& a, const swy_bucket& bucket, double rows) {
  return a.window == 0 ? bucket.context : std::min<double>(bucket.context, a.window + rows - 1);
}

double attention_cost(const swy_op& op, const swy_bucket& bucket) {
  const swy_attention_attrs a = swy_attention_of(&op);
  return cost_of(2.0 * bucket.rows * positions_read(a, bucket, 1) * a.heads * a.head_dim);
}

// A block of rows converts the keys and values of its context into tiles, however few its rows are, and is not divided
// among the team. This is counted as 256 products per key and value.
double tiles_cost(const swy_op& op, const swy_bucket& bucket) {
  const swy_attention_attrs a = swy_attention_of(&op);
  const double blocks = std::max(std::ceil(bucket.rows / 64.0), 1.0 * bucket.seqs);
  const double context = positions_read(a, bucket, std::min(bucket.rows, 64u));
  return 1.0 + 2.0 * context * a.head_dim * (blocks * a.kv_heads * 256 + 1.0 * bucket.rows * a.heads) / 400e3;
}

constexpr swy::HostKernel flash(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .cost = attention_cost,
          .run = attention,
          .workspace = attention_workspace,
          .supports = kv_supported,
          .op_revision = 2};
}
constexpr swy::HostKernel tiles(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .flags = flags_of(Mode::tiles_bf16),
          .cost = tiles_cost,
          .run = attention_tiles,
          .workspace = attention_tiles_workspace,
          .supports = supports_tiles,
          .activations = SWY_BF16,
          .op_revision = 2};
}
constexpr swy::HostKernel kKernels[] = {
    flash("attention.flash", SWY_OP_ATTENTION),
    tiles("attention.tiles_bf16", SWY_OP_ATTENTION),
    flash("attend.flash", SWY_OP_ATTEND),
    tiles("attend.tiles_bf16", SWY_OP_ATTEND),
};

}  // namespace

AttentionRows::AttentionRows(Arena& arena, const swy_attention_attrs& a, uint64_t rows)
    : q(arena.take<float>(rows * a.heads * a.head_dim)),
      rotation(arena, a.rotary_dim, a.rope_scale),
      key_stride((uint64_t{a.head_dim} + 15) / 16 * 16) {
  key = arena.take<float>(swy::team_width * key_stride);
}

AttentionWork::AttentionWork(Arena& arena, const swy_attention_attrs& a, uint64_t row_count, uint64_t context)
    : rows(arena, a, row_count),
      splits(splits_of(a, context)),
      spread(cpu::spread(row_count, a)),
      queries(a.heads / a.kv_heads),
      head_dim(a.head_dim) {
  const uint64_t width = swy::team_width;
  const uint64_t parts = spread ? row_count * a.kv_heads * splits : 2 * width;
  score_stride = 4 * kSplit;
  scores = arena.take<float>(width * score_stride);
  parts_ = arena.take<float>(parts * part_floats());
}

std::span<const swy::HostKernel> attention_kernels() { return kKernels; }

}  // namespace cpu
#endif
