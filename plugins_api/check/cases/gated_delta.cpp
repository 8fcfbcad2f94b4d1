// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA, CAUSAL_CONV, DELTA_GATES, DELTA_RULE.
#include <algorithm>

#include "plugins_api/check/cases.h"
#include "plugins_api/check/scenes.h"

namespace switchyard::check {
namespace {

struct Shape {
  uint32_t key_heads, value_heads, key_dim, value_dim, kernel;
  bool slow = false;
  float norm_eps = 1e-6f, l2_eps = 1e-6f;
  std::string name() const {
    return std::to_string(key_heads) + "k" + std::to_string(value_heads) + "v.dims" + std::to_string(key_dim) + "_" +
           std::to_string(value_dim) + ".kernel" + std::to_string(kernel);
  }
  uint64_t values() const { return uint64_t{value_heads} * value_dim; }
  uint64_t channels() const { return 2 * uint64_t{key_heads} * key_dim + values(); }
};

// q and k have mostly positive elements. If q is nearly orthogonal to k, the first token of a sequence has almost no
// output, and the norm after the rule would magnify its rounding errors.
constexpr double kPositive = 1.0, kConvPositive = 1.0, kConvSpread = 0.3;

// Decays from almost none to almost all within some tokens.
void gates(Builder& b, uint64_t heads, swy_dtype plain) {
  b.plain({heads}, SWY_F32, 0.5, 0.7).plain({heads}, plain, -2, 1);
}

// For a bucket for decoding, not one with room for more.
bool decodes(const Scene& scene) {
  return scene.name == "decode4" || scene.name == "decode6" || scene.name == "one_token" ||
         scene.name == "first_token" || scene.name == "one_row" || scene.name == "drafts" ||
         scene.name == "two_drafts" || scene.name == "decode40";
}

bool has_pending(const Scene& scene) {
  const auto pending = [](const Sequence& q) { return q.pending; };
  return std::any_of(scene.steps.begin(), scene.steps.end(),
                     [&](const auto& step) { return std::any_of(step.begin(), step.end(), pending); });
}

// `spread`: of what the gates are computed from.
Case delta(swy_op_id op, const Shape& s, const Scene& scene, swy_dtype plain, double spread, Random& random) {
  swy_gated_delta_attrs a{};
  a.key_heads = s.key_heads;
  a.value_heads = s.value_heads;
  a.key_dim = s.key_dim;
  a.value_dim = s.value_dim;
  a.conv_kernel = s.kernel;
  a.norm_eps = s.norm_eps;
  a.l2_eps = s.l2_eps;
  const bool pending = op == SWY_OP_GATED_DELTA && has_pending(scene);
  Builder b(op, random, pending ? 2 : 1);
  b.attrs(a);
  play(scene, b);
  const std::vector<uint64_t> state = {s.value_heads, s.key_dim, s.value_dim};
  if (op == SWY_OP_DELTA_GATES) {
    b.input(s.value_heads, 0, spread).input(s.value_heads, 0, spread);
    gates(b, s.value_heads, plain);
    b.fixed_output(s.value_heads, SWY_F32).fixed_output(s.value_heads, SWY_F32);
  } else if (op == SWY_OP_DELTA_RULE) {
    b.input(s.channels(), kPositive).fixed_input(s.value_heads, 0.5, 0.1).fixed_input(s.value_heads, -0.5, 0.1);
    b.slotted(state, 0.3).output(s.values());
  } else if (op == SWY_OP_CAUSAL_CONV) {
    b.input(s.channels()).plain({s.channels(), s.kernel}, plain, 0, 0.5);
    b.slotted({s.channels(), s.kernel - 1}, 1).output(s.channels());
  } else {
    gated_delta_operands(b, a, plain);
    if (pending) b.pending(s.channels() + 2 * s.value_heads);
  }
  return b.done(scene.whole || decodes(scene) ? 0 : 3);
}

void put_pending(std::vector<CaseSpec>& out, const Shape& s, const Scene& scene, bool slow, swy_dtype plain) {
  out.push_back({SWY_OP_GATED_DELTA, "gated_delta." + s.name() + ".pending_" + scene.name, slow,
                 [=, &scene](Random& random) { return delta(SWY_OP_GATED_DELTA, s, scene, plain, 1, random); }});
}

constexpr swy_op_id kAll[] = {SWY_OP_GATED_DELTA, SWY_OP_CAUSAL_CONV, SWY_OP_DELTA_GATES, SWY_OP_DELTA_RULE};

void put(std::vector<CaseSpec>& out, const Shape& s, const Scene& scene, bool slow, swy_dtype plain) {
  for (const swy_op_id op : kAll) {
    out.push_back({op, op_name(op) + "." + s.name() + "." + scene.name, slow || scene.slow,
                   [=, &scene](Random& random) { return delta(op, s, scene, plain, 1, random); }});
  }
}

// Heads that fit no vector with a long convolution, many rows, and gates whose exponential is beyond fp32.
void odd_cases(std::vector<CaseSpec>& out) {
  const Shape odd{1, 2, 19, 11, 7, false, 0.01f, 0.1f}, small{1, 1, 8, 8, 3}, two{2, 4, 16, 16, 2};
  for (const char* scene : {"decode6", "ragged", "chunks"}) put(out, odd, scene_named(scene), false, SWY_BF16);
  put(out, small, many_rows_scene(), false, SWY_F32);
  put(out, two, scene_named("chunks"), false, SWY_F32);
  out.push_back({SWY_OP_DELTA_GATES, "delta_gates.large", false, [two](Random& random) {
                   return delta(SWY_OP_DELTA_GATES, two, scene_named("ragged"), SWY_F32, 100, random);
                 }});
}

}  // namespace

void gated_delta_operands(Builder& b, const swy_gated_delta_attrs& a, swy_dtype plain) {
  const uint64_t values = uint64_t{a.value_heads} * a.value_dim,
                 channels = 2 * uint64_t{a.key_heads} * a.key_dim + values;
  b.input(channels, kPositive).input(values, 0, 2).input(a.value_heads).input(a.value_heads);
  b.plain({channels, a.conv_kernel}, plain, kConvPositive, kConvSpread);
  gates(b, a.value_heads, plain);
  b.plain({a.value_dim}, plain, 1, 0.3);
  b.slotted({channels, a.conv_kernel - 1}, 1).slotted({a.value_heads, a.key_dim, a.value_dim}, 0.3).output(values);
}

void gated_delta_cases(std::vector<CaseSpec>& out) {
  const Shape shapes[] = {{1, 1, 16, 16, 4},      {2, 6, 12, 20, 4, false, 0.1f, 0.01f},
                          {4, 8, 32, 32, 4},      {2, 2, 36, 24, 3},
                          {3, 3, 20, 8, 2, true}, {1, 3, 128, 128, 4, true},
                          {2, 8, 64, 96, 4, true}};
  for (const Shape& s : shapes) {
    for (const Scene& scene : all_scenes()) {
      put(out, s, scene, s.slow && !decodes(scene), s.key_heads % 2 == 0 ? SWY_BF16 : SWY_F32);
    }
  }
  odd_cases(out);
  // More sequences and heads than a device has places for two blocks on each multiprocessor.
  const Shape wide{2, 8, 128, 128, 4};
  out.push_back({SWY_OP_GATED_DELTA, "gated_delta." + wide.name() + ".decode40", false, [wide](Random& random) {
                   return delta(SWY_OP_GATED_DELTA, wide, decoding(40), SWY_BF16, 1, random);
                 }});
  const Shape few[] = {
      {4, 8, 32, 32, 4}, {2, 2, 64, 48, 3}, {1, 2, 19, 11, 7, false, 0.01f, 0.1f}, {2, 4, 128, 128, 4, true}};
  for (const Shape& s : few) {
    for (const Scene& scene : pending_scenes()) put_pending(out, s, scene, s.slow, SWY_BF16);
  }
}

void random_gated_delta_cases(Random& random, std::vector<CaseSpec>& out) {
  Shape s{1 + random.below(3), 0, 8 + random.below(40), 8 + random.below(40), 2 + random.below(8)};
  s.value_heads = s.key_heads * (1 + random.below(3));
  const Scene& scene = all_scenes()[random.below(all_scenes().size())];
  put(out, s, scene, false, SWY_F32);
  put_pending(out, s, pending_scenes()[random.below(pending_scenes().size())], false, SWY_F32);
}

}  // namespace switchyard::check
