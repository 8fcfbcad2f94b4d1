// SPDX-License-Identifier: Apache-2.0
// RMS_NORM, ADD_RMS_NORM, HEAD_RMS_NORM, GATED_RMS_NORM.
#include "plugins_api/check/cases.h"

namespace switchyard::check {
namespace {

struct Norm {
  uint32_t rows;
  uint64_t width;
  swy_dtype weight = SWY_F32;
  float bias = 1;
  double scale = 1;  // of the inputs: small ones show eps
  float eps = 1e-6f;
};

std::string label(swy_op_id op, const Norm& n, uint32_t heads) {
  std::string s = op_name(op) + ".rows" + std::to_string(n.rows) + ".width" + std::to_string(n.width);
  if (heads > 0) s += ".heads" + std::to_string(heads);
  s += n.weight == SWY_BF16 ? ".bf16" : "";
  s += n.bias == 0 ? ".plain" : "";
  s += n.eps > 1e-6f ? ".eps" : "";
  return s + (n.scale < 1 ? ".small" : n.scale > 1 ? ".large" : "");
}

Case row_norm(swy_op_id op, const Norm& n, Random& random) {
  swy_rms_norm_attrs a{};
  a.eps = n.eps;
  a.weight_bias = n.bias;
  Builder b(op, random);
  b.attrs(a).rows(ragged(n.rows)).input(n.width, 0.1 * n.scale, n.scale);
  if (op == SWY_OP_ADD_RMS_NORM) b.input(n.width, 0, n.scale);
  b.plain({n.width}, n.weight, 1 - n.bias, 0.3).output(n.width);
  if (op == SWY_OP_ADD_RMS_NORM) b.output(n.width);
  return b.done(n.rows > 2 ? 3 : 0);
}

Case head_norm(swy_op_id op, const Norm& n, uint32_t heads, Random& random) {
  swy_heads_attrs a{};
  a.heads = heads;
  a.head_dim = static_cast<uint32_t>(n.width);
  a.eps = n.eps;
  a.weight_bias = op == SWY_OP_HEAD_RMS_NORM ? n.bias : 0;
  Builder b(op, random);
  b.attrs(a).rows(ragged(n.rows)).input(heads * n.width, 0, n.scale);
  if (op == SWY_OP_GATED_RMS_NORM) b.input(heads * n.width, 0, 2);
  return b.plain({n.width}, n.weight, 1 - a.weight_bias, 0.3).output(heads * n.width).done(n.rows > 2 ? 3 : 0);
}

}  // namespace

void rms_norm_cases(std::vector<CaseSpec>& out) {
  const std::vector<Norm> norms = {{1, 36},
                                   {1, 2048},
                                   {2, 100},
                                   {63, 48},
                                   {65, 100, SWY_BF16},
                                   {65, 256, SWY_F32, 0},
                                   {513, 36},
                                   {513, 100, SWY_BF16},
                                   {9, 100, SWY_F32, 1, 1e-3},
                                   {9, 100, SWY_F32, 1, 1e3},
                                   {1025, 37, SWY_F32, 0.5f, 1, 0.1f},
                                   {5, 101, SWY_BF16, -0.5f, 1, 0.01f}};
  for (const Norm& n : norms) {
    for (const swy_op_id op : {SWY_OP_RMS_NORM, SWY_OP_ADD_RMS_NORM}) {
      out.push_back({op, label(op, n, 0), false, [=](Random& random) { return row_norm(op, n, random); }});
    }
  }
  for (const swy_op_id op : {SWY_OP_HEAD_RMS_NORM, SWY_OP_GATED_RMS_NORM}) {
    for (const uint32_t heads : {1u, 2u, 7u}) {
      for (const Norm& n : {Norm{1, 32}, Norm{63, 20}, Norm{65, 36, SWY_BF16}, Norm{513, 12}, Norm{5, 256},
                            Norm{1025, 11, SWY_F32, 0.5f, 1, 0.1f}}) {
        out.push_back(
            {op, label(op, n, heads), false, [=](Random& random) { return head_norm(op, n, heads, random); }});
      }
    }
  }
}

void random_rms_norm_cases(Random& random, std::vector<CaseSpec>& out) {
  const swy_dtype weight = random.below(2) == 0 ? SWY_F32 : SWY_BF16;
  const Norm row{1 + random.below(90), 4 + random.below(600), weight};
  for (const swy_op_id op : {SWY_OP_RMS_NORM, SWY_OP_ADD_RMS_NORM}) {
    out.push_back({op, label(op, row, 0), false, [=](Random& r) { return row_norm(op, row, r); }});
  }
  const Norm head{1 + random.below(90), 4 + random.below(120), weight};
  const uint32_t heads = 1 + random.below(9);
  for (const swy_op_id op : {SWY_OP_HEAD_RMS_NORM, SWY_OP_GATED_RMS_NORM}) {
    out.push_back({op, label(op, head, heads), false, [=](Random& r) { return head_norm(op, head, heads, r); }});
  }
}

}  // namespace switchyard::check
