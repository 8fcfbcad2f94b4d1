// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/chains.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "plugins_api/check/cases.h"
#include "plugins_api/check/compare.h"
#include "plugins_api/check/kit.h"
#include "plugins_api/check/pending.h"

namespace switchyard::check {
namespace {

// ---- steps

void three_sequences(Builder& b) { b.rows({2, 1, 2}); }
void first_token(Builder& b) { b.rows({1}); }
// A sequence decodes one token at position 37.
void one_token(Builder& b) { b.step({{0, 1, 37, true, 0, 0, {0, 1, 2}}}); }
// Two sequences do, each with slots and pages of its own.
void two_tokens(Builder& b) { b.step({{0, 1, 37, true, 0, 0, {0, 1, 2}}, {1, 1, 20, true, 1, 1, {3, 4}}}); }
void four_tokens(Builder& b) {
  b.step({{0, 1, 37, true, 0, 0, {0, 1, 2}},
          {1, 1, 20, true, 1, 1, {3, 4}},
          {2, 1, 0, true, 2, 2, {5}},
          {3, 1, 9, true, 3, 3, {6}}});
}
// `n` sequences do, of which every fifth is not active.
void tokens(Builder& b, uint32_t n) {
  std::vector<Sequence> all;
  for (uint32_t i = 0; i < n; ++i) all.push_back({i, 1, i % 3 * 17, i % 5 != 3, i, i, {2 * i, 2 * i + 1}});
  b.step(all);
}
// One of three is not active.
void three_tokens(Builder& b) {
  b.step({{0, 1, 37, true, 0, 0, {0, 1, 2}}, {1, 1, 20, false, 1, 1, {3, 4}}, {2, 1, 9, true, 3, 2, {5}}});
}
void six_tokens(Builder& b) { tokens(b, 6); }
void eleven_tokens(Builder& b) { tokens(b, 11); }
// Drafted tokens of a sequence, and the end of a prompt.
void four_rows(Builder& b) { b.step({{0, 4, 37, true, 0, 0, {0, 1, 2}}}); }
// Rows of which not all may stand: of each step another one is read.
void rows_ahead(Builder& b, uint32_t rows) {
  const auto step = [&](uint32_t read) {
    std::vector<int32_t> tokens = {-1, 5, -2, 6}, drafts = {8, -3, 9};  // entries 0, 1 and 2: 8, 9, 5
    tokens.resize(rows), drafts.resize(rows - 1);
    if (read + 1 < rows) drafts[read] = 7;
    b.step({{0, rows, 37, true, 0, 0, {0, 1, 2}, 0, false, drafts, read}});
    b.peek().steps.back().tokens = tokens;
  };
  for (uint32_t read = 0; read < rows; ++read) step(read);
  b.peek().tokens = {8, 9, 5};
}
void three_rows_ahead(Builder& b) { rows_ahead(b, 3); }
void four_rows_ahead(Builder& b) { rows_ahead(b, 4); }
void three_rows_move(Builder& b) { b.step({{0, 3, 37, true, 1, 0, {0, 1, 2}}}); }
// Positions that several clusters of blocks divide, where a kernel has such.
void three_far_tokens(Builder& b) {
  std::vector<uint32_t> pages(125);
  std::iota(pages.begin(), pages.end(), 2);
  b.step({{0, 1, 5, true, 0, 0, {0}}, {1, 1, 1990, true, 1, 1, pages}, {2, 1, 9, false, 2, 2, {1}}});
}
// One, with many of them, fewer, and as an inactive sequence.
void far_token(Builder& b) {
  std::vector<uint32_t> pages(314);
  std::iota(pages.begin(), pages.end(), 1);
  b.step({{0, 1, 5010, true, 0, 0, pages}});
  b.step({{0, 1, 1400, true, 0, 0, pages}});
  b.step({{0, 1, 700, true, 0, 0, pages}});
  b.step({{0, 1, 3000, false, 0, 0, pages}});
}
void first_rows(Builder& b) { b.rows({4}); }
void one_token_moves(Builder& b) { b.step({{0, 1, 37, true, 1, 0, {0, 1, 2}}}); }  // from slot to slot

// With pending rows, of which all, some and none stand; the last step applies its own.
constexpr bool kPends = true;
void drafts(Builder& b) {
  b.step({{0, 4, 37, true, 0, 0, {0, 1, 2}, 0, kPends}});
  b.step({{0, 4, 40, true, 0, 1, {0, 1, 2}, 3, kPends}});
  b.step({{0, 3, 44, true, 1, 1, {0, 1, 2}, 4, kPends}});
  b.step({{0, 4, 44, true, 1, 0, {0, 1, 2}, 0, kPends}});
  b.step({{0, 2, 46, true, 0, 0, {0, 1, 2}, 2}});
}
void two_drafts(Builder& b) {
  b.step({{0, 2, 0, true, 0, 0, {0}, 0, kPends}});
  b.step({{0, 2, 1, true, 0, 1, {0}, 1, kPends}});
  b.step({{0, 1, 3, true, 1, 1, {0}, 2}});
}
void two_tokens_pending(Builder& b) {
  b.step({{0, 1, 37, true, 0, 0, {0, 1, 2}, 0, kPends}, {1, 1, 20, true, 1, 1, {3, 4}}});
  b.step({{0, 1, 38, true, 0, 0, {0, 1, 2}, 1, kPends}, {1, 1, 21, true, 1, 2, {3, 4}, 0, kPends}});
  b.step({{0, 1, 38, true, 0, 0, {0, 1, 2}}, {1, 1, 22, true, 2, 1, {3, 4}, 1}});
}
void tokens_pending(Builder& b, uint32_t n) {
  for (const uint32_t kept : {0u, 1u}) {
    std::vector<Sequence> all;
    for (uint32_t i = 0; i < n; ++i) all.push_back({i, 1, 5 * i + kept, true, i, i, {i}, kept, kept == 0});
    b.step(all);
  }
}
void four_tokens_pending(Builder& b) { tokens_pending(b, 4); }
void six_tokens_pending(Builder& b) { tokens_pending(b, 6); }
void one_token_pending(Builder& b) {
  b.step({{0, 1, 37, true, 1, 0, {0, 1, 2}, 0, kPends}});
  b.step({{0, 1, 38, true, 0, 0, {0, 1, 2}, 1}});
}

// Logits of these rows of the last step are wanted, and the likeliest token of each.
void want(Builder& b, const std::vector<uint32_t>& rows) {
  b.wanted(rows);
  for (uint32_t i = 0; i < rows.size(); ++i) {
    Draw d;
    d.logit_row = i;
    d.token_entry = i + 1;
    swy_sample_params_init(&d.params);
    d.params.temperature = 0;
    swy_sample_params_normalise(&d.params, nullptr);
    b.peek().steps.back().draws.push_back(d);
  }
}
// The second step wants nothing.
void one_wanted_then_none(Builder& b) {
  one_token(b);
  want(b, {0});
  b.step({{0, 1, 38, true, 0, 0, {0, 1, 2}}});
}
void three_of_four_wanted(Builder& b) {
  four_tokens(b);
  want(b, {0, 2, 3});
}
void four_rows_wanted(Builder& b) {
  four_rows(b);
  want(b, {0, 1, 2, 3});
}
void last_row_wanted(Builder& b) {
  b.rows({45});
  want(b, {44});
}
void some_rows_wanted(Builder& b) {
  b.rows({9, 1, 30});
  want(b, {8, 9, 39});
}

// The rest of a prompt, the beginnings of two, and a sequence that decodes a token.
void prompts(Builder& b) {
  b.step({{0, 130, 37, true, 0, 0, {0}},
          {1, 70, 0, false, 1, 1, {1}},
          {2, 1, 20, true, 2, 2, {2}},
          {3, 67, 0, true, 4, 3, {3}}});
}
void short_prompts(Builder& b) {
  b.step({{0, 70, 0, true, 1, 0, {0}}});
  b.step({{0, 66, 70, true, 1, 0, {0}}});
}
void long_prompts(Builder& b) {
  b.step({{0, 350, 37, true, 0, 0, {0}}});
  b.step({{0, 300, 387, true, 0, 0, {0}}});
}
void prompt_pending(Builder& b) {
  b.step({{0, 3, 37, true, 0, 0, {0}, 0, kPends}, {1, 256, 0, true, 1, 1, {1}}});
  b.step({{0, 2, 40, true, 0, 0, {0}, 2, kPends}, {1, 255, 256, true, 1, 1, {1}}});
}

// ---- links

Link add(uint64_t width, size_t other = SIZE_MAX) {
  return {SWY_OP_ADD, [=](Builder& b) { b.input(width).input(width).output(width); }, other};
}

Link reading(size_t link, Link l) {
  l.reads = link;
  return l;
}

// The first link: of random tokens, of which that of the first row is in the device's token buffer.
Link embedding(uint64_t width, Encoding e) {
  constexpr uint32_t kVocab = 77;
  return {SWY_OP_EMBEDDING, [=](Builder& b) {
            b.matrix({kVocab, width}, e.dtype, e.group).output(width);
            const auto token = [&] { return static_cast<int32_t>(b.random().below(kVocab)); };
            Case& c = b.peek();
            c.tokens = {token(), token(), token()};
            for (Step& s : c.steps) {
              for (int32_t& t : s.tokens) t = token();
              s.tokens.front() = -2;
            }
          }};
}

Link norm(uint64_t width) {
  return {SWY_OP_RMS_NORM, [=](Builder& b) {
            b.attrs(swy_rms_norm_attrs{0, 1e-6f, 1, 0}).input(width).plain({width}, SWY_F32, 0, 0.3).output(width);
          }};
}

Link linear(uint64_t in, uint64_t out, Encoding e) {
  return {SWY_OP_LINEAR, [=](Builder& b) { b.input(in).matrix({out, in}, e.dtype, e.group).output(out); }};
}

Link head(uint64_t width, uint64_t vocab, Encoding e) {
  return {SWY_OP_LM_HEAD, [=](Builder& b) {
            b.input(width).matrix({vocab, width}, e.dtype, e.group).fixed_output(vocab, SWY_F32, SWY_ROWS_LOGITS);
          }};
}

Link sample(uint64_t vocab) {
  return {SWY_OP_SAMPLE, [=](Builder& b) {
            b.fixed_input(vocab, 0, 1, SWY_ROWS_LOGITS).fixed_output(4, SWY_I32, SWY_ROWS_SAMPLE);
            b.peek().tokens.assign(8, -7);
          }};
}

// With a second, plain weight of 24 rows.
Link two_linears(uint64_t in, uint64_t out, Encoding e) {
  return {SWY_OP_LINEAR, [=](Builder& b) {
            b.input(in).matrix({out, in}, e.dtype, e.group).matrix({24, in}, SWY_BF16, 0).output(out).output(24);
          }};
}

// Some of the experts, and a shared one, all of this width.
Link mixture(uint64_t hidden, uint32_t width, Encoding e, swy_dtype router = SWY_F32, uint32_t experts = 8,
             uint32_t chosen = 3) {
  swy_moe_attrs a{};
  a.experts = experts;
  a.top_k = chosen;
  a.width = a.shared_width = width;
  return {SWY_OP_MOE, [=](Builder& b) {
            b.attrs(a).input(hidden);
            b.plain({a.experts, hidden}, router, 0, 2 / std::sqrt(static_cast<double>(hidden)));
            b.matrix({a.experts, 2 * uint64_t{width}, hidden}, e.dtype, e.group, 1.5);
            b.matrix({a.experts, hidden, width}, e.dtype, e.group);
            b.matrix({width, hidden}, e.dtype, e.group, 1.5).matrix({width, hidden}, e.dtype, e.group);
            b.matrix({hidden, width}, e.dtype, e.group).matrix({1, hidden}, SWY_BF16, 0);
            b.output(hidden);
          }};
}

// value_dim: that of the keys, if 0.
Link delta(uint32_t key_heads, uint32_t value_heads, uint32_t key_dim, uint32_t value_dim = 0) {
  swy_gated_delta_attrs a{};
  a.key_heads = key_heads;
  a.value_heads = value_heads;
  a.key_dim = key_dim;
  a.value_dim = value_dim != 0 ? value_dim : key_dim;
  a.conv_kernel = 4;
  a.norm_eps = a.l2_eps = 1e-6f;
  return {SWY_OP_GATED_DELTA, [=](Builder& b) {
            const bool pending = has_pending_rows(b.peek());
            if (pending) b.peek().revision = 2;
            gated_delta_operands(b.attrs(a), a, SWY_BF16);
            const uint64_t channels = 2 * uint64_t{a.key_heads} * a.key_dim + uint64_t{a.value_heads} * a.value_dim;
            if (pending) b.pending(channels + 2 * a.value_heads);
          }};
}

Link attention(uint32_t heads, uint32_t kv_heads, uint32_t head_dim, bool gated = true) {
  swy_attention_attrs a{};
  a.heads = heads;
  a.kv_heads = kv_heads;
  a.head_dim = head_dim;
  a.rotary_dim = head_dim / 2;
  a.rope_theta = 1e6f;
  a.scale = 1 / std::sqrt(static_cast<float>(head_dim));
  a.norm_eps = 1e-6f;
  a.gated = gated ? 1 : 0;
  return {SWY_OP_ATTENTION, [=](Builder& b) {
            attention_inputs(b.attrs(a), a);
            b.paged({2, kv_heads, head_dim}, 1).output(uint64_t{heads} * head_dim);
          }};
}

// A layer from its projection on, the links `first` and a linear: the projection's addition and the mixture.
std::vector<Link> layer(std::vector<Link> first, Link product, uint64_t hidden, Link mix) {
  first.push_back(std::move(product));
  const size_t sum = first.size();
  first.push_back(add(hidden));
  first.push_back(norm(hidden));
  first.push_back(std::move(mix));
  first.push_back(add(hidden, sum));
  return first;
}

// How a multi-token prediction layer begins: the projections of an embedding and of another value, each normed, and
// their sum. `first`: the embedding's projection comes first.
std::vector<Link> entry(uint64_t width, uint64_t out, Encoding of_table, Encoding e, bool first) {
  return {embedding(width, of_table),
          norm(width),
          reading(kOutside, norm(width)),
          reading(first ? 1 : 2, linear(width, out, e)),
          reading(first ? 2 : 1, linear(width, out, e)),
          add(out, 3)};
}

// The chain's input, into every link that adds it.
void give_chain_input(const Chain& chain, std::vector<Case>& links) {
  for (size_t i = 0; i < links.size(); ++i) {
    for (size_t s = 0; adds_chain_input(chain, links, i) && s < links[i].steps.size(); ++s) {
      links[i].steps[s].inputs[1] = links[0].steps[s].inputs[0];
    }
  }
}

// ---- results

// Of a few operations that may round activations to 8 bits.
constexpr double kBudget = 2e-2;

// Where not all rows may stand, of the one that is read.
double relative_error(const Step& step, swy_rows domain, const Matrix& wanted, const Matrix& got) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < wanted.values.size(); ++i) {
    const auto row = static_cast<uint32_t>(i / wanted.width);
    if (!step.seqs[step.owner(domain, row)].drafts.empty() && !step.is_read(domain, row)) continue;
    difference += (got.values[i] - wanted.values[i]) * (got.values[i] - wanted.values[i]);
    norm += wanted.values[i] * wanted.values[i];
  }
  return difference == 0 ? 0 : std::sqrt(difference / norm);  // also of no rows at all
}

