// SPDX-License-Identifier: Apache-2.0
// ATTENTION, HEAD_SPLIT, ROPE, KV_APPEND, ATTEND.
#include <cmath>
#include <map>
#include <optional>

#include "plugins_api/check/cases.h"
#include "plugins_api/check/scenes.h"

namespace switchyard::check {
namespace {

// What the second revision adds.
struct Second {
  bool qk_norm, sinks;
  uint32_t window;
  float rope_scale;
  std::string name() const {
    return std::string(qk_norm ? "" : ".unnormed") + (sinks ? ".sinks" : "") +
           (window != 0 ? ".window" + std::to_string(window) : "") + ".table";
  }
};

struct Shape {
  uint32_t heads, kv_heads, head_dim, rotary;
  bool gated;
  float theta = 1e4f;
  bool slow = false;
  float eps = 1e-6f, bias = 1, slope = 1;  // slope: of the scale, which is head_dim^-0.5 otherwise
  std::optional<Second> second = {};
  uint32_t revision() const { return second ? 2 : 1; }
  std::string name() const {
    return std::to_string(heads) + "h" + std::to_string(kv_heads) + "kv.dim" + std::to_string(head_dim) + ".rotary" +
           std::to_string(rotary) + (gated ? "" : ".plain") + (slope > 2 ? ".steep" : "") +
           (second ? second->name() : "");
  }
};

// All tokens get the values of one. Then the output is known whatever share each token has: with a steep scale the
// shares follow from rounding errors, and the exponential of a score is beyond fp32.
void give_one_value(Case& c, uint64_t kv) {
  std::vector<float>& state = c.states[0].content;
  for (size_t at = 0; at < state.size(); at += 2 * kv) {
    for (size_t i = 0; i < kv; ++i) {
      if (!std::isnan(state[at + kv + i])) state[at + kv + i] = 1 + static_cast<float>(i % 7);
    }
  }
  if (c.op == SWY_OP_ATTEND) return;
  for (Step& step : c.steps) {
    std::vector<float>& v = step.inputs.back().floats;
    for (size_t i = 0; i < v.size(); ++i) v[i] = 1 + static_cast<float>(i % kv % 7);
  }
}

// Frequencies that no theta gives: plain ones, slowed down more and more, as YaRN's are.
void table(Builder& b, const Shape& s) {
  std::vector<float> inv_freq(s.rotary / 2);
  for (uint32_t i = 0; i < inv_freq.size(); ++i) {
    const double part = static_cast<double>(i) / static_cast<double>(inv_freq.size());
    inv_freq[i] = static_cast<float>(std::pow(s.theta, -part) * (1 - 0.6 * part));
  }
  if (!inv_freq.empty()) b.values({inv_freq.size()}, inv_freq);
}

// Tokens before the first that a row's window holds are never read.
void spoil_before_windows(Case& c, uint32_t window) {
  std::map<uint32_t, uint32_t> first;  // by sequence
  std::map<uint32_t, const Sequence*> last;
  for (const Step& step : c.steps) {
    for (const Sequence& q : step.seqs) {
      const uint32_t begin = q.position + 1 > window ? q.position + 1 - window : 0;
      first.try_emplace(q.id, begin);
      first[q.id] = std::min(first[q.id], begin);
      last[q.id] = &q;
    }
  }
  State& s = c.states[0];
  for (const auto& [id, begin] : first) {
    for (uint32_t t = 0; t < begin; ++t) {
      const uint64_t token = uint64_t{last[id]->pages[t / c.bucket.page_size]} * c.bucket.page_size;
      std::fill_n(s.content.begin() + static_cast<ptrdiff_t>((token + t % c.bucket.page_size) * s.row), s.row, NAN);
    }
  }
}

Case attention(swy_op_id op, const Shape& s, const Scene& scene, Random& random) {
  swy_attention_attrs a{};
  a.heads = s.heads;
  a.kv_heads = s.kv_heads;
  a.head_dim = s.head_dim;
  a.rotary_dim = s.rotary;
  a.rope_theta = s.theta;
  a.scale = s.slope / std::sqrt(static_cast<float>(s.head_dim));
  a.norm_eps = s.eps;
  a.norm_weight_bias = s.bias;
  a.gated = s.gated ? 1 : 0;
  if (s.second) {
    a.rope_theta = 0;
    a.qk_norm = s.second->qk_norm ? 1 : 0;
    a.sinks = s.second->sinks ? 1 : 0;
    a.window = s.second->window;
    a.rope_scale = s.second->rope_scale;
  }
  Builder b(op, random, s.revision());
  b.attrs(a);
  play(scene, b);
  const uint64_t width = uint64_t{s.heads} * s.head_dim, kv = uint64_t{s.kv_heads} * s.head_dim;
  if (op == SWY_OP_KV_APPEND) {
    b.input(kv).input(kv);
  } else if (op == SWY_OP_ATTEND) {
    b.input(width);
  } else {
    attention_inputs(b, a, !s.second || s.second->qk_norm);
    if (s.second) table(b, s);
  }
  if (s.second && s.second->sinks) b.plain({s.heads}, s.gated ? SWY_F32 : SWY_BF16, 1, 1.5);
  b.paged({2, s.kv_heads, s.head_dim}, 1);
  if (op != SWY_OP_KV_APPEND) b.output(width);
  const bool decode =
      scene.name == "decode4" || scene.name == "decode40" || scene.name == "one_token" || scene.name == "first_token";
  Case c = b.done(scene.whole || decode ? 0 : 3);
  if (op == SWY_OP_ATTEND && random.draws()) {  // the step's own rows are there already
    for (float& x : c.states[0].content) x = std::isnan(x) ? static_cast<float>(random.normal()) : x;
  }
  if (s.slope > 2 && random.draws()) give_one_value(c, kv);
  if (s.second && s.second->window != 0 && random.draws()) spoil_before_windows(c, s.second->window);
  return c;
}

// Some rows at far positions, beside ones at the beginning.
std::vector<Sequence> far_rows(uint32_t rows) {
  return {{0, rows / 2, 4000, true, 0, 0, {}}, {1, rows - rows / 2, 0, true, 1, 1, {}}};
}

Case heads(swy_op_id op, const Shape& s, uint32_t rows, bool far, Random& random) {
  swy_heads_attrs a{};
  a.heads = s.heads;
  a.head_dim = s.head_dim;
  a.rotary_dim = s.rotary;
  a.rope_theta = s.theta;
  if (s.second) a.rope_theta = 0, a.rope_scale = s.second->rope_scale;
  const uint64_t width = uint64_t{s.heads} * s.head_dim;
  Builder b(op, random, s.revision());
  b.attrs(a);
  if (far) {
    b.step(far_rows(rows));
  } else {
    b.rows(ragged(rows));
  }
  b.input(op == SWY_OP_HEAD_SPLIT ? 2 * width : width).output(width);
  if (op == SWY_OP_HEAD_SPLIT) b.output(width);
  if (s.second) table(b, s);
  return b.done(rows > 2 ? 3 : 0);
}

constexpr swy_op_id kWithScenes[] = {SWY_OP_ATTENTION, SWY_OP_KV_APPEND, SWY_OP_ATTEND};

void put(std::vector<CaseSpec>& out, swy_op_id op, const Shape& s, const Scene& scene) {
  out.push_back({op, op_name(op) + "." + s.name() + "." + scene.name, s.slow || scene.slow,
                 [=, &scene](Random& random) { return attention(op, s, scene, random); }});
}

void put_heads(std::vector<CaseSpec>& out, const Shape& s, uint32_t rows, bool far = false) {
  for (const swy_op_id op : {SWY_OP_ROPE, SWY_OP_HEAD_SPLIT}) {
    if (s.second && (op == SWY_OP_HEAD_SPLIT || s.rotary == 0)) continue;
    out.push_back({op, op_name(op) + "." + s.name() + ".rows" + std::to_string(rows) + (far ? ".far" : ""), false,
                   [=](Random& random) { return heads(op, s, rows, far, random); }});
  }
}

// A head that fits no vector; long contexts; many rows; scores whose exponential is beyond fp32.
void odd_cases(std::vector<CaseSpec>& out) {
  const Shape odd{4, 2, 19, 6, true}, small{2, 1, 8, 4, true};
  Shape steep{4, 2, 16, 8, false};
  steep.slope = 100;
  for (const swy_op_id op : kWithScenes) {
    for (const char* scene : {"decode6", "ragged"}) put(out, op, odd, scene_named(scene));
    put(out, op, {4, 2, 16, 8, true}, far_scene());
    put(out, op, small, many_rows_scene());
    if (op == SWY_OP_KV_APPEND) continue;
    for (const char* scene : {"decode4", "ragged"}) put(out, op, steep, scene_named(scene));
  }
  put(out, SWY_OP_ATTENTION, {4, 2, 64, 16, true, 1e7f}, far_scene());
  const Shape wide{16, 2, 256, 64, true, 1e7f, true};
  for (const uint32_t position : {1090u, 3300u, 5000u}) {
    const Scene scene = decoding_at(position);
    out.push_back({SWY_OP_ATTENTION, op_name(SWY_OP_ATTENTION) + "." + wide.name() + "." + scene.name, true,
                   [=](Random& random) { return attention(SWY_OP_ATTENTION, wide, scene, random); }});
  }
  put_heads(out, odd, 1025);
  put_heads(out, {4, 2, 16, 8, true}, 65, true);
}

// Everything that the second revision may have or leave out, each shape with another choice.
const std::vector<Shape>& second_shapes() {
  const auto with = [](Shape s, Second second) {
    s.second = second;
    return s;
  };
  static const std::vector<Shape> shapes = {
      with({4, 2, 16, 8, true}, {true, true, 9, 1.2f}),
      with({6, 1, 36, 36, false}, {false, true, 0, 1.35f}),
      with({4, 2, 64, 64, false, 1.5e5f}, {false, true, 17, 1.35f}),
      with({3, 3, 20, 0, false, 1e4f, false, 0.01f, 0, 0.5f}, {true, false, 1, 1}),
      with({4, 2, 64, 16, true, 1e7f}, {true, false, 0, 1}),
      with({8, 1, 64, 64, false, 1.5e5f}, {false, true, 128, 1.35f}),
      with({5, 5, 12, 2, true}, {false, false, 64, 1}),
      with({4, 1, 128, 128, false, 1e6f, true}, {true, false, 0, 1.1f})};
  return shapes;
}

void second_cases(std::vector<CaseSpec>& out) {
  for (const Shape& s : second_shapes()) {
    for (const Scene& scene : all_scenes()) {
      for (const swy_op_id op : {SWY_OP_ATTENTION, SWY_OP_ATTEND}) put(out, op, s, scene);
    }
    for (const uint32_t rows : {1u, 65u, 513u}) put_heads(out, s, rows);
  }
  Shape far = second_shapes()[5];
  for (const swy_op_id op : {SWY_OP_ATTENTION, SWY_OP_ATTEND}) {
    put(out, op, far, far_scene());
    put(out, op, second_shapes()[0], many_rows_scene());
  }
  put_heads(out, far, 65, true);
}

}  // namespace

void attention_cases(std::vector<CaseSpec>& out) {
  const Shape shapes[] = {{4, 2, 16, 8, true},
                          {6, 1, 36, 18, true, 1e4f, false, 0.1f, 0.5f, 1.5f},
                          {3, 3, 20, 20, false, 1e5f, false, 0.01f, 0, 0.5f},
                          {4, 2, 64, 16, true, 1e7f},
                          {16, 2, 32, 8, true, 1e7f, true},
                          {8, 4, 100, 50, true, 1e4f, true},
                          {5, 5, 12, 2, true, 1e4f, true},
                          {4, 1, 256, 64, true, 1e7f, true}};
  for (const Shape& s : shapes) {
    for (const Scene& scene : all_scenes()) {
      for (const swy_op_id op : kWithScenes) put(out, op, s, scene);
    }
    // More rows and heads than a device has places for clusters of blocks.
    out.push_back({SWY_OP_ATTENTION, op_name(SWY_OP_ATTENTION) + "." + s.name() + ".decode40", s.slow,
                   [=](Random& random) { return attention(SWY_OP_ATTENTION, s, decoding(40), random); }});
    for (const uint32_t rows : {1u, 63u, 65u, 513u}) put_heads(out, s, rows);
  }
  odd_cases(out);
  second_cases(out);
}

void random_attention_cases(Random& random, std::vector<CaseSpec>& out) {
  Shape s{0, 1 + random.below(3), 4 + random.below(61), 0, random.below(2) == 0};
  s.heads = s.kv_heads * (1 + random.below(4));
  s.rotary = 2 * (1 + random.below(s.head_dim / 2));
  const Scene& scene = all_scenes()[random.below(all_scenes().size())];
  for (const swy_op_id op : kWithScenes) put(out, op, s, scene);
  put_heads(out, s, 1 + random.below(150));
  s.second = Second{random.below(2) == 0, random.below(2) == 0, random.below(40),
                    1 + 0.1f * static_cast<float>(random.below(5))};
  for (const swy_op_id op : {SWY_OP_ATTENTION, SWY_OP_ATTEND}) put(out, op, s, scene);
}

void attention_inputs(Builder& b, const swy_attention_attrs& a, bool normed) {
  const uint64_t width = uint64_t{a.heads} * a.head_dim, kv = uint64_t{a.kv_heads} * a.head_dim;
  b.input(a.gated != 0 ? 2 * width : width).input(kv).input(kv);
  if (!normed) return;
  const double around = 1 - a.norm_weight_bias;
  b.plain({a.head_dim}, SWY_F32, around, 0.3).plain({a.head_dim}, SWY_BF16, around, 0.3);
}

}  // namespace switchyard::check
