// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA: causal convolution, gates, delta rule and gated norm in one pass. DELTA_RULE: the rule alone.
//
// A key head and its value heads depend on no other head: each is one unit of work from the convolution to the norm,
// without a barrier. Per unit, 64 tokens at a time, a block of the state's columns is loaded into the cache, and all
// tokens are applied to it. The update for one token and the products for the next share one pass over the block:
//   a = S^T k, b = S^T q;  d = beta (v - g a);  o = g b + (q . k) d;  S = g S + k d^T.
//
// Pending rows (step.h) are kept as their inputs qkv, b and a. Those that stand are tokens before the step's own: both
// are applied to the same block of the state, which is stored after those that stand.
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

// Two vectors of columns of one head's state, in `s` [key_dim, 2 vectors], over all tokens. put() is called when the
// first `keep` are applied; with `dropped` the last token is not.
template <class Put>
HWY_INLINE void delta_columns(const DeltaTokens& in, float* s, const float* v, float* o, uint64_t keep, bool dropped,
                              const Put& put) {
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
      for (uint64_t i = 0; i < kd && !dropped; ++i) {
        const V ki = hn::Set(d, k[i]);
        float* at = s + 2 * i * L;
        hn::Store(hn::MulAdd(ki, d0, hn::Mul(g, hn::Load(d, at))), d, at);
        hn::Store(hn::MulAdd(ki, d1, hn::Mul(g, hn::Load(d, at + L))), d, at + L);
      }
      if (keep == in.tokens) put();
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
    if (t + 1 == keep) put();
  }
}

// All columns of one head: in blocks of two vectors, through `block` (scratch). `from` NULL: a state of zeros. `to`
// gets the state after the first `keep` tokens, `after` the state after all; NULL: it is dropped. v and o have room up
// to a multiple of two vectors.
void delta_head(const DeltaTokens& in, const float* from, float* to, uint64_t keep, float* after, const float* v,
                float* block, float* o) {
  const F d;
  const uint64_t L = hn::Lanes(d), vd = in.value_dim;
  const bool dropped = after == nullptr && (to == nullptr || keep < in.tokens);
  for (uint64_t j = 0; j < vd; j += 2 * L) {
    const uint64_t n0 = vd - j < L ? vd - j : L, n1 = vd - j - n0 < L ? vd - j - n0 : L;
    for (uint64_t i = 0; i < in.key_dim; ++i) {
      float* at = block + 2 * i * L;
      const bool some = from != nullptr;
      hn::Store(some ? load(from + i * vd + j, n0) : hn::Zero(d), d, at);
      hn::Store(some && n1 != 0 ? load(from + i * vd + j + L, n1) : hn::Zero(d), d, at + L);
    }
    const auto put = [&](float* where) {
      for (uint64_t i = 0; where != nullptr && i < in.key_dim; ++i) {
        const float* at = block + 2 * i * L;
        store(hn::Load(d, at), where + i * vd + j, n0);
        if (n1 != 0) store(hn::Load(d, at + L), where + i * vd + j + L, n1);
      }
    };
    delta_columns(in, block, v + j, o + j, keep, dropped, [&] { put(to); });
    put(after);
  }
}