// Whether tokens are the likeliest ones, or about as likely, by the logits one by one.
std::string compare_draws(const Step& step, const Matrix& logits, const Matrix& got) {
  constexpr double kErrors = 8;  // of two logits, among many
  for (size_t i = 0; i < step.draws.size(); ++i) {
    const auto row = logits.values.begin() + static_cast<ptrdiff_t>(step.draws[i].logit_row * logits.width);
    const auto end = row + static_cast<ptrdiff_t>(logits.width);
    const int32_t token = got.ints[i * got.width], status = got.ints[i * got.width + 1];
    if (status != SWY_SAMPLE_OK || token < 0 || static_cast<uint64_t>(token) >= logits.width) {
      return text("draw ", i, " has the status ", status, " and the token ", token);
    }
    const double mean_square = std::inner_product(row, end, row, 0.0) / static_cast<double>(logits.width);
    const double short_of = *std::max_element(row, end) - row[token];
    if (short_of <= kErrors * kBudget * std::sqrt(mean_square)) continue;
    return text("draw ", i, " is token ", token, ", whose logit is ", short_of, " below the largest one");
  }
  return "";
}

// To which type a plugin rounds the states of a link: bf16 at most, or the 8 bits that the operation's kernels name, if
// it has keys and values.
swy_dtype state_type(const Plugin& plugin, const Case& link) {
  if (link.states.empty() || link.states[0].desc.state != SWY_STATE_PAGED) return SWY_BF16;
  const auto in_bytes = [&](const swy_kernel* k) { return k->op == link.op && k->activations == SWY_I8; };
  return std::any_of(plugin.kernels().begin(), plugin.kernels().end(), in_bytes) ? SWY_I8 : SWY_BF16;
}

