// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA: causal convolution, gates, delta rule and gated norm in one pass.
//
// A key head and its value heads depend on no other head: each is one unit of work from the convolution to the norm,
// without a barrier. Per unit, 64 tokens at a time, a block of the state's columns is loaded into the cache, and all
// tokens are applied to it. The update for one token and the products for the next share one pass over the block:
//   a = S^T k, b = S^T q;  d = beta (v - g a);  o = g b + (q . k) d;  S = g S + k d^T.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gated_delta.cpp"
#include "simd.h"
// after simd.h
#include <hwy/foreach_target.h>

#include <optional>

#include "gated_delta.h"
#include "multiply.h"
#include "norm-inl.h"
#include "switchyard/sdk/error.hpp"
// a vector log1p
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace cpu {
namespace HWY_NAMESPACE {

// y [n] = silu(sum over j of taps[j] * rows[j]), for n channels; taps are in rows of `stride`.
HWY_INLINE void convolve(const float* const* rows, const float* taps, uint64_t n, uint64_t stride, uint32_t kernel,
                         float* y) {
  const uint64_t L = hn::Lanes(F());
  each_four_vectors(
      n, [&](auto width, uint64_t c, uint64_t count) __attribute__((always_inline)) {
        V sum[width];
        each_of<width>([&](uint32_t i) { sum[i] = hn::Zero(F()); });
        for (uint32_t j = 0; j < kernel; ++j) {
          const float *tap = taps + j * stride + c, *x = rows[j] + c;
          each_of<width>(
              [&](uint32_t i) { sum[i] = hn::MulAdd(load(tap + i * L, count), load(x + i * L, count), sum[i]); });
        }
        silu(sum);
        each_of<width>([&](uint32_t i) { store(sum[i], y + c + i * L, count); });
      });
}

// x *= rsqrt(sum x^2 + eps) * scale.
HWY_INLINE void l2_normalise(float* x, uint64_t n, float eps, float scale) {
  const V s = hn::Set(F(), scale / std::sqrt(dot(x, x, n) + eps));
  each_vector(n, [&](uint64_t i, uint64_t count) { store(hn::Mul(load(x + i, count), s), x + i, count); });
}

// Two vectors of columns of one head's state, in `s` [key_dim, 2 vectors], over all tokens.
void delta_columns(const DeltaTokens& in, float* s, const float* v, float* o) {
  const F d;
  const uint64_t L = hn::Lanes(d), kd = in.key_dim;
  V a0 = hn::Zero(d), a1 = a0, b0 = a0, b1 = a0;
  for (uint64_t i = 0; i < kd; ++i) {
    const V k = hn::Set(d, in.k[i]), q = hn::Set(d, in.q[i]);
    const V s0 = hn::Load(d, s + 2 * i * L), s1 = hn::Load(d, s + (2 * i + 1) * L);
    a0 = hn::MulAdd(s0, k, a0), a1 = hn::MulAdd(s1, k, a1);
    b0 = hn::MulAdd(s0, q, b0), b1 = hn::MulAdd(s1, q, b1);
  }
  for (uint32_t t = 0; t < in.tokens; ++t) {
    const V g = hn::Set(d, in.decay[t]), beta = hn::Set(d, in.beta[t]), qk = hn::Set(d, in.qk[t]);
    const V d0 = hn::Mul(beta, hn::NegMulAdd(g, a0, hn::LoadU(d, v + t * in.value_stride)));
    const V d1 = hn::Mul(beta, hn::NegMulAdd(g, a1, hn::LoadU(d, v + t * in.value_stride + L)));
    hn::StoreU(hn::MulAdd(qk, d0, hn::Mul(g, b0)), d, o + t * in.out_stride);
    hn::StoreU(hn::MulAdd(qk, d1, hn::Mul(g, b1)), d, o + t * in.out_stride + L);
    const float* k = in.k + t * in.key_stride;
    if (t + 1 == in.tokens) {
      for (uint64_t i = 0; i < kd; ++i) {
        const V ki = hn::Set(d, k[i]);
        float* at = s + 2 * i * L;
        hn::Store(hn::MulAdd(ki, d0, hn::Mul(g, hn::Load(d, at))), d, at);
        hn::Store(hn::MulAdd(ki, d1, hn::Mul(g, hn::Load(d, at + L))), d, at + L);
      }
      return;
    }
    const float *k_next = k + in.key_stride, *q_next = in.q + (t + 1) * in.key_stride;
    a0 = a1 = b0 = b1 = hn::Zero(d);
    for (uint64_t i = 0; i < kd; ++i) {
      const V ki = hn::Set(d, k[i]), kn = hn::Set(d, k_next[i]), qn = hn::Set(d, q_next[i]);
      float* at = s + 2 * i * L;
      const V s0 = hn::MulAdd(ki, d0, hn::Mul(g, hn::Load(d, at)));
      const V s1 = hn::MulAdd(ki, d1, hn::Mul(g, hn::Load(d, at + L)));
      hn::Store(s0, d, at), hn::Store(s1, d, at + L);
      a0 = hn::MulAdd(s0, kn, a0), a1 = hn::MulAdd(s1, kn, a1);
      b0 = hn::MulAdd(s0, qn, b0), b1 = hn::MulAdd(s1, qn, b1);
    }
  }
}

// All columns of one head: in blocks of two vectors, through `block` (scratch). `from` NULL: a state of zeros; `to`
// NULL: the new state is dropped. v and o have room up to a multiple of two vectors.
void delta_head(const DeltaTokens& in, const float* from, float* to, const float* v, float* block, float* o) {
  const F d;
  const uint64_t L = hn::Lanes(d), vd = in.value_dim;
  for (uint64_t j = 0; j < vd; j += 2 * L) {
    const uint64_t n0 = vd - j < L ? vd - j : L, n1 = vd - j - n0 < L ? vd - j - n0 : L;
    for (uint64_t i = 0; i < in.key_dim; ++i) {
      float* at = block + 2 * i * L;
      const bool some = from != nullptr;
      hn::Store(some ? load(from + i * vd + j, n0) : hn::Zero(d), d, at);
      hn::Store(some && n1 != 0 ? load(from + i * vd + j + L, n1) : hn::Zero(d), d, at + L);
    }
    delta_columns(in, block, v + j, o + j);
    for (uint64_t i = 0; to != nullptr && i < in.key_dim; ++i) {
      const float* at = block + 2 * i * L;
      store(hn::Load(d, at), to + i * vd + j, n0);
      if (n1 != 0) store(hn::Load(d, at + L), to + i * vd + j + L, n1);
    }
  }
}

// Convolves tokens [t0, t0 + n) and normalises their q and k.
HWY_INLINE void mix_tokens(const swy::Call& call, const DeltaUnit& u, uint32_t t0, uint32_t n) {
  const auto& a = call.attrs<swy_gated_delta_attrs>();
  const DeltaShape& s = u.shape;
  const DeltaScratch& w = u.scratch;
  const uint64_t kd = a.key_dim;
  for (uint32_t t = 0; t < n; ++t) {
    float* y = w.mixed + t * s.columns_padded;
    for (const DeltaPiece& piece : u.pieces) {
      for (uint32_t j = 0; j < a.conv_kernel; ++j) w.rows[j] = u.row(call, piece, t0 + t + j);
      if (a.conv_kernel == 4) {  // without a loop over the taps
        convolve(w.rows, w.taps + piece.column, piece.width, s.columns_padded, 4, y + piece.column);
      } else {
        convolve(w.rows, w.taps + piece.column, piece.width, s.columns_padded, a.conv_kernel, y + piece.column);
      }
    }
  }
  for (uint32_t t = 0; t < n; ++t) {  // a loop of its own, so that the sums of several tokens overlap
    float* y = w.mixed + t * s.columns_padded;
    l2_normalise(y, kd, a.l2_eps, 1.0f / std::sqrt(static_cast<float>(kd)));
    l2_normalise(y + kd, kd, a.l2_eps, 1.0f);
    w.qk[t] = dot(y, y + kd, kd);
  }
}

// beta = sigmoid(b), decay = exp(-exp(a_log) softplus(gate + dt_bias)) of one value head's tokens [t0, t0 + n).
HWY_INLINE void gate_tokens(const swy::Call& call, const DeltaScratch& w, uint32_t head, uint32_t t0, uint32_t n) {
  const F d;
  const uint64_t heads = call.attrs<swy_gated_delta_attrs>().value_heads;
  for (uint32_t t = 0; t < n; ++t) {
    w.beta[t] = call.input(2)[(t0 + t) * heads + head];
    w.log_decay[t] = call.input(3)[(t0 + t) * heads + head];
  }
  const V rate = hn::Set(d, -std::exp(Plain(call, 1).one(head))), bias = hn::Set(d, Plain(call, 2).one(head));
  each_vector(n, [&](uint64_t i, uint64_t count) {
    store(sigmoid(load(w.beta + i, count)), w.beta + i, count);
    const V x = hn::Add(load(w.log_decay + i, count), bias);
    const V softplus = hn::Add(hn::Max(x, hn::Zero(d)), hn::Log1p(d, exp(hn::Neg(hn::Abs(x)))));
    const V log_decay = hn::Max(hn::Mul(rate, softplus), hn::Set(d, -100.0f));  // e^-100 is nothing in fp32
    store(log_decay, w.log_decay + i, count);
    store(exp(log_decay), w.decay + i, count);
  });
}

// One sequence, one key head: its channels are q, k (key_dim each) and v of `ratio` value heads.
void delta_unit(const swy::Call& call, const DeltaUnit& u) {
  const auto& a = call.attrs<swy_gated_delta_attrs>();
  const DeltaShape& s = u.shape;
  const uint64_t kd = a.key_dim, vd = a.value_dim;
  const DeltaScratch& w = u.scratch;
  const Plain norm(call, 3);
  u.begin(call);
  for (uint32_t t0 = u.first; t0 < u.last; t0 += kDeltaTokens) {
    const uint32_t tokens = u.last - t0 < kDeltaTokens ? u.last - t0 : kDeltaTokens;
    mix_tokens(call, u, t0, tokens);
    const DeltaTokens in{tokens, w.mixed,   w.mixed + kd, w.log_decay,      w.decay,          w.beta,
                         w.qk,   a.key_dim, a.value_dim,  s.columns_padded, s.columns_padded, s.out_stride};
    const bool chunk = u.chunk != nullptr && tokens >= kChunkLeast;
    if (chunk) chunk_keys(in, *u.chunk);
    for (uint32_t h = 0; h < s.ratio; ++h) {
      const uint32_t head = u.key_head * s.ratio + h;
      gate_tokens(call, w, head, t0, tokens);
      const float *from = u.state_from(head, t0), *v = w.mixed + 2 * kd + h * vd;
      if (chunk) {
        chunk_head(in, *u.chunk, from, u.state_to(head), v, w.out);
      } else {  // v of the last head may be read beyond its columns: padding of the row, or the next token's q
        delta_head(in, from, u.state_to(head), v, w.block, w.out);
      }
      for (uint32_t t = 0; t < tokens; ++t) {
        const uint64_t at = (uint64_t{t0 + t} * a.value_heads + head) * vd;
        gated_rms_norm_row(w.out + t * s.out_stride, call.input(1) + at, norm, a.norm_eps, vd, call.output(0) + at);
      }
    }
  }
  u.store_conv(call);
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cpu {

DeltaShape::DeltaShape(const swy_gated_delta_attrs& a)
    : ratio(a.value_heads / a.key_heads),
      channels(2 * uint64_t{a.key_heads} * a.key_dim + uint64_t{a.value_heads} * a.value_dim),
      columns(2 * uint64_t{a.key_dim} + uint64_t{ratio} * a.value_dim),
      columns_padded((columns + 63) / 32 * 32),
      out_stride((uint64_t{a.value_dim} + 31) / 32 * 32) {}

DeltaScratch::DeltaScratch(Arena& arena, const swy_gated_delta_attrs& a, const DeltaShape& s)
    : rows(arena.take<const float*>(a.conv_kernel)),
      history(arena.take<float>(a.conv_kernel * s.columns_padded)),
      taps(arena.take<float>(a.conv_kernel * s.columns_padded)),
      mixed(arena.take<float>((kDeltaTokens + 1) * s.columns_padded)),
      out(arena.take<float>(kDeltaTokens * s.out_stride)),
      block(arena.take<float>(uint64_t{a.key_dim} * 32)),
      log_decay(arena.take<float>(kDeltaTokens)),
      decay(arena.take<float>(kDeltaTokens)),
      beta(arena.take<float>(kDeltaTokens)),
      qk(arena.take<float>(kDeltaTokens)) {}

void DeltaUnit::begin(const swy::Call& call) const {
  const auto& a = call.attrs<swy_gated_delta_attrs>();
  const uint64_t keep = a.conv_kernel - 1;
  const float* before = static_cast<const float*>(call.states[0]) + read_slot * shape.channels * keep;
  for (const DeltaPiece& piece : pieces) {
    for (uint64_t i = 0; i < piece.width; ++i) {
      const uint64_t ch = piece.channel + i, c = piece.column + i;
      float taps[16];
      for (uint32_t j = 0; j < a.conv_kernel; j += 16) {
        const uint32_t n = std::min(16u, a.conv_kernel - j);
        load_plain(*call.op->weights[0], call.weights[0], ch * a.conv_kernel + j, n, 0, taps);
        for (uint32_t k = 0; k < n; ++k) scratch.taps[(j + k) * shape.columns_padded + c] = taps[k];
      }
      for (uint64_t j = 0; j < keep; ++j) {
        scratch.history[j * shape.columns_padded + c] = fresh ? 0.0f : before[ch * keep + j];
      }
    }
  }
}

const float* DeltaUnit::row(const swy::Call& call, const DeltaPiece& piece, uint64_t r) const {
  const uint64_t keep = call.attrs<swy_gated_delta_attrs>().conv_kernel - 1;
  if (r < first + keep) return scratch.history + (r - first) * shape.columns_padded + piece.column;
  return call.input(0) + (r - keep) * shape.channels + piece.channel;
}

void DeltaUnit::store_conv(const swy::Call& call) const {
  if (!active) return;
  const uint64_t keep = call.attrs<swy_gated_delta_attrs>().conv_kernel - 1;
  float* after = static_cast<float*>(call.states[0]) + write_slot * shape.channels * keep;
  for (const DeltaPiece& piece : pieces) {
    for (uint64_t j = 0; j < keep; ++j) {
      const float* x = row(call, piece, last + j);
      for (uint64_t i = 0; i < piece.width; ++i) after[(piece.channel + i) * keep + j] = x[i];
    }
  }
}

const float* DeltaUnit::state_from(uint32_t head, uint32_t t0) const {
  if (t0 != first) return carried(head);
  return fresh ? nullptr : state + (uint64_t{read_slot} * heads + head) * head_elements;
}
float* DeltaUnit::state_to(uint32_t head) const {
  if (!active) return last - first > kDeltaTokens ? carried(head) : nullptr;
  return state + (uint64_t{write_slot} * heads + head) * head_elements;
}
float* DeltaUnit::carried(uint32_t head) const {
  if (active) return state + (uint64_t{write_slot} * heads + head) * head_elements;
  return spare + (head % shape.ratio) * head_elements;
}

namespace {

// The scratch of one member.
struct Member {
  DeltaScratch scratch;
  float* spare;
  std::optional<ChunkScratch> chunk;
  Member(Arena& arena, const swy_gated_delta_attrs& a, const DeltaShape& shape, bool chunked)
      : scratch(arena, a, shape), spare(arena.take<float>(uint64_t{shape.ratio} * a.key_dim * a.value_dim)) {
    if (chunked) chunk.emplace(arena, a);
  }
};

uint64_t member_bytes(const swy_gated_delta_attrs& a, bool chunked) {
  Arena arena(nullptr);
  Member(arena, a, DeltaShape(a), chunked);
  return arena.used();
}

template <bool kChunked>
uint64_t gated_delta_workspace(const swy_op& op, const swy_bucket&) {
  return member_bytes(*static_cast<const swy_gated_delta_attrs*>(op.attrs), kChunked) * swy::team_width;
}

template <bool kChunked>
void gated_delta(const swy::Call& call) {
  const auto& a = call.attrs<swy_gated_delta_attrs>();
  const DeltaShape shape(a);
  Arena arena(call.work<char>(member_bytes(a, kChunked) * call.rank()));
  const Member member(arena, a, shape, kChunked);
  const swy_step* step = call.step;
  const uint32_t* start = SWY_STEP_ARRAY(step, uint32_t, row_start_at);
  const uint32_t* positions = SWY_STEP_ARRAY(step, uint32_t, row_position_at);
  const uint64_t kd = a.key_dim, keys = a.key_heads * kd, values = uint64_t{shape.ratio} * a.value_dim;
  const auto run = CPU_BEST(delta_unit);
  const auto [first, last] = call.split(2 * uint64_t{step->rows} * a.key_heads);
  if (kChunked) tiles_begin(64);
  for (uint32_t seq = 0; seq < step->seqs; ++seq) {
    const uint64_t rows = start[seq + 1] - start[seq];
    for (uint32_t h = 0; h < a.key_heads && rows != 0; ++h) {
      // A unit belongs to the member whose share of all rows includes its middle.
      const uint64_t middle = 2 * (uint64_t{start[seq]} * a.key_heads + h * rows) + rows;
      if (middle < first || middle >= last) continue;
      const DeltaUnit unit{shape,
                           member.scratch,
                           kChunked ? &*member.chunk : nullptr,
                           {{{h * kd, 0, kd}, {keys + h * kd, kd, kd}, {2 * keys + h * values, 2 * kd, values}}},
                           h,
                           start[seq],
                           start[seq + 1],
                           SWY_STEP_ARRAY(step, uint32_t, seq_read_slot_at)[seq],
                           SWY_STEP_ARRAY(step, uint32_t, seq_write_slot_at)[seq],
                           SWY_STEP_ARRAY(step, uint32_t, seq_active_at)[seq] != 0,
                           positions[start[seq]] == 0,
                           static_cast<float*>(call.states[1]),
                           a.value_heads,
                           uint64_t{a.key_dim} * a.value_dim,
                           member.spare};
      run(call, unit);
    }
  }
  if (kChunked) tiles_end();
}

swy_status supports_chunks(const swy_op& op, const swy_bucket&, swy_error* error) {
  const auto& a = *static_cast<const swy_gated_delta_attrs*>(op.attrs);
  if (a.key_dim % 32 != 0 || a.value_dim % 32 != 0) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "a state of %u x %u is not in multiples of 32",
                     a.key_dim, a.value_dim);
  }
  return mode_usable(Mode::tiles_bf16, false, error);
}

double gated_delta_cost(const swy_op& op, const swy_bucket& bucket) {
  const auto& a = *static_cast<const swy_gated_delta_attrs*>(op.attrs);
  return cost_of(4.0 * bucket.rows * a.value_heads * a.key_dim * a.value_dim);
}

// The form on tiles is as fast if no sequence has enough rows for a chunk.
double chunked_cost(const swy_op& op, const swy_bucket& bucket) {
  const bool chunks = bucket.rows >= std::max(bucket.seqs, 1u) * kChunkLeast;
  return gated_delta_cost(op, bucket) * (chunks ? 0.2 : 1.1);
}

constexpr swy::HostKernel kKernels[] = {
    {.name = "gated_delta.recurrent",
     .op = SWY_OP_GATED_DELTA,
     .cost = gated_delta_cost,
     .run = gated_delta<false>,
     .workspace = gated_delta_workspace<false>},
    {.name = "gated_delta.chunked",
     .op = SWY_OP_GATED_DELTA,
     .flags = flags_of(Mode::tiles_bf16),
     .cost = chunked_cost,
     .run = gated_delta<true>,
     .workspace = gated_delta_workspace<true>,
     .supports = supports_chunks,
     .activations = SWY_BF16},
};

}  // namespace

std::span<const swy::HostKernel> gated_delta_kernels() { return kKernels; }

}  // namespace cpu
#endif
