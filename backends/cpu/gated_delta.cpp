// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA: causal convolution, gates, delta rule and gated norm in one pass. DELTA_RULE: the rule alone.
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

#include <cstring>
#include <optional>

#include "causal_conv-inl.h"
#include "delta_gates-inl.h"
#include "gated_delta.h"
#include "multiply.h"
#include "norm-inl.h"
#include "switchyard/sdk/error.hpp"

HWY_BEFORE_NAMESPACE();
namespace cpu {
namespace HWY_NAMESPACE {

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

// Convolves tokens [t0, t0 + n), or for DELTA_RULE copies them, and normalises their q and k.
HWY_INLINE void mix_tokens(const swy::Call& call, const DeltaUnit& u, uint32_t t0, uint32_t n) {
  const auto& a = call.attrs<swy_gated_delta_attrs>();
  const DeltaScratch& w = u.scratch;
  const uint64_t kd = a.key_dim, stride = u.shape.columns_padded;
  for (uint32_t t = 0; t < n; ++t) {
    if (u.whole) {
      convolve_row(call, u.conv, t0 + t, w.mixed + t * stride);
      continue;
    }
    const float* x = call.input(DeltaRule::input("qkv")) + (t0 + t) * u.shape.channels;
    for (const ConvPiece& p : u.conv.pieces) {
      std::memcpy(w.mixed + t * stride + p.column, x + p.channel, p.width * sizeof(float));
    }
  }
  for (uint32_t t = 0; t < n; ++t) {  // a loop of its own, so that the sums of several tokens overlap
    float* y = w.mixed + t * stride;
    l2_normalise(y, kd, a.l2_eps, 1.0f / std::sqrt(static_cast<float>(kd)));
    l2_normalise(y + kd, kd, a.l2_eps, 1.0f);
    w.qk[t] = dot(y, y + kd, kd);
  }
}

// beta = sigmoid(b), decay = exp(-exp(a_log) softplus(gate + dt_bias)) of one value head's tokens [t0, t0 + n).
// DELTA_RULE is given beta and the decay's logarithm.
HWY_INLINE void gate_tokens(const swy::Call& call, const DeltaUnit& u, uint32_t head, uint32_t t0, uint32_t n) {
  const F d;
  const DeltaScratch& w = u.scratch;
  const uint64_t heads = call.attrs<swy_gated_delta_attrs>().value_heads;
  const float* beta = call.input(u.whole ? GatedDelta::input("b") : DeltaRule::input("beta")) + head;
  const float* gate = call.input(u.whole ? GatedDelta::input("a") : DeltaRule::input("g")) + head;
  for (uint32_t t = 0; t < n; ++t) {
    w.beta[t] = beta[(t0 + t) * heads];
    w.log_decay[t] = gate[(t0 + t) * heads];
  }
  const V rate = hn::Set(d, u.whole ? -std::exp(Plain(call, GatedDelta::weight("a_log")).one(head)) : 1.0f);
  const V bias = hn::Set(d, u.whole ? Plain(call, GatedDelta::weight("dt_bias")).one(head) : 0.0f);
  each_vector(n, [&](uint64_t i, uint64_t count) {
    V log_decay = load(w.log_decay + i, count);
    if (u.whole) {
      store(sigmoid(load(w.beta + i, count)), w.beta + i, count);
      log_decay = hn::Mul(rate, softplus(hn::Add(log_decay, bias)));
    }
    log_decay = hn::Max(log_decay, hn::Set(d, -100.0f));  // e^-100 is nothing in fp32
    store(log_decay, w.log_decay + i, count);
    store(exp(log_decay), w.decay + i, count);
  });
}

// Outputs of one value head's tokens [t0, t0 + n), normed and gated; DELTA_RULE's as they are.
HWY_INLINE void put_tokens(const swy::Call& call, const DeltaUnit& u, uint32_t head, uint32_t t0, uint32_t n) {
  const auto& a = call.attrs<swy_gated_delta_attrs>();
  const uint64_t vd = a.value_dim;
  float* y = call.output(swy::Operands<SWY_OP_GATED_DELTA, SWY_OP_DELTA_RULE>::output("y"));
  for (uint32_t t = 0; t < n; ++t) {
    const uint64_t at = (uint64_t{t0 + t} * a.value_heads + head) * vd;
    const float* out = u.scratch.out + t * u.shape.out_stride;
    if (u.whole) {
      gated_rms_norm_row(out, call.input(GatedDelta::input("z")) + at, Plain(call, GatedDelta::weight("norm")),
                         a.norm_eps, vd, y + at);
    } else {
      std::memcpy(y + at, out, vd * sizeof(float));
    }
  }
}

// One sequence, one key head: its channels are q, k (key_dim each) and v of `ratio` value heads.
void delta_unit(const swy::Call& call, const DeltaUnit& u) {
  const auto& a = call.attrs<swy_gated_delta_attrs>();
  const DeltaShape& s = u.shape;
  const uint64_t kd = a.key_dim, vd = a.value_dim;
  const DeltaScratch& w = u.scratch;
  const uint32_t last = u.conv.seq.last;
  if (u.whole) {
    u.conv.read_taps(call);
    u.conv.read_state(call);
  }
  for (uint32_t t0 = u.conv.seq.first; t0 < last; t0 += kDeltaTokens) {
    const uint32_t tokens = last - t0 < kDeltaTokens ? last - t0 : kDeltaTokens;
    mix_tokens(call, u, t0, tokens);
    const DeltaTokens in{tokens, w.mixed,   w.mixed + kd, w.log_decay,      w.decay,          w.beta,
                         w.qk,   a.key_dim, a.value_dim,  s.columns_padded, s.columns_padded, s.out_stride};
    const bool chunk = u.chunk != nullptr && tokens >= kChunkLeast;
    if (chunk) chunk_keys(in, *u.chunk);
    for (uint32_t h = 0; h < s.ratio; ++h) {
      const uint32_t head = u.key_head * s.ratio + h;
      gate_tokens(call, u, head, t0, tokens);
      const float *from = u.state_from(head, t0), *v = w.mixed + 2 * kd + h * vd;
      if (chunk) {
        chunk_head(in, *u.chunk, from, u.state_to(head), v, w.out);
      } else {  // v of the last head may be read beyond its columns: padding of the row, or the next token's q
        delta_head(in, from, u.state_to(head), v, w.block, w.out);
      }
      put_tokens(call, u, head, t0, tokens);
    }
  }
  if (u.whole) u.conv.write_state(call);
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
    : conv(arena, a.conv_kernel, s.columns_padded),
      mixed(arena.take<float>((kDeltaTokens + 1) * s.columns_padded)),
      out(arena.take<float>(kDeltaTokens * s.out_stride)),
      block(arena.take<float>(uint64_t{a.key_dim} * 32)),
      log_decay(arena.take<float>(kDeltaTokens)),
      decay(arena.take<float>(kDeltaTokens)),
      beta(arena.take<float>(kDeltaTokens)),
      qk(arena.take<float>(kDeltaTokens)) {}

const float* DeltaUnit::state_from(uint32_t head, uint32_t t0) const {
  if (t0 != conv.seq.first) return carried(head);
  return conv.seq.fresh ? nullptr : state + (uint64_t{conv.seq.read_slot} * heads + head) * head_elements;
}
float* DeltaUnit::state_to(uint32_t head) const {
  const SequenceRows& q = conv.seq;
  if (!q.active) return q.last - q.first > kDeltaTokens ? carried(head) : nullptr;
  return state + (uint64_t{q.write_slot} * heads + head) * head_elements;
}
float* DeltaUnit::carried(uint32_t head) const {
  if (conv.seq.active) return state + (uint64_t{conv.seq.write_slot} * heads + head) * head_elements;
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
  const bool whole = call.op->id == SWY_OP_GATED_DELTA;
  const uint64_t kd = a.key_dim, keys = a.key_heads * kd, values = uint64_t{shape.ratio} * a.value_dim;
  const auto run = CPU_BEST(delta_unit);
  const auto [first, last] = call.split(2 * uint64_t{call.step->rows} * a.key_heads);
  if (kChunked) tiles_begin(64);
  for (uint32_t s = 0; s < call.step->seqs; ++s) {
    const SequenceRows seq(call.step, s);
    const uint64_t rows = seq.last - seq.first;
    for (uint32_t h = 0; h < a.key_heads && rows != 0; ++h) {
      // A unit belongs to the member whose share of all rows includes its middle.
      const uint64_t middle = 2 * (uint64_t{seq.first} * a.key_heads + h * rows) + rows;
      if (middle < first || middle >= last) continue;
      const ConvPiece pieces[] = {{h * kd, 0, kd}, {keys + h * kd, kd, kd}, {2 * keys + h * values, 2 * kd, values}};
      const DeltaUnit unit{
          shape,
          member.scratch,
          kChunked ? &*member.chunk : nullptr,
          whole,
          {member.scratch.conv, pieces, shape.channels, seq},
          h,
          static_cast<float*>(call.states[whole ? GatedDelta::state("delta_state") : DeltaRule::state("delta_state")]),
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

constexpr swy::HostKernel recurrent(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .cost = gated_delta_cost,
          .run = gated_delta<false>,
          .workspace = gated_delta_workspace<false>};
}
constexpr swy::HostKernel chunked(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .flags = flags_of(Mode::tiles_bf16),
          .cost = chunked_cost,
          .run = gated_delta<true>,
          .workspace = gated_delta_workspace<true>,
          .supports = supports_chunks,
          .activations = SWY_BF16};
}
constexpr swy::HostKernel kKernels[] = {
    recurrent("gated_delta.recurrent", SWY_OP_GATED_DELTA),
    chunked("gated_delta.chunked", SWY_OP_GATED_DELTA),
    recurrent("delta_rule.recurrent", SWY_OP_DELTA_RULE),
    chunked("delta_rule.chunked", SWY_OP_DELTA_RULE),
};

}  // namespace

std::span<const swy::HostKernel> gated_delta_kernels() { return kKernels; }

}  // namespace cpu
#endif