// The difference in the states of one link; tokens that it draws are compared as its outputs.
std::string compare_states(const Plugin& plugin, Case link, Outcome wanted, Outcome got) {
  link.outputs.clear(), link.tokens.clear();
  for (Step& s : link.steps) s.draws.clear();
  wanted.tokens.clear(), got.tokens.clear();
  wanted.outputs = got.outputs = std::vector<std::vector<Matrix>>(link.steps.size());
  return compare(link, wanted, got, state_type(plugin, link), nullptr);
}

}  // namespace

const std::vector<Chain>& all_chains() {
  constexpr uint64_t kWidth = 64;
  const Link plus = add(kWidth), normed = norm(kWidth), product = linear(kWidth, kWidth, {SWY_BF16, 0});
  const Encoding i4{SWY_I4, 64}, i4a{SWY_I4A, 64}, whole{SWY_I4, 0};
  static const std::vector<Chain> all = {
      {"add_add", three_sequences, {plus, plus}},
      {"add4", three_sequences, {plus, plus, plus, plus}},
      {"add_norm", three_sequences, {plus, normed}},
      {"norm_linear", three_sequences, {normed, product}},
      {"linear_add", three_sequences, {product, plus}},
      {"layer", three_sequences, {normed, product, plus}},
      {"norm_head", one_wanted_then_none, {norm(512), head(512, 1000, i4)}},
      {"norm_head_sample", one_wanted_then_none, {norm(2048), head(2048, 333, i4a), sample(333)}},
      {"norm_head_of_last_row", last_row_wanted, {norm(256), head(256, 400, whole)}},
      {"norm3_head_sample", three_of_four_wanted, {norm(768), head(768, 500, i4), sample(500)}},
      {"norm4_rows_head_sample", four_rows_wanted, {norm(2048), head(2048, 210, i4a), sample(210)}},
      {"norm_head_of_some_rows", some_rows_wanted, {norm(512), head(512, 260, i4)}},
      {"embedding_and_row", one_token, entry(512, 256, i4, i4, true)},
      {"wide_embedding_and_row", first_token, entry(2048, 80, {SWY_BF16, 0}, i4a, false)},
      {"embedding_and_3_rows", three_rows_move, entry(256, 256, i4a, whole, true)},
      {"wide_embedding_and_4_rows", four_tokens, entry(2048, 112, i4, i4, false)},
      {"embedding_and_4_rows", four_rows, entry(768, 272, {SWY_F32, 0}, i4a, true)},
      {"norm_moe_add", one_token, {norm(256), mixture(256, 256, i4), add(256)}},
      {"norm2_moe_add", two_tokens, {norm(256), mixture(256, 256, i4, SWY_BF16), add(256)}},
      {"norm2_wide_moe_add", two_tokens, {norm(768), mixture(768, 512, i4, SWY_BF16), add(768)}},
      {"norm_moe_add_norm", one_token, {norm(256), mixture(256, 256, i4), add(256, 0)}},
      {"norm4_moe_add", four_tokens, {norm(512), mixture(512, 256, i4, SWY_BF16), add(512)}},
      {"norm4_rows_moe_add", four_rows, {norm(768), mixture(768, 512, i4, SWY_BF16), add(768)}},
      {"norm3_moe_add", three_rows_move, {norm(256), mixture(256, 256, i4), add(256)}},
      {"norms_moe_add", three_sequences, {norm(256), mixture(256, 64, i4, SWY_BF16), add(256)}},
      {"norms_moe_slices_add", three_sequences, {norm(256), mixture(256, 256, i4, SWY_BF16), add(256)}},
      {"norms_moe_add_norm", three_sequences, {norm(1280), mixture(1280, 64, i4, SWY_BF16), add(1280, 0)}},
      {"norms6_moe_add_norm_linear",
       six_tokens,
       {norm(512), mixture(512, 256, i4, SWY_BF16), add(512), norm(512), linear(512, 80, i4)}},
      {"norms11_moe_add_norm_linears",
       eleven_tokens,
       {norm(1536), mixture(1536, 64, i4, SWY_BF16), add(1536), norm(1536), two_linears(1536, 144, {SWY_I4A, 128})}},
      {"norms_moe_add_norm_linears",
       three_sequences,
       {norm(2048), mixture(2048, 256, i4, SWY_BF16), add(2048), norm(2048), two_linears(2048, 80, i4)}},
      {"delta6_linear_add", six_tokens, {delta(2, 4, 128), linear(512, 80, i4), add(80)}},
      {"delta11_linear_add", eleven_tokens, {delta(4, 8, 64), linear(512, 112, {SWY_I4A, 64}), add(112)}},
      {"delta6_pending_linear_add", six_tokens_pending, {delta(2, 4, 64, 128), linear(512, 80, i4), add(80)}},
      {"delta32_linear_add", one_token_moves, {delta(4, 8, 32), linear(256, 80, i4), add(80)}},
      {"delta128_linear_add", one_token, {delta(1, 2, 128), linear(256, 80, i4), add(80)}},
      {"delta2_linear_add", two_tokens, {delta(4, 8, 32), linear(256, 80, i4), add(80)}},
      {"delta64_linear_add", one_token, {delta(2, 4, 64), linear(256, 80, i4), add(80)}},
      {"delta256_linear_add", one_token, {delta(2, 2, 64, 256), linear(512, 80, i4), add(80)}},
      {"delta2_128_linear_add", two_tokens, {delta(1, 2, 128), linear(256, 80, i4), add(80)}},
      {"delta2_256_linear_add", two_tokens, {delta(2, 2, 64, 256), linear(512, 80, i4), add(80)}},
      {"delta2_wide_linear_add", two_tokens, {delta(9, 18, 128), linear(2304, 80, i4), add(80)}},
      {"delta4_rows_linear_add", four_rows, {delta(1, 2, 128), linear(256, 80, i4), add(80)}},
      {"delta3_wide_linear_add", three_rows_move, {delta(9, 18, 128), linear(2304, 80, i4), add(80)}},
      {"delta4_first_linear_add", first_rows, {delta(2, 4, 64, 128), linear(512, 80, i4), add(80)}},
      {"delta3_tokens_linear_add", three_tokens, {delta(2, 4, 64), linear(256, 80, i4), add(80)}},
      {"delta4_tokens_linear_add", four_tokens, {delta(1, 2, 128), linear(256, 80, i4), add(80)}},
      {"first_delta_linear_add", first_token, {delta(4, 8, 32), linear(256, 80, i4), add(80)}},
      {"delta4_drafts_linear_add", drafts, {delta(1, 2, 128), linear(256, 80, i4), add(80)}},
      {"delta2_drafts_linear_add", two_drafts, {delta(2, 4, 64), linear(256, 80, i4), add(80)}},
      {"delta2_pending_linear_add", two_tokens_pending, {delta(4, 8, 32), linear(256, 80, i4), add(80)}},
      {"delta128_pending_linear_add", one_token_pending, {delta(1, 2, 128), linear(256, 80, i4), add(80)}},
      {"norm_prompts_moe_add_norm_linears",
       prompts,
       {norm(512), mixture(512, 64, i4, SWY_BF16, 130), add(512), norm(512), two_linears(512, 144, i4)}},
      {"wide_router_norm_prompts_moe_add", prompts, {norm(512), mixture(512, 64, i4, SWY_BF16, 260), add(512)}},
      {"norm_prompt_moe_add_norm_linear",
       long_prompts,
       {norm(768), mixture(768, 64, whole, SWY_BF16), add(768), norm(768), linear(768, 80, whole)}},
      {"wide_norm_prompts_moe_add_norm_linear",
       long_prompts,
       {norm(2304), mixture(2304, 64, whole, SWY_BF16), add(2304), norm(2304), linear(2304, 80, whole)}},
      {"norm_prompt_moe_add", short_prompts, {norm(2304), mixture(2304, 64, i4, SWY_BF16, 100), add(2304)}},
      {"delta_prompts_linear_add", prompts, {delta(2, 4, 64, 128), linear(512, 80, i4), add(80)}},
      {"wide_delta_prompts_linear_add", prompts, {delta(17, 34, 128), linear(4352, 80, whole), add(80)}},
      {"delta_prompt_pending_linear_add", prompt_pending, {delta(4, 8, 32), linear(256, 80, i4), add(80)}},
      {"delta_layer", one_token, layer({delta(1, 2, 128)}, linear(256, 256, i4), 256, mixture(256, 256, i4, SWY_BF16))},
      {"delta_wide_layer", one_token_moves,
       layer({delta(9, 18, 128)}, linear(2304, 256, i4), 256, mixture(256, 512, i4))},
      {"delta_pending_layer", one_token_pending,
       layer({delta(4, 8, 32)}, linear(256, 256, i4a), 256, mixture(256, 256, i4a, SWY_BF16))},
      {"delta2_layer", two_tokens,
       layer({delta(2, 4, 64)}, linear(256, 512, i4), 512, mixture(512, 256, i4, SWY_BF16))},
      {"delta2_wide_layer", two_tokens_pending,
       layer({delta(9, 18, 128)}, linear(2304, 256, whole), 256, mixture(256, 256, i4))},
      {"delta2_drafts_layer", two_drafts,
       layer({delta(2, 2, 64, 256)}, linear(512, 256, i4), 256, mixture(256, 256, i4, SWY_BF16))},
      {"delta3_layer", three_rows_move,
       layer({delta(1, 2, 128)}, linear(256, 256, i4), 256, mixture(256, 256, i4, SWY_BF16))},
      {"delta4_layer", four_tokens,
       layer({delta(1, 2, 128)}, linear(256, 512, i4), 512, mixture(512, 256, i4, SWY_BF16))},
      {"delta4_rows_layer", four_rows,
       layer({delta(9, 18, 128)}, linear(2304, 256, i4a), 256, mixture(256, 256, i4, SWY_BF16))},
      {"delta4_pending_layer", four_tokens_pending,
       layer({delta(1, 2, 128)}, linear(256, 256, i4), 256, mixture(256, 256, i4))},
      {"attention4_rows_linear_add", four_rows, {attention(2, 1, 128), linear(256, 80, i4), add(80)}},
      {"attention3_far_linear_add", three_far_tokens, {attention(4, 1, 64), linear(256, 80, i4), add(80)}},
      {"attention3_groups_linear_add", three_tokens, {attention(20, 2, 64), linear(1280, 80, i4), add(80)}},
      {"attention4_groups_layer", four_rows,
       layer({attention(12, 1, 128, false)}, linear(1536, 256, i4), 256, mixture(256, 256, i4))},
      {"attention3_layer", three_rows_move,
       layer({attention(8, 2, 64, false)}, linear(512, 256, i4), 256, mixture(256, 512, i4, SWY_BF16))},
      {"attention4_layer", four_tokens,
       layer({attention(4, 1, 256)}, linear(1024, 512, i4a), 512, mixture(512, 256, i4, SWY_BF16))},
      {"attention4_ahead_layer", four_rows_ahead,
       layer({attention(9, 3, 256)}, linear(2304, 256, whole), 256, mixture(256, 256, i4))},
      {"attention_far_layer", far_token,
       layer({attention(4, 1, 256)}, linear(1024, 512, i4), 512, mixture(512, 256, i4, SWY_BF16))},
      {"attention_far_groups_layer", far_token,
       layer({attention(10, 1, 256, false)}, linear(2560, 256, i4a), 256, mixture(256, 256, i4))},
      {"linear_layer", one_token, layer({}, linear(512, 256, i4), 256, mixture(256, 256, i4, SWY_BF16))},
      {"linear_wide_layer", one_token, layer({}, linear(2304, 256, i4a), 256, mixture(256, 512, i4a))},
      {"linear_eight_layer", one_token, layer({}, linear(512, 512, i4), 512, mixture(512, 256, i4, SWY_BF16, 10, 8))},
      {"linear2_eight_layer", two_tokens, layer({}, linear(512, 512, i4), 512, mixture(512, 256, i4, SWY_BF16, 10, 8))},
      {"linear2_layer", two_tokens, layer({}, linear(256, 512, whole), 512, mixture(512, 256, i4, SWY_BF16))},
      {"linear2_wide_layer", two_tokens, layer({}, linear(4096, 256, i4), 256, mixture(256, 256, i4, SWY_BF16))},
      {"linear3_layer", three_rows_move, layer({}, linear(512, 256, whole), 256, mixture(256, 256, i4))},
      {"linear3_ahead_layer", three_rows_ahead, layer({}, linear(512, 256, i4), 256, mixture(256, 256, i4))},
      {"linear4_ahead_layer", four_rows_ahead, layer({}, linear(512, 768, i4), 768, mixture(768, 512, i4, SWY_BF16))},
      {"linear4_wide_layer", four_tokens, layer({}, linear(4096, 768, i4), 768, mixture(768, 512, i4, SWY_BF16))}};
  return all;
}

