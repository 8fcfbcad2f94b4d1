// SPDX-License-Identifier: Apache-2.0
// SAMPLE, TOP_CANDIDATES and LM_HEAD_SAMPLE.
#include <algorithm>
#include <cmath>

#include "plugins_api/check/cases.h"
#include "plugins_api/check/quantize.h"

namespace switchyard::check {
namespace {

// One way of sampling.
struct Way {
  std::string name;
  float temperature = 1, top_p = 1, min_p = 0;
  int32_t top_k = 0;
  bool mask = false, stops = false, logprob = false, bias = false;
  bool bad = false;        // every other row cannot be sampled: a NaN, +inf, or nothing allowed
  bool penalties = false;  // with the counts state
  bool raises = false;     // penalties raise logits
  uint32_t top = 0;        // so many of the most likely tokens
  bool mixed = false;      // every row in another of the ways above
  bool ties = false;       // few distinct logits: truncation cuts among equal ones
  uint32_t listed = 0;     // candidates; 0: as many as suit the rest
  double spread = 3;       // of the logits
  bool brief = false;      // one case suffices
  bool overflows = false;  // of every four rows one has a logit of +inf, one of -inf, one of NaN
};

constexpr size_t kPlainWays = 13;  // the first: any row of a step can be sampled so
constexpr size_t kListings = 4;    // the last: for candidates alone

const std::vector<Way>& ways() {
  static const std::vector<Way> all = [] {
    std::vector<Way> w;
    w.push_back({"greedy", 0});
    w.push_back({"seeded"});
    w.push_back({"warm", 1.7f});
    w.push_back({"cold", 0.3f});
    w.push_back({"top_k", 1, 1, 0, 5});
    w.push_back({"top_p", 1, 0.8f});
    w.push_back({"min_p", 1, 1, 0.1f});
    w.push_back({"mask", 1, 1, 0, 0, true});
    w.push_back({"greedy_mask", 0, 1, 0, 0, true});
    w.push_back({"stops", 1, 1, 0, 0, false, true});
    w.push_back({"logprob", 0.8f, 1, 0, 0, false, false, true});
    w.push_back({"bias", 1, 1, 0, 0, false, false, false, true});
    w.push_back({"everything", 0.8f, 0.95f, 0.02f, 20, true, true, true, true});
    w.push_back({"bad", 1, 1, 0, 0, true, false, false, false, true});
    w.push_back({.name = "penalties", .temperature = 0.9f, .penalties = true});
    w.push_back({.name = "greedy_penalties", .temperature = 0, .penalties = true});
    w.push_back({.name = "bad_penalties", .mask = true, .bad = true, .penalties = true});
    w.push_back({.name = "top_logprobs", .top = 5});
    w.push_back({.name = "bad_top_logprobs", .mask = true, .bad = true, .top = 3});
    w.push_back({.name = "mixed", .mixed = true});
    // The parts of the chain one by one, for samplers that cover no others; logits whose exponential is beyond fp32.
    w.push_back({.name = "greedy_ties", .temperature = 0, .ties = true, .brief = true});
    w.push_back({.name = "greedy_stops", .temperature = 0, .stops = true, .brief = true});
    w.push_back({.name = "greedy_bias", .temperature = 0, .bias = true, .brief = true});
    w.push_back({.name = "greedy_logprob", .temperature = 0, .logprob = true, .brief = true});
    w.push_back({.name = "warmless_logprob", .logprob = true, .brief = true});
    w.push_back({.name = "warmless_penalties", .penalties = true, .brief = true});
    w.push_back({.name = "greedy_steep", .temperature = 0, .logprob = true, .spread = 300, .brief = true});
    w.push_back({.name = "steep", .temperature = 1.5f, .top_p = 0.9f, .logprob = true, .spread = 300, .brief = true});
    w.push_back({.name = "ties", .top_p = 0.7f, .ties = true});
    w.push_back({.name = "ties_everything", .top_p = 0.9f, .min_p = 0.001f, .top_k = 700, .mask = true, .ties = true});
    // k: only the best, as many as our host requests, the maximum, and values that cut among equal logits.
    w.push_back({.name = "listed1", .temperature = 0.8f, .logprob = true, .listed = 1});
    w.push_back({.name = "listed128", .temperature = 0.8f, .logprob = true, .penalties = true, .listed = 128});
    w.push_back({.name = "listed1000", .temperature = 1.3f, .mask = true, .listed = 1000});
    w.push_back({.name = "listed128_ties", .temperature = 0, .bias = true, .ties = true, .listed = 128});
    return w;
  }();
  return all;
}

Draw drawn(const Way& way, uint32_t i, uint32_t logit_row, uint64_t vocab, Random& random) {
  Draw d;
  d.logit_row = logit_row;
  d.token_entry = 2 * i + 1;
  d.position = 100 + i;
  swy_sample_params_init(&d.params);
  d.params.seed = random.word();
  d.params.temperature = way.temperature;
  d.params.top_p = way.top_p;
  d.params.min_p = way.min_p;
  d.params.top_k = way.top_k;
  if (way.penalties) {
    d.params.repetition_penalty = 1.3f;
    d.params.presence_penalty = 0.7f;
    d.params.frequency_penalty = 0.4f;
  }
  if (way.raises) d.params.presence_penalty = -1.5f;
  d.params.flags = way.logprob ? SWY_SAMPLE_LOGPROB : 0;
  swy_sample_params_normalise(&d.params, nullptr);
  if (way.mask) {
    d.mask.resize((vocab + 31) / 32);
    for (uint32_t& word : d.mask) word = static_cast<uint32_t>(random.word()) | 1u;
  }
  if (way.bad && i % 4 == 2) std::fill(d.mask.begin(), d.mask.end(), 0u);
  for (uint32_t id = i; way.bias && id < vocab; id += 9) d.biases.push_back({id, id % 2 == 0 ? 2.5f : -1.5f});
  for (int32_t id = 0; way.stops && id < static_cast<int32_t>(vocab); id += 2) d.stops.push_back(id);
  return d;
}

// The weights of LM_HEAD_SAMPLE.
struct Head {
  uint64_t hidden;
  swy_dtype dtype;
  uint32_t group;
};
// Ragged groups, or whole ones; plain weights where a NaN comes in, so that it stays one.
Head head_for(const Way& way, uint64_t vocab) {
  if (way.bad) return {100, SWY_F32, 0};
  return {vocab == 77 ? 100u : 256u, SWY_I4, vocab > 1000 ? 64u : 32u};
}

// Rows of the head that are equal, so that logits are.
void tie(Weight& head, Random& random) {
  constexpr uint64_t kDistinct = 40;
  const uint64_t vocab = head.desc.dims[0], hidden = head.desc.dims[1];
  std::vector<float> rows = random.normals(kDistinct * hidden, 0, 3 / std::sqrt(static_cast<double>(hidden)));
  for (uint64_t v = kDistinct; v < vocab; ++v) {
    for (uint64_t i = 0; i < hidden; ++i) rows.push_back(rows[(v % kDistinct) * hidden + i]);
  }
  encode_weight(head, rows);
}

// Activations and a weight in the first column whose product is beyond fp32.
constexpr float kHugeActivation = 1e34f, kHugeWeight = 4e5f;

// The weight is one id's. Of the other ids it is zero, or next to it where the encoding has no zero.
void let_overflow(Weight& head, Random& random) {
  const uint64_t vocab = head.desc.dims[0], hidden = head.desc.dims[1], huge = random.below(vocab);
  std::vector<float> weights = random.normals(vocab * hidden, 0, 3 / std::sqrt(static_cast<double>(hidden)));
  for (uint64_t v = 0; v < vocab; ++v) weights[v * hidden] = v == huge ? kHugeWeight : 0;
  encode_weight(head, weights);
}

// Every second wanted row is sampled; the others' logits are read by the host.
Case sample(swy_op_id op, const Way& way, uint32_t rows, uint64_t vocab, const Head& head, Random& random) {
  Builder b(op, random);
  std::vector<uint32_t> wanted;
  for (uint32_t r = 0; r < rows; ++r) wanted.push_back(r);
  b.rows(std::vector<uint32_t>(rows, 1)).wanted(wanted);
  Step& s = b.peek().steps[0];
  for (uint32_t r = 0; r < rows; r += 2) {
    s.draws.push_back(drawn(way.mixed ? ways()[(r / 2) % kPlainWays] : way, r / 2, r, vocab, random));
  }
  if (op != SWY_OP_LM_HEAD_SAMPLE) {
    b.fixed_input(vocab, 0, way.spread, SWY_ROWS_LOGITS);
    for (float& x : s.inputs[0].floats) x = way.ties ? std::round(x) : x;
    for (size_t i = 0; way.bad && random.draws() && i < s.draws.size(); i += 4) {
      s.inputs[0].floats[s.draws[i].logit_row * vocab + 40 + i] = i % 8 == 0 ? NAN : INFINITY;
    }
  } else {
    b.input(head.hidden).matrix({vocab, head.hidden}, head.dtype, head.group, way.spread);
    if (way.ties && random.draws()) tie(b.peek().weights[0], random);
    const bool bad = way.bad && head.dtype == SWY_F32;
    for (size_t i = 0; bad && random.draws() && i < s.draws.size(); i += 4) {
      s.inputs[0].floats[s.draws[i].logit_row * head.hidden] = NAN;
    }
    if (way.overflows && random.draws()) {
      let_overflow(b.peek().weights[0], random);
      constexpr float kFirst[] = {kHugeActivation, -kHugeActivation, NAN, 1};
      for (size_t i = 0; i < s.draws.size(); ++i) {
        s.inputs[0].floats[s.draws[i].logit_row * head.hidden] = kFirst[i % 4];
      }
    }
  }
  if (op == SWY_OP_TOP_CANDIDATES) {
    swy_top_candidates_attrs a{};
    a.k = way.listed > 0  ? static_cast<uint32_t>(std::min<uint64_t>(way.listed, vocab))
          : way.top_k > 0 ? static_cast<uint32_t>(way.top_k)
          : way.mask      ? 60
                          : 8;  // 60: more than are allowed, in places
    b.attrs(a).fixed_output(a.k, SWY_I32, SWY_ROWS_SAMPLE).fixed_output(a.k, SWY_F32, SWY_ROWS_SAMPLE);
  }
  if (way.penalties) b.counts(vocab);
  b.fixed_output(op == SWY_OP_TOP_CANDIDATES ? 8 : 4, SWY_I32, SWY_ROWS_SAMPLE);
  if (way.top != 0) b.fixed_output(way.top, SWY_I32, SWY_ROWS_SAMPLE).fixed_output(way.top, SWY_F32, SWY_ROWS_SAMPLE);
  Case c = b.done();
  c.tokens.assign(rows + 3, -7);
  return c;
}

void put(std::vector<CaseSpec>& out, swy_op_id op, const Way& way, uint32_t rows, uint64_t vocab, const Head& head,
         bool slow) {
  out.push_back({op, op_name(op) + "." + way.name + ".rows" + std::to_string(rows) + ".vocab" + std::to_string(vocab),
                 slow, [=](Random& random) { return sample(op, way, rows, vocab, head, random); }});
}

// Heads of several rows whose largest values decide: some are equal, from others no token may be drawn.
void several_rows_cases(std::vector<CaseSpec>& out) {
  const Way greedy = {.name = "greedy", .temperature = 0},
            ties = {.name = "greedy_ties", .temperature = 0, .ties = true},
            overflow = {.name = "overflow", .overflows = true},
            greedy_overflow = {.name = "greedy_overflow", .temperature = 0, .overflows = true};
  const struct {
    const Way& way;
    uint32_t rows;
    swy_dtype dtype;
  } all[] = {{greedy, 6, SWY_I4},     {greedy, 27, SWY_I4A},         {ties, 8, SWY_I4A},
             {ties, 15, SWY_I4},      {ties, 32, SWY_I4A},           {overflow, 7, SWY_I4},
             {overflow, 29, SWY_I4A}, {greedy_overflow, 16, SWY_I4}, {greedy_overflow, 8, SWY_I4A}};
  for (const auto& [way, rows, dtype] : all) {
    put(out, SWY_OP_LM_HEAD_SAMPLE, way, rows, 1100, {256, dtype, 64}, false);
  }
}

// Truncations and nothing else that is wanted, at their edges.
void truncated_cases(std::vector<CaseSpec>& out) {
  const Way ways[] = {
      {.name = "first", .top_k = 1, .ties = true},
      {.name = "best", .temperature = 0.8f, .top_p = 0.95f, .top_k = 20},
      {.name = "best_tied", .top_p = 0.6f, .min_p = 0.01f, .top_k = 41, .ties = true},
      {.name = "best_of_few", .top_k = 128, .mask = true},
      {.name = "best_steep", .temperature = 2, .top_k = 60, .spread = 300},
      {.name = "best_altered", .min_p = 0.01f, .top_k = 50, .mask = true, .bias = true, .penalties = true},
      {.name = "best_all_tied", .top_p = 0.9f, .top_k = 20, .ties = true, .spread = 0.1},
      {.name = "many", .top_p = 0.98f, .top_k = 150},
      {.name = "bad_best", .top_p = 0.9f, .top_k = 9, .mask = true, .bad = true},
      {.name = "smallest", .top_p = 0.00001f},
      {.name = "small", .top_p = 0.03f, .spread = 0.2},
      {.name = "small_tied", .top_p = 0.1f, .ties = true, .spread = 0.6},
      {.name = "half", .temperature = 0.7f, .top_p = 0.5f, .mask = true, .bias = true, .penalties = true},
      {.name = "raised", .temperature = 0.8f, .penalties = true, .raises = true},
      {.name = "half_raised", .top_p = 0.5f, .penalties = true, .raises = true},
      {.name = "steep_half", .top_p = 0.5f, .spread = 300},
      {.name = "heavy", .top_p = 0.9f, .min_p = 0.3f},
      {.name = "heaviest", .min_p = 1, .ties = true},
      {.name = "heavy_altered", .temperature = 0.9f, .min_p = 0.05f, .bias = true, .penalties = true},
      {.name = "bad_heavy", .top_p = 0.9f, .min_p = 0.05f, .mask = true, .bad = true},
  };
  for (const Way& way : ways) {
    put(out, SWY_OP_SAMPLE, way, 15, 1000, {}, false);
    put(out, SWY_OP_SAMPLE, way, 1, 9001, {}, false);
    put(out, SWY_OP_SAMPLE, way, 3, 100003, {}, true);
    for (const uint32_t rows : {1u, 7u, 30u}) {
      put(out, SWY_OP_LM_HEAD_SAMPLE, way, rows, 1100, {256, rows == 7 ? SWY_I4A : SWY_I4, 64}, false);
    }
  }
}

}  // namespace

void sample_cases(std::vector<CaseSpec>& out) {
  for (const swy_op_id op : {SWY_OP_SAMPLE, SWY_OP_TOP_CANDIDATES, SWY_OP_LM_HEAD_SAMPLE}) {
    for (const Way& way : ways()) {
      if (op == SWY_OP_TOP_CANDIDATES ? way.top != 0 : way.listed != 0) continue;
      const auto add = [&](uint32_t rows, uint64_t vocab, bool slow) {
        put(out, op, way, rows, vocab, head_for(way, vocab), slow);
      };
      if (way.brief) {
        add(7, 1000, false);
        continue;
      }
      for (const uint32_t rows : {1u, 7u, 65u}) {
        for (const uint64_t vocab : {77u, 1000u}) add(rows, vocab, rows == 65 && vocab == 1000);
      }
      const bool common =
          way.name == "seeded" || way.name == "top_p" || way.name == "everything" || way.name == "bad" || way.ties;
      add(1, 20011, !common);  // large enough for a team to share one row
      add(5, 20011, true);
      const bool wide = op == SWY_OP_SAMPLE ? common : op == SWY_OP_TOP_CANDIDATES && (way.listed == 128 || way.ties);
      if (wide) add(2, 248320, true);  // each thread of a device has several ids
    }
  }
  // More rows than a grid's or a buffer's fixed size.
  put(out, SWY_OP_SAMPLE, ways()[kPlainWays - 1], 2100, 77, {}, false);
  put(out, SWY_OP_TOP_CANDIDATES, ways()[kPlainWays - 1], 2100, 77, {}, false);
  // Heads as in real models, with few rows; the only bad rows are those where nothing is allowed.
  for (size_t i = 0; i + kListings < ways().size(); ++i) {
    if (ways()[i].brief) continue;
    const uint32_t rows[] = {1, 12, 5, 30};
    const swy_dtype dtype = (i + i / 4) % 2 == 0 ? SWY_I4 : SWY_I4A;
    put(out, SWY_OP_LM_HEAD_SAMPLE, ways()[i], rows[i % 4], 1300, {512, dtype, 64}, false);
  }
  several_rows_cases(out);
  truncated_cases(out);
}

void random_sample_cases(Random& random, std::vector<CaseSpec>& out) {
  const Way way = ways()[random.below(ways().size() - kListings)];
  const uint32_t rows = 1 + random.below(20);
  const uint64_t vocab = 60 + random.below(1500);
  for (const swy_op_id op : {SWY_OP_SAMPLE, SWY_OP_TOP_CANDIDATES, SWY_OP_LM_HEAD_SAMPLE}) {
    if (way.top != 0 && op == SWY_OP_TOP_CANDIDATES) continue;
    put(out, op, way, rows, vocab, head_for(way, vocab), false);
  }
}

}  // namespace switchyard::check
