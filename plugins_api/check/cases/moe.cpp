// SPDX-License-Identifier: Apache-2.0
// MOE, MOE_ADD, ROUTER_TOPK, EXPERTS.
//
// Which experts a row gets must not depend on a rounding error. So rows are drawn until the chosen experts lead the
// others clearly, or the logits are such that nothing is rounded, or the ids are given.
#include <algorithm>
#include <cmath>
#include <optional>

#include "plugins_api/check/cases.h"
#include "plugins_api/check/naive/router.h"
#include "plugins_api/check/quantize.h"
#include "switchyard/sdk/operands.hpp"
#include "switchyard/weights.h"

namespace switchyard::check {
namespace {

using Moe = swy::Operands<SWY_OP_MOE, SWY_OP_MOE_ADD>;
using Given = swy::Operands<SWY_OP_MOE, SWY_OP_EXPERTS>;

// What the second revision adds.
struct Second {
  uint32_t router = SWY_ROUTER_SOFTMAX_TOPK;
  bool normalize = true;
  uint32_t groups = 1, top_groups = 1;
  float scale = 1;
  bool router_bias = false, correction = false, expert_bias = false, clamped = false;
  std::string name() const {
    constexpr const char* kRouters[] = {".softmax", ".topk_softmax", ".sigmoid"};
    std::string s = std::string(kRouters[router]) + (normalize ? "" : ".raw");
    if (groups > 1) s += ".groups" + std::to_string(top_groups) + "of" + std::to_string(groups);
    if (scale != 1) s += ".scaled";
    return s + (router_bias ? ".router_bias" : "") + (correction ? ".corrected" : "") +
           (expert_bias ? ".expert_bias" : "") + (clamped ? ".clamped" : "");
  }
};

struct Mixture {
  uint32_t rows, experts, top_k, hidden, width, shared;
  Encoding encoding;
  // crowded: all rows choose one expert first; tied: the router has experts with equal logits; beyond: given, with ids
  // outside the experts, and rows that have one expert twice
  enum Routing { kRouter, kGiven, kCrowded, kTied, kBeyond } routing = kRouter;
  bool uneven = false, mixed = false;  // mixed: weights of several encodings
  swy_dtype router = SWY_F32, mix = SWY_BF16;
  std::optional<Encoding> down = {};  // if not `encoding`
  float slope = 2;                    // of a tied router
  std::optional<Second> second = {};
  uint32_t revision() const { return second ? 2 : 1; }
  bool given() const { return routing == kGiven || routing == kCrowded || routing == kBeyond; }
};

std::string label(swy_op_id op, const Mixture& m) {
  std::string s = op_name(op) + "." + m.encoding.name() + ".rows" + std::to_string(m.rows) + ".top" +
                  std::to_string(m.top_k) + "of" + std::to_string(m.experts) + ".hidden" + std::to_string(m.hidden) +
                  ".width" + std::to_string(m.width);
  if (m.shared != 0) s += ".shared" + std::to_string(m.shared);
  constexpr const char* kRoutings[] = {"", ".given", ".crowded", ".tied", ".beyond"};
  s += kRoutings[m.routing];
  if (m.router != SWY_F32) s += ".router_" + encoding_name(m.router, 0);
  if (m.mix != SWY_BF16) s += ".mix_" + encoding_name(m.mix, 0);
  if (m.down) s += ".down_" + m.down->name();
  if (m.slope > 2) s += ".steep";
  if (m.second) s += m.second->name();
  return s + (m.uneven ? ".uneven" : "") + (m.mixed ? ".mixed" : "");
}

// Whether the second revision's choice, and if `in_order` also its order, stays what it is if every logit moves by up
// to `by`.
bool is_steady(const Case& c, const std::vector<double>& logits, double by, bool in_order) {
  const swy_moe_attrs a = naive::moe_attrs(c);
  const Weight* correction = c.weight("correction_bias");
  const std::vector<double> scores = naive::scores_of(a, logits);
  std::vector<double> low, choices, high;
  for (uint32_t e = 0; e < a.experts; ++e) {
    const double add = correction == nullptr ? 0 : (*correction)[e];
    const auto moved = [&](double d) {
      if (a.router == SWY_ROUTER_SOFTMAX_TOPK) return scores[e] * std::exp(2 * d);  // the sum moves, too
      return a.router == SWY_ROUTER_TOPK_SOFTMAX ? logits[e] + d : 1 / (1 + std::exp(-logits[e] - d));
    };
    low.push_back(moved(-by) + add);
    choices.push_back(scores[e] + add);
    high.push_back(moved(by) + add);
  }
  const std::vector<double> ranks = naive::group_ranks(a, choices), least = naive::group_ranks(a, low),
                            most = naive::group_ranks(a, high);
  const std::vector<uint32_t> groups = naive::largest(ranks, a.expert_groups);
  for (uint32_t g = a.top_groups; g < a.expert_groups; ++g) {
    for (uint32_t kept = 0; kept < a.top_groups; ++kept) {
      if (least[groups[kept]] <= most[groups[g]]) return false;
    }
  }
  const uint32_t remain = a.experts / a.expert_groups * a.top_groups;
  const std::vector<uint32_t> order = naive::largest(naive::in_top_groups(a, choices), remain);
  for (uint32_t j = 0; j < a.top_k; ++j) {
    for (uint32_t i = in_order ? j + 1 : a.top_k; i < remain; ++i) {
      if (low[order[j]] <= high[order[i]]) return false;
    }
  }
  return true;
}

// Whether the k-th best of the logits is well above the next.
bool clear(const Case& c, const float* x, uint32_t hidden, uint32_t experts, uint32_t top_k) {
  std::vector<double> logits(experts);
  double squares = 0;
  const Weight* bias = c.weight("router_bias");
  for (uint32_t e = 0; e < experts; ++e) {
    for (uint32_t i = 0; i < hidden; ++i) logits[e] += c.weights[Moe::weight("router")].at(e, i) * x[i];
    squares += logits[e] * logits[e];
    if (bias != nullptr) logits[e] += (*bias)[e];
  }
  if (c.revision == 2) return is_steady(c, logits, 0.04 * std::sqrt(squares / experts), false);
  std::sort(logits.rbegin(), logits.rend());
  const double gap = logits[top_k - 1] - logits[top_k];
  return gap * gap * experts > 0.0064 * squares;  // 8% of the spread, several times an 8-bit rounding error
}

void clear_rows(Case& c, const Mixture& m, Random& random) {
  const bool all = m.top_k == m.experts;
  for (uint32_t r = 0; random.draws() && !all && r < m.rows; ++r) {
    float* x = &c.steps[0].inputs[Moe::input("x")].floats[uint64_t{r} * m.hidden];
    while (!clear(c, x, m.hidden, m.experts, m.top_k)) {
      for (uint32_t i = 0; i < m.hidden; ++i) x[i] = static_cast<float>(random.normal());
    }
  }
}

constexpr uint32_t kAlike = 4;  // experts with equal logits in a router with ties

// A logit is one element of the row, times the slope: rounded or not, whatever sums it up, experts that look at the
// same element have the same bits. Of the elements that they look at, each is another multiple of a quarter.
void tie(Case& c, const Mixture& m, Random& random) {
  const uint32_t kinds = m.experts / kAlike;  // expert e is of kind e % kinds
  std::vector<float> router(uint64_t{m.experts} * m.hidden);
  std::vector<uint32_t> columns = random.permutation(m.hidden);
  for (uint32_t e = 0; e < m.experts; ++e) router[uint64_t{e} * m.hidden + columns[e % kinds]] = m.slope;
  encode_weight(c.weights[Moe::weight("router")], router);
  for (uint32_t r = 0; r < m.rows; ++r) {
    const std::vector<uint32_t> order = random.permutation(kinds);
    for (uint32_t k = 0; k < kinds; ++k) {
      c.steps[0].inputs[Moe::input("x")].floats[uint64_t{r} * m.hidden + columns[k]] =
          (static_cast<float>(order[k]) - static_cast<float>(kinds) / 2) / 4;
    }
  }
}

int32_t beyond(const Mixture& m, uint32_t i) {
  const auto experts = static_cast<int32_t>(m.experts);
  const int32_t ids[] = {experts, -1, 2 * experts + 1, INT32_MIN, INT32_MAX};
  return ids[i / 2 % std::size(ids)];
}

// Distinct ids in random order, and weights that add up to 1.
void give_routing(Case& c, const Mixture& m, Random& random) {
  Step& s = c.steps[0];
  std::vector<int32_t>& given_ids = s.inputs[Given::input("expert_ids")].ints;
  std::vector<float>& given_weights = s.inputs[Given::input("expert_weights")].floats;
  for (uint32_t r = 0; r < m.rows; ++r) {
    std::vector<uint32_t> ids = random.permutation(m.experts);
    if (m.routing == Mixture::kCrowded) std::swap(ids[0], *std::find(ids.begin(), ids.end(), m.experts / 2));
    float* weights = random.draws() ? &given_weights[uint64_t{r} * m.top_k] : nullptr;
    double sum = 0;
    for (uint32_t j = 0; j < m.top_k; ++j) {
      given_ids[uint64_t{r} * m.top_k + j] = static_cast<int32_t>(ids[j]);
      if (m.routing == Mixture::kBeyond && (r + j) % 2 == 0) given_ids[uint64_t{r} * m.top_k + j] = beyond(m, r + j);
      if (weights != nullptr) sum += weights[j] = static_cast<float>(0.05 + random.uniform());
    }
    for (uint32_t j = 0; weights != nullptr && j < m.top_k; ++j) weights[j] = static_cast<float>(weights[j] / sum);
  }
}

swy_moe_attrs attributes(const Mixture& m) {
  swy_moe_attrs a{};
  a.experts = m.experts;
  a.top_k = m.top_k;
  a.width = m.width;
  a.shared_width = m.shared;
  if (!m.second) return a;
  a.router = m.second->router;
  a.normalize = m.second->normalize ? 1 : 0;
  a.expert_groups = m.second->groups;
  a.top_groups = m.second->top_groups;
  a.routed_scale = m.second->scale;
  a.router_bias = m.second->router_bias ? 1 : 0;
  a.correction_bias = m.second->correction ? 1 : 0;
  a.expert_bias = m.second->expert_bias ? 1 : 0;
  if (m.second->clamped) a.activation = SWY_ACT_CLAMPED, a.act_alpha = 1.702f, a.act_limit = 0.8f;
  return a;
}

// Corrections as large as the differences of scores.
void correction(Builder& b, const Mixture& m) { b.plain({m.experts}, SWY_F32, 0, 0.2); }

void biases(Builder& b, swy_op_id op, const Mixture& m) {
  if (!m.second) return;
  if (op != SWY_OP_EXPERTS && m.second->router_bias) b.bias({m.experts}, SWY_BF16);
  if (op != SWY_OP_EXPERTS && m.second->correction) correction(b, m);
  if (!m.second->expert_bias) return;
  b.bias({m.experts, 2 * uint64_t{m.width}}, SWY_BF16).bias({m.experts, m.hidden}, SWY_F32);
}

Case mixture(swy_op_id op, const Mixture& m, Random& random) {
  const auto [dtype, group] = m.encoding;
  Builder b(op, random, m.revision());
  b.attrs(attributes(m)).rows(ragged(m.rows)).input(m.hidden);
  if (op == SWY_OP_MOE_ADD) b.input(m.hidden);
  if (m.given()) b.int_input(m.top_k).fixed_input(m.top_k);
  // Logits with a spread of 2: the weights of the chosen experts differ, and none vanishes.
  if (op != SWY_OP_EXPERTS) b.plain({m.experts, m.hidden}, m.router, 0, 2 / std::sqrt(static_cast<double>(m.hidden)));
  b.matrix({m.experts, 2 * m.width, m.hidden}, dtype, group, 1.5);
  const Encoding down = m.down ? *m.down : m.mixed ? Encoding{SWY_I8, 64} : m.encoding;
  const Encoding one = m.mixed ? Encoding{SWY_BF16, 0} : m.encoding, one_down = m.mixed ? one : down;
  b.matrix({m.experts, m.hidden, m.width}, down.dtype, down.group);
  if (m.shared != 0) {
    b.matrix({m.shared, m.hidden}, one.dtype, one.group, 1.5).matrix({m.shared, m.hidden}, one.dtype, one.group);
    b.matrix({m.hidden, m.shared}, one_down.dtype, one_down.group).matrix({1, m.hidden}, m.mix, 0);
  }
  biases(b, op, m);
  Case c = b.output(m.hidden).done(m.rows > 4 ? 3 : m.rows == 3 ? 1 : 0);  // some kernels take up to four rows
  if (m.given()) {
    give_routing(c, m, random);
  } else if (m.routing == Mixture::kTied) {
    if (random.draws()) tie(c, m, random);
  } else {
    clear_rows(c, m, random);
  }
  if (m.uneven) make_uneven(c);
  return c;
}

// Logits of a row are a random order of evenly spaced values, so that none are close; the last row has ties. Steep ones
// reach values whose exponential is beyond fp32.
Case router(const Mixture& m, Random& random) {
  Builder b(SWY_OP_ROUTER_TOPK, random, m.revision());
  b.attrs(attributes(m)).rows(ragged(m.rows)).input(m.experts);
  if (m.second && m.second->correction) correction(b, m);
  b.fixed_output(m.top_k, SWY_I32).fixed_output(m.top_k, SWY_F32);
  Case c = b.done(m.rows > 2 ? 3 : 0);
  for (uint32_t r = 0; m.second && random.draws() && r < m.rows; ++r) {
    float* row = &c.steps[0].inputs[swy::Operands<SWY_OP_ROUTER_TOPK>::input("logits")].floats[uint64_t{r} * m.experts];
    do {
      for (uint32_t e = 0; e < m.experts; ++e) row[e] = static_cast<float>(2 * random.normal());
    } while (!is_steady(c, {row, row + m.experts}, 1e-5, true));
  }
  for (uint32_t r = 0; !m.second && random.draws() && r < m.rows; ++r) {
    const std::vector<uint32_t> order = random.permutation(m.experts);
    for (uint32_t e = 0; e < m.experts; ++e) {
      const float even = (static_cast<float>(order[e]) - static_cast<float>(m.experts) / 2) * 0.0625f * m.slope;
      c.steps[0].inputs[swy::Operands<SWY_OP_ROUTER_TOPK>::input("logits")].floats[uint64_t{r} * m.experts + e] =
          r + 1 < m.rows ? even : static_cast<float>(order[e] / 3);
    }
  }
  return c;
}

using Ops = std::vector<swy_op_id>;

void put(std::vector<CaseSpec>& out, const Mixture& m, bool slow,
         const Ops& ops = {SWY_OP_MOE, SWY_OP_MOE_ADD, SWY_OP_EXPERTS}) {
  for (const swy_op_id op : ops) {
    Mixture n = m;
    if (op == SWY_OP_MOE_ADD && n.given()) n.routing = Mixture::kRouter;
    if (op == SWY_OP_EXPERTS) n.shared = 0;
    if (op == SWY_OP_EXPERTS && !n.given()) n.routing = Mixture::kGiven;
    const std::string name = label(op, n);
    const bool there = std::any_of(out.begin(), out.end(), [&](const CaseSpec& s) { return s.name == name; });
    if (!there) out.push_back({op, name, slow, [=](Random& random) { return mixture(op, n, random); }});
  }
}

void put_router(std::vector<CaseSpec>& out, const Mixture& m) {
  out.push_back({SWY_OP_ROUTER_TOPK,
                 "router_topk.rows" + std::to_string(m.rows) + ".top" + std::to_string(m.top_k) + "of" +
                     std::to_string(m.experts) + (m.slope > 2 ? ".steep" : "") + (m.second ? m.second->name() : ""),
                 false, [=](Random& random) { return router(m, random); }});
}

// One row, and weights of 4 bits in whole tiles of 16 rows by 256 columns: more slices of a row than one warp has, and
// fewer; more experts than a warp has lanes; all experts chosen; ties at the border of the chosen experts.
void decoding_cases(std::vector<CaseSpec>& out) {
  const Encoding i4{SWY_I4, 64}, i4a{SWY_I4A, 64}, wide{SWY_I4, 128}, row{SWY_I4A, 0};
  Mixture bf16_router{1, 3, 2, 512, 256, 256, i4};
  bf16_router.router = SWY_BF16, bf16_router.mix = SWY_F32;
  Mixture two_encodings{1, 8, 8, 256, 256, 256, row};
  two_encodings.down = wide;
  for (const Mixture& m : {Mixture{1, 6, 4, 256, 256, 256, i4}, Mixture{1, 10, 8, 256, 256, 256, i4a}, two_encodings}) {
    put(out, m, false, {SWY_OP_MOE, SWY_OP_MOE_ADD});
  }
  put(out, {1, 2, 1, 512, 512, 0, wide}, false, {SWY_OP_MOE});
  put(out, {1, 2, 1, 2048, 256, 0, i4}, false, {SWY_OP_MOE});
  put(out, bf16_router, false, {SWY_OP_MOE});
  put(out, {1, 36, 6, 256, 256, 0, i4, Mixture::kTied}, false, {SWY_OP_MOE});
  for (const Mixture& m : {Mixture{2, 10, 8, 512, 256, 256, i4a}, Mixture{2, 9, 8, 2048, 256, 256, i4}}) {
    put(out, m, false, {SWY_OP_MOE, SWY_OP_MOE_ADD});
  }
  put(out, {1, 9, 8, 2048, 256, 256, wide}, false, {SWY_OP_MOE});
  put(out, {1, 4, 3, 256, 768, 768, i4}, true, {SWY_OP_MOE, SWY_OP_MOE_ADD});
  put(out, {1, 256, 8, 256, 256, 256, i4}, true, {SWY_OP_MOE});
}

// The same of three and four rows, with routers of bf16 and of fp32.
void few_cases(std::vector<CaseSpec>& out) {
  const Encoding i4{SWY_I4, 64}, i4a{SWY_I4A, 64}, wide{SWY_I4, 128}, row{SWY_I4A, 0};
  Mixture fp32_router{3, 7, 3, 512, 256, 256, i4a}, two_encodings{4, 8, 8, 256, 256, 256, row};
  fp32_router.mix = SWY_F32;
  two_encodings.down = wide;
  put(out, fp32_router, false, {SWY_OP_MOE, SWY_OP_MOE_ADD});
  fp32_router.encoding = i4;
  put(out, fp32_router, false, {SWY_OP_MOE, SWY_OP_MOE_ADD});
  for (const Mixture& m :
       {Mixture{4, 18, 8, 512, 256, 256, i4}, Mixture{3, 10, 4, 768, 512, 512, i4}, Mixture{4, 9, 1, 256, 256, 0, i4},
        Mixture{4, 9, 1, 256, 256, 0, i4a}, Mixture{4, 36, 6, 256, 256, 256, i4, Mixture::kTied}, two_encodings}) {
    Mixture n = m;
    n.router = SWY_BF16;
    put(out, n, false, {SWY_OP_MOE, SWY_OP_MOE_ADD});
  }
  for (const Mixture& m : {Mixture{4, 256, 8, 256, 64, 64, i4}, Mixture{4, 9, 8, 2048, 512, 512, i4}}) {
    Mixture n = m;
    n.router = SWY_BF16;
    put(out, n, true, {SWY_OP_MOE_ADD});
  }
}

// Several rows and a router of bf16: widths of one and of two spans of 128 per eighth, rows that end within eight, a
// gate of fp32, ties, and all rows on one expert.
void batch_cases(std::vector<CaseSpec>& out) {
  const Encoding i4{SWY_I4, 64};
  for (const Mixture& m : {Mixture{2, 16, 4, 256, 64, 64, i4}, Mixture{9, 18, 8, 1184, 32, 32, i4},
                           Mixture{64, 12, 3, 1024, 32, 64, i4}, Mixture{20, 36, 6, 256, 64, 0, i4, Mixture::kTied},
                           Mixture{65, 16, 4, 256, 64, 64, i4}, Mixture{65, 130, 4, 256, 64, 64, i4}}) {
    Mixture n = m;
    n.router = SWY_BF16;
    if (m.rows == 9) n.mix = SWY_F32;
    put(out, n, false, {SWY_OP_MOE, SWY_OP_MOE_ADD});
  }
  Mixture one_expert{64, 3, 3, 256, 64, 64, i4}, wide{33, 20, 8, 2048, 64, 0, i4}, most{32, 256, 8, 2048, 32, 32, i4};
  one_expert.router = wide.router = most.router = SWY_BF16;
  put(out, one_expert, false, {SWY_OP_MOE_ADD});
  put(out, wide, true, {SWY_OP_MOE, SWY_OP_MOE_ADD});
  put(out, most, true, {SWY_OP_MOE, SWY_OP_MOE_ADD});
}

// The same with experts of 4 bits in whole slices of 256 columns: groups of every size, with and without offsets, one
// slice and several, rows that end within four, more rows on an expert than a word has bits, no expert for most rows.
void slice_cases(std::vector<CaseSpec>& out) {
  const Encoding i4{SWY_I4, 64}, i4a{SWY_I4A, 64}, wide{SWY_I4, 128}, row{SWY_I4A, 0};
  Mixture two_encodings{64, 8, 8, 256, 512, 512, row};
  two_encodings.down = wide;
  for (const Mixture& m :
       {Mixture{2, 7, 1, 1024, 256, 0, i4}, Mixture{9, 18, 8, 512, 256, 256, i4a},
        Mixture{21, 10, 3, 768, 256, 0, wide}, Mixture{34, 36, 6, 256, 256, 256, i4, Mixture::kTied}, two_encodings}) {
    Mixture n = m;
    n.router = SWY_BF16;
    put(out, n, false, {SWY_OP_MOE, SWY_OP_MOE_ADD});
  }
  Mixture most{64, 256, 8, 256, 256, 256, i4};
  most.router = SWY_BF16;
  put(out, most, true, {SWY_OP_MOE_ADD});
}

// More experts than an id of 8 bits has, and more of them at once than a warp's share; widths that fit no vector; many
// rows; logits whose exponential is beyond fp32.
void odd_cases(std::vector<CaseSpec>& out) {
  const Encoding f32{SWY_F32, 0}, bf16{SWY_BF16, 0}, i4{SWY_I4, 64};
  put(out, {3, 300, 12, 36, 16, 0, {SWY_I4, 32}}, false);
  put(out, {3, 300, 12, 256, 32, 0, {SWY_I4, 32}}, false, {SWY_OP_MOE_ADD});
  for (const Encoding& e : {f32, bf16, Encoding{SWY_I8, 64}, Encoding{SWY_I4, 32}, Encoding{SWY_I4A, 64}}) {
    put(out, {5, 7, 3, 101, 19, 21, e}, false);
  }
  put(out, {1025, 5, 2, 37, 11, 13, bf16}, false);
  put(out, {1025, 8, 2, 256, 64, 64, i4}, false, {SWY_OP_MOE_ADD});
  Mixture steep{9, 36, 6, 256, 64, 0, i4, Mixture::kTied};
  steep.slope = 512;
  put(out, steep, false, {SWY_OP_MOE, SWY_OP_MOE_ADD});
  steep = {9, 67, 8, 0, 0, 0, i4};
  steep.slope = 64;
  put_router(out, steep);
  put_router(out, {5, 300, 12, 0, 0, 0, i4});
  put_router(out, {1025, 512, 16, 0, 0, 0, i4});
}

// The routers and experts of gpt-oss, DeepSeek and OLMoE, and choices that none of them makes.
std::vector<Second> second_forms() {
  Second gpt_oss, deepseek, raw, softmax_groups, corrected_topk;
  gpt_oss.router = SWY_ROUTER_TOPK_SOFTMAX;
  gpt_oss.router_bias = gpt_oss.expert_bias = gpt_oss.clamped = true;
  deepseek.router = SWY_ROUTER_SIGMOID_TOPK;
  deepseek.groups = 4, deepseek.top_groups = 2, deepseek.scale = 2.5f;
  deepseek.correction = true;
  raw.normalize = false;
  softmax_groups.groups = 2, softmax_groups.normalize = false, softmax_groups.scale = 16;
  softmax_groups.expert_bias = true;
  corrected_topk.router = SWY_ROUTER_TOPK_SOFTMAX;
  corrected_topk.correction = corrected_topk.clamped = true;
  return {gpt_oss, deepseek, raw, softmax_groups, corrected_topk, {}};
}

void second_cases(std::vector<CaseSpec>& out) {
  const Encoding bf16{SWY_BF16, 0}, i4{SWY_I4, 64}, mxfp4{SWY_MXFP4, SWY_MXFP4_GROUP};
  const auto with = [](Mixture m, const Second& second) {
    m.second = second;
    return m;
  };
  for (const Second& second : second_forms()) {
    for (const uint32_t rows : {1u, 5u, 65u}) put(out, with({rows, 16, 4, 64, 36, 24, {SWY_I4, 32}}, second), false);
    for (const Encoding& e : {Encoding{SWY_F32, 0}, bf16, mxfp4}) {
      put(out, with({3, 16, 4, 101, 19, 0, e}, second), false);
      put(out, with({17, 8, 3, 256, 64, 64, e}, second), false);
    }
    put(out, with({513, 8, 2, 36, 12, 12, {SWY_I8, 64}}, second), false);
    for (const uint32_t rows : {1u, 63u, 513u}) put_router(out, with({rows, 32, 4, 0, 0, 0, i4}, second));
    put_router(out, with({3, 256, 8, 0, 0, 0, i4}, second));
  }
  const Second gpt_oss = second_forms()[0];
  for (const uint32_t rows : {1u, 4u, 70u}) put(out, with({rows, 32, 4, 288, 96, 0, mxfp4}, gpt_oss), false);
  for (const Encoding& e : all_encodings()) {
    put(out, with({9, 8, 2, 256, 64, 64, e, Mixture::kGiven}, gpt_oss), false);
    for (const uint32_t rows : {1u, 16u, 130u}) put(out, with({rows, 16, 4, 100, 48, 36, e}, gpt_oss), true);
  }
  put(out, with({5, 7, 7, 64, 24, 24, i4}, gpt_oss), false);  // all experts
  // What the experts of a row have in their middle is more than a workgroup's memory.
  put(out, with({2, 6, 4, 64, 2080, 0, mxfp4}, gpt_oss), true);
  put(out, {2, 6, 5, 64, 1632, 96, i4}, true, {SWY_OP_MOE, SWY_OP_MOE_ADD});
}

}  // namespace

std::vector<uint64_t> unclear_rows(const Case& c) {
  std::vector<uint64_t> rows;
  if (c.op != SWY_OP_MOE && c.op != SWY_OP_MOE_ADD) return rows;
  const auto a = c.attributes<swy_moe_attrs>();
  const uint64_t hidden = c.width(Moe::input("x"));
  const std::vector<float>& x = c.steps[0].inputs[Moe::input("x")].floats;
  for (uint64_t at = 0; a.top_k < a.experts && at < x.size(); at += hidden) {
    if (!clear(c, &x[at], static_cast<uint32_t>(hidden), a.experts, a.top_k)) rows.push_back(at / hidden);
  }
  return rows;
}

void moe_cases(std::vector<CaseSpec>& out) {
  const Encoding i4{SWY_I4, 32};
  for (const Encoding& e : all_encodings()) {
    put(out, {17, 7, 3, 48, 36, 40, e}, false);
    put(out, {1, 7, 2, 100, 36, 0, e, Mixture::kGiven}, false);
  }
  for (uint32_t k = 1; k <= 8; ++k) put(out, {5, 9, k, 36, 20, k % 2 == 0 ? 28u : 0u, i4}, false);
  for (const uint32_t rows : {1u, 2u, 63u, 65u}) {
    put(out, {rows, 11, 4, 64, 24, 24, i4}, false);
    put(out, {rows, 11, 4, 64, 24, 24, i4, Mixture::kCrowded}, false);
    put(out, {rows, 11, 4, 64, 24, 24, i4, Mixture::kBeyond}, false, {SWY_OP_MOE, SWY_OP_EXPERTS});
  }
  for (const uint32_t rows : {1u, 65u}) put(out, {rows, 5, 1, 64, 24, 24, i4, Mixture::kCrowded}, false);
  for (const Encoding& e : {i4, Encoding{SWY_BF16, 0}, Encoding{SWY_I4A, 64}}) {
    put(out, {9, 7, 3, 100, 36, 40, e, Mixture::kRouter, true}, false);
    put(out, {17, 7, 3, 100, 36, 40, e, Mixture::kRouter, false, true}, false);
  }
  for (const uint32_t rows : {1u, 64u}) {
    put(out, {rows, 16, 8, 256, 64, 64, {SWY_I4, 64}, Mixture::kBeyond}, false, {SWY_OP_MOE, SWY_OP_EXPERTS});
  }
  put(out, {513, 5, 2, 36, 12, 12, {SWY_I8, 64}}, false);
  put(out, {8, 64, 8, 128, 32, 32, i4}, false);
  for (const Encoding& e : {Encoding{SWY_BF16, 0}, Encoding{SWY_I8, 64}, Encoding{SWY_I4, 64}, Encoding{SWY_I4A, 32}}) {
    for (const uint32_t rows : {1u, 5u, 70u}) put(out, {rows, 16, 4, 256, 64, 64, e}, false);  // whole groups all over
    put(out, {70, 16, 2, 256, 64, 64, e, Mixture::kCrowded}, false);
    put(out, {200, 4, 2, 288, 160, 96, e}, false, {SWY_OP_MOE_ADD});  // a hundred rows an expert, each in several parts
    put(out, {1, 16, 4, 256, 256, 256, {e.dtype, e.dtype == SWY_BF16 ? 0u : 32u}}, false);
  }
  // Several spans of 256 columns, the last one of one group of 64; wide groups.
  for (const Encoding& e : {Encoding{SWY_I4, 64}, Encoding{SWY_I4, 0}}) {
    Mixture spans{130, 8, 3, 832, 192, 192, e};
    put(out, spans, false, {SWY_OP_MOE});
    spans.router = SWY_BF16;
    put(out, spans, false, {SWY_OP_MOE_ADD});
  }
  // More than 128 rows an expert.
  put(out, {260, 3, 2, 576, 192, 128, {SWY_I4, 64}}, false, {SWY_OP_MOE});
  put(out, {260, 3, 2, 320, 64, 64, {SWY_I4, 0}}, false, {SWY_OP_MOE_ADD});
  put(out, {290, 4, 2, 832, 192, 192, {SWY_I4, 64}}, true);
  put(out, {260, 4, 2, 512, 512, 512, {SWY_I4, 64}}, true);  // rows of eight scales
  // Groups of half a piece of 16 bytes, and of a whole one.
  for (const Encoding& e : {Encoding{SWY_I4, 16}, Encoding{SWY_I8, 16}}) {
    for (const uint32_t rows : {1u, 5u, 70u}) put(out, {rows, 16, 4, 256, 64, 64, e}, false);
  }
  second_cases(out);
  decoding_cases(out);
  few_cases(out);
  batch_cases(out);
  slice_cases(out);
  for (const Encoding& e : all_encodings()) {
    for (const uint32_t rows : {1u, 4u, 16u, 33u, 63u, 65u, 130u, 513u}) {
      put(out, {rows, 13, 4, 100, 48, 36, e}, true);
      put(out, {rows, 40, 8, 64, 36, 0, e, Mixture::kGiven}, true);
    }
  }
  odd_cases(out);
  for (uint32_t k = 1; k <= 8; ++k) put_router(out, {7, 9, k, 0, 0, 0, i4});
  for (const uint32_t rows : {1u, 63u, 65u, 513u}) put_router(out, {rows, 67, 8, 0, 0, 0, i4});
  put_router(out, {3, 256, 8, 0, 0, 0, i4});
}

void random_moe_cases(Random& random, std::vector<CaseSpec>& out) {
  const Encoding e = all_encodings()[random.below(all_encodings().size())];
  // A width of a few values may leave a row little but rounding errors.
  Mixture m{1 + random.below(60),       2 + random.below(20), 0, 4 * (2 + random.below(40)),
            4 * (4 + random.below(13)), 4 * random.below(12), e};
  m.top_k = 1 + random.below(std::min(m.experts, 8u));
  if (random.below(2) == 0) m.routing = Mixture::kGiven;
  put(out, m, false);
  put_router(out, m);
  m.second = second_forms()[random.below(second_forms().size())];
  m.second->groups = m.second->top_groups = 1;
  put(out, m, false);
}

}  // namespace switchyard::check