std::vector<Case> build_chain(const Chain& chain, Random& random) {
  std::vector<Case> out;
  for (const Link& link : chain.links) {
    Builder b(link.op, random);
    chain.step(b);
    link.operands(b);
    out.push_back(b.done());
  }
  give_chain_input(chain, out);
  return out;
}

bool adds_chain_input(const Chain& chain, const std::vector<Case>& links, size_t i) {
  return i > 0 && !links[0].inputs.empty() && links[i].op == SWY_OP_ADD && chain.links[i].adds == SIZE_MAX &&
         links[i].width(1) == links[0].width(0);
}

std::optional<size_t> read_by(const Chain& chain, size_t i) {
  const size_t reads = chain.links[i].reads;
  if (i == 0 || reads == kOutside) return std::nullopt;
  return reads == kBefore ? i - 1 : reads;
}

std::vector<Outcome> one_by_one(const Kit& kit, const Chain& chain, std::vector<Case>& links, Random& random) {
  while (true) {
    std::vector<Outcome> out;
    std::vector<uint64_t> unclear;
    const auto give = [&](size_t to, size_t input, size_t from) {
      for (size_t step = 0; step < links[to].steps.size(); ++step) {
        const std::vector<double>& value = out[from].outputs[step][0].values;
        links[to].steps[step].inputs[input].floats.assign(value.begin(), value.end());
      }
    };
    for (size_t i = 0; i < links.size(); ++i) {
      Case& c = links[i];
      if (const auto from = read_by(chain, i)) give(i, 0, *from);
      if (chain.links[i].adds < i) give(i, 1, chain.links[i].adds);
      unclear = unclear_rows(c);
      if (!unclear.empty()) break;
      out.push_back(kit.expected(Check{}, c));
    }
    if (out.size() == links.size()) return out;
    const uint64_t width = links[0].width(0);
    for (Step& s : links[0].steps) {
      for (const uint64_t row : unclear) {
        if (row >= s.rows()) continue;
        const std::vector<float> x = random.normals(width);
        std::copy(x.begin(), x.end(), s.inputs[0].floats.begin() + static_cast<ptrdiff_t>(row * width));
      }
    }
    give_chain_input(chain, links);
  }
}

