// SPDX-License-Identifier: Apache-2.0
// ATTENTION, HEAD_SPLIT, ROPE, KV_APPEND, ATTEND.
#include <cmath>

#include "plugins_api/check/cases.h"
#include "plugins_api/check/scenes.h"

namespace switchyard::check {
namespace {

struct Shape {
  uint32_t heads, kv_heads, head_dim, rotary;
  bool gated;
  float theta = 1e4f;
  bool slow = false;
  std::string name() const {
    return std::to_string(heads) + "h" + std::to_string(kv_heads) + "kv.dim" + std::to_string(head_dim) + ".rotary" +
           std::to_string(rotary) + (gated ? "" : ".plain");
  }
};

Case attention(swy_op_id op, const Shape& s, const Scene& scene, Random& random) {
  swy_attention_attrs a{};
  a.heads = s.heads;
  a.kv_heads = s.kv_heads;
  a.head_dim = s.head_dim;
  a.rotary_dim = s.rotary;
  a.rope_theta = s.theta;
  a.scale = 1 / std::sqrt(static_cast<float>(s.head_dim));
  a.norm_eps = 1e-6f;
  a.norm_weight_bias = 1;
  a.gated = s.gated ? 1 : 0;
  Builder b(op, random);
  b.attrs(a);
  play(scene, b);
  const uint64_t width = uint64_t{s.heads} * s.head_dim, kv = uint64_t{s.kv_heads} * s.head_dim;
  if (op == SWY_OP_KV_APPEND) {
    b.input(kv).input(kv);
  } else if (op == SWY_OP_ATTEND) {
    b.input(width);
  } else {
    b.input(s.gated ? 2 * width : width).input(kv).input(kv);
    b.plain({s.head_dim}, SWY_F32, 0, 0.3).plain({s.head_dim}, SWY_BF16, 0, 0.3);
  }
  b.paged({2, s.kv_heads, s.head_dim}, 1);
  if (op != SWY_OP_KV_APPEND) b.output(width);
  const bool decode =
      scene.name == "decode4" || scene.name == "decode40" || scene.name == "one_token" || scene.name == "first_token";
  Case c = b.done(decode ? 0 : 3);
  if (op == SWY_OP_ATTEND && random.draws()) {  // the step's own rows are there already
    for (float& x : c.states[0].content) x = std::isnan(x) ? static_cast<float>(random.normal()) : x;
  }
  return c;
}

Case heads(swy_op_id op, const Shape& s, uint32_t rows, Random& random) {
  swy_heads_attrs a{};
  a.heads = s.heads;
  a.head_dim = s.head_dim;
  a.rotary_dim = s.rotary;
  a.rope_theta = s.theta;
  const uint64_t width = uint64_t{s.heads} * s.head_dim;
  Builder b(op, random);
  b.attrs(a).rows(ragged(rows)).input(op == SWY_OP_HEAD_SPLIT ? 2 * width : width).output(width);
  if (op == SWY_OP_HEAD_SPLIT) b.output(width);
  return b.done(rows > 2 ? 3 : 0);
}

}  // namespace

void attention_cases(std::vector<CaseSpec>& out) {
  const Shape shapes[] = {{4, 2, 16, 8, true},
                          {6, 1, 36, 18, true},
                          {3, 3, 20, 20, false},
                          {4, 2, 64, 16, true, 1e7f},
                          {16, 2, 32, 8, true, 1e7f, true},
                          {8, 4, 100, 50, true, 1e4f, true},
                          {5, 5, 12, 2, true, 1e4f, true},
                          {4, 1, 256, 64, true, 1e7f, true}};
  for (const Shape& s : shapes) {
    for (const Scene& scene : all_scenes()) {
      for (const swy_op_id op : {SWY_OP_ATTENTION, SWY_OP_KV_APPEND, SWY_OP_ATTEND}) {
        out.push_back({op, op_name(op) + "." + s.name() + "." + scene.name, s.slow || scene.slow,
                       [=, &scene](Random& random) { return attention(op, s, scene, random); }});
      }
    }
    // More rows and heads than a device has places for clusters of blocks.
    out.push_back({SWY_OP_ATTENTION, op_name(SWY_OP_ATTENTION) + "." + s.name() + ".decode40", s.slow,
                   [=](Random& random) { return attention(SWY_OP_ATTENTION, s, decoding(40), random); }});
    for (const swy_op_id op : {SWY_OP_ROPE, SWY_OP_HEAD_SPLIT}) {
      for (const uint32_t rows : {1u, 63u, 65u, 513u}) {
        out.push_back({op, op_name(op) + "." + s.name() + ".rows" + std::to_string(rows), false,
                       [=](Random& random) { return heads(op, s, rows, random); }});
      }
    }
  }
}

void random_attention_cases(Random& random, std::vector<CaseSpec>& out) {
  Shape s{0, 1 + random.below(3), 4 * (1 + random.below(16)), 0, random.below(2) == 0};
  s.heads = s.kv_heads * (1 + random.below(4));
  s.rotary = 2 * (1 + random.below(s.head_dim / 2));
  const Scene& scene = all_scenes()[random.below(all_scenes().size())];
  for (const swy_op_id op : {SWY_OP_ATTENTION, SWY_OP_KV_APPEND, SWY_OP_ATTEND}) {
    out.push_back({op, op_name(op) + "." + s.name() + "." + scene.name, scene.slow,
                   [=, &scene](Random& r) { return attention(op, s, scene, r); }});
  }
  const uint32_t rows = 1 + random.below(150);
  for (const swy_op_id op : {SWY_OP_ROPE, SWY_OP_HEAD_SPLIT}) {
    out.push_back({op, op_name(op) + "." + s.name() + ".rows" + std::to_string(rows), false,
                   [=](Random& r) { return heads(op, s, rows, r); }});
  }
}

}  // namespace switchyard::check