// Convolves rows [t0, t0 + n) of the run, or for DELTA_RULE copies them, and normalises their q and k.
HWY_INLINE void mix_tokens(const swy::Call& call, const DeltaUnit& u, uint64_t t0, uint32_t n) {
  const auto& a = call.attrs<swy_gated_delta_attrs>();
  const DeltaScratch& w = u.scratch;
  const uint64_t kd = a.key_dim, stride = u.shape.columns_padded;
  for (uint32_t t = 0; t < n; ++t) {
    if (u.whole) {
      convolve_row(call, u.conv, t0 + t, w.mixed + t * stride);
      continue;
    }
    const float* x = call.input(DeltaRule::input("qkv")) + u.conv.seq.step_row(t0 + t) * u.shape.channels;
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

// beta = sigmoid(b), decay = exp(-exp(a_log) softplus(gate + dt_bias)) of one value head's rows [t0, t0 + n) of the
// run. DELTA_RULE is given beta and the decay's logarithm.
HWY_INLINE void gate_tokens(const swy::Call& call, const DeltaUnit& u, uint32_t head, uint64_t t0, uint32_t n) {
  const F d;
  const DeltaScratch& w = u.scratch;
  const uint64_t heads = call.attrs<swy_gated_delta_attrs>().value_heads;
  const float* beta = call.input(u.whole ? GatedDelta::input("b") : DeltaRule::input("beta")) + head;
  const float* gate = call.input(u.whole ? GatedDelta::input("a") : DeltaRule::input("g")) + head;
  const SequenceRows& seq = u.conv.seq;
  for (uint32_t t = 0; t < n; ++t) {
    if (t0 + t < seq.kept) {
      const float* of = seq.stands + (t0 + t) * seq.stride + u.shape.channels + head;
      w.beta[t] = of[0], w.log_decay[t] = of[heads];
    } else {
      const uint64_t at = seq.step_row(t0 + t) * heads;
      w.beta[t] = beta[at], w.log_decay[t] = gate[at];
    }
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

// Outputs of one value head's rows [t0, t0 + n) of the run, but of those that stand, normed and gated; DELTA_RULE's as
// they are.
HWY_INLINE void put_tokens(const swy::Call& call, const DeltaUnit& u, uint32_t head, uint64_t t0, uint32_t n) {
  const auto& a = call.attrs<swy_gated_delta_attrs>();
  const uint64_t vd = a.value_dim;
  float* y = call.output(swy::Operands<SWY_OP_GATED_DELTA, SWY_OP_DELTA_RULE>::output("y"));
  const uint64_t kept = u.conv.seq.kept;
  for (uint64_t t = t0 < kept ? kept - t0 : 0; t < n; ++t) {
    const uint64_t at = (u.conv.seq.step_row(t0 + t) * a.value_heads + head) * vd;
    const float* out = u.scratch.out + t * u.shape.out_stride;
    if (u.whole) {
      gated_rms_norm_row(out, call.input(GatedDelta::input("z")) + at, Plain(call, GatedDelta::weight("norm")),
                         a.norm_eps, vd, y + at);
    } else {
      std::memcpy(y + at, out, vd * sizeof(float));
    }
  }
}

// Rows [t0, t0 + n) of the run, at most kDeltaTokens.
HWY_INLINE void delta_rows(const swy::Call& call, const DeltaUnit& u, uint64_t t0, uint32_t n) {
  const auto& a = call.attrs<swy_gated_delta_attrs>();
  const DeltaShape& s = u.shape;
  const DeltaScratch& w = u.scratch;
  const uint64_t kd = a.key_dim, vd = a.value_dim, applied = u.conv.seq.applied();
  const uint64_t keep = applied <= t0 ? 0 : applied - t0 < n ? applied - t0 : n;
  const bool goes_on = keep < n && t0 + n < u.conv.seq.run();
  mix_tokens(call, u, t0, n);
  const DeltaTokens in{n,    w.mixed,   w.mixed + kd, w.log_decay,      w.decay,          w.beta,
                       w.qk, a.key_dim, a.value_dim,  s.columns_padded, s.columns_padded, s.out_stride};
  const bool chunk = u.chunk != nullptr && n >= kChunkLeast;
  if (chunk) chunk_keys(in, *u.chunk);
  for (uint32_t h = 0; h < s.ratio; ++h) {
    const uint32_t head = u.key_head * s.ratio + h;
    gate_tokens(call, u, head, t0, n);
    const float *from = u.state_from(head, t0), *v = w.mixed + 2 * kd + h * vd;
    float *to = keep > 0 ? u.written(head) : nullptr, *after = goes_on ? u.dropped(head) : nullptr;
    if (chunk) {  // either all of its rows are applied, or none
      chunk_head(in, *u.chunk, from, keep > 0 ? to : after, v, w.out);
    } else {  // v of the last head may be read beyond its columns: padding of the row, or the next token's q
      delta_head(in, from, to, keep, after, v, w.block, w.out);
    }
    put_tokens(call, u, head, t0, n);
  }
}

// One sequence, one key head: its channels are q, k (key_dim each) and v of `ratio` value heads.
void delta_unit(const swy::Call& call, const DeltaUnit& u) {
  const SequenceRows& seq = u.conv.seq;
  const uint64_t run = seq.run(), applied = seq.applied();
  if (u.whole) {
    u.conv.read_taps(call);
    u.conv.read_state(call);
  }
  for (uint64_t t0 = 0, n = 0; t0 < run; t0 += n) {
    n = run - t0 < kDeltaTokens ? run - t0 : kDeltaTokens;
    if (u.chunk != nullptr && t0 < applied && applied - t0 < n) n = applied - t0;
    delta_rows(call, u, t0, static_cast<uint32_t>(n));
  }
  u.move_states();
  if (u.whole) u.conv.write_state(call);
  if (seq.pending) u.keep_pending(call);
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cpu {
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
    const SequenceRows seq = run_of(call, s);
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

// Of DELTA_RULE there is one revision.
constexpr uint32_t revision_of(uint32_t op) { return op == SWY_OP_GATED_DELTA ? 2 : 1; }
constexpr swy::HostKernel recurrent(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .cost = gated_delta_cost,
          .run = gated_delta<false>,
          .workspace = gated_delta_workspace<false>,
          .op_revision = revision_of(op)};
}
constexpr swy::HostKernel chunked(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .flags = flags_of(Mode::tiles_bf16),
          .cost = chunked_cost,
          .run = gated_delta<true>,
          .workspace = gated_delta_workspace<true>,
          .supports = supports_chunks,
          .activations = SWY_BF16,
          .op_revision = revision_of(op)};
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