std::string compare_chains(const Plugin& plugin, const std::vector<Case>& links, const std::vector<Outcome>& wanted,
                           const std::vector<Outcome>& got) {
  for (size_t i = 0; i < links.size(); ++i) {
    const std::string problem = compare_states(plugin, links[i], wanted[i], got[i]);
    if (!problem.empty()) return text(op_name(links[i].op), ": ", problem);
    if (got[i].outputs.empty()) continue;
    for (size_t step = 0; step < links[i].steps.size(); ++step) {
      for (size_t j = 0; j < wanted[i].outputs[step].size(); ++j) {
        if (wanted[i].outputs[step][j].dtype == SWY_I32) {
          const std::string draws =
              compare_draws(links[i].steps[step], wanted[i - 1].outputs[step][0], got[i].outputs[step][j]);
          if (!draws.empty()) return text("operation ", i, " (", op_name(links[i].op), "), step ", step, ": ", draws);
          continue;
        }
        const double error = relative_error(links[i].steps[step], links[i].outputs[j].desc.rows,
                                            wanted[i].outputs[step][j], got[i].outputs[step][j]);
        if (error <= kBudget) continue;
        return text("output ", j, " of operation ", i, " (", op_name(links[i].op), ") has a relative error of ", error,
                    " (budget ", kBudget, ") in step ", step);
      }
    }
  }
  return "";
}

}  // namespace switchyard::check
