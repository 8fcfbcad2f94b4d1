// SPDX-License-Identifier: Apache-2.0
// LINEAR, LINEAR_ADD, RMS_NORM_LINEAR.
#include <algorithm>
#include <cmath>

#include "plugins_api/check/cases.h"

namespace switchyard::check {
namespace {

struct Product {
  uint32_t rows;
  uint64_t in;
  std::vector<uint64_t> outs;
  Encoding encoding;
  bool uneven = false;
  float eps = 1e-6f, bias = 1;  // RMS_NORM_LINEAR
  bool biased = false;          // the second revision
  bool loud = false;            // a row's elements are far larger in some 256 columns than in others
};

std::string label(swy_op_id op, const Product& p) {
  std::string s =
      op_name(op) + "." + p.encoding.name() + ".rows" + std::to_string(p.rows) + ".in" + std::to_string(p.in) + ".out";
  for (const uint64_t o : p.outs) s.append("_").append(std::to_string(o));
  return s + (p.uneven ? ".uneven" : "") + (p.biased ? ".biased" : "") + (p.loud ? ".loud" : "");
}

// Multiplies 256 columns of each row by up to 2^8, here and there.
void make_loud(Case& c, uint64_t width) {
  for (Step& s : c.steps) {
    std::vector<float>& x = s.inputs[0].floats;
    for (uint64_t row = 0; row * width < x.size(); ++row) {
      const uint64_t columns = (width + 255) / 256, first = row * 5 % columns * 256;
      for (uint64_t i = first; i < std::min(first + 256, width); ++i) x[row * width + i] *= std::exp2f(row % 9);
    }
  }
}

Case product(swy_op_id op, const Product& p, Random& random) {
  Builder b(op, random, p.biased ? 2 : 1);
  b.rows(ragged(p.rows)).input(p.in);
  if (op == SWY_OP_LINEAR_ADD) b.input(p.outs[0]);
  if (op == SWY_OP_RMS_NORM_LINEAR) {
    swy_rms_norm_attrs a{};
    a.eps = p.eps;
    a.weight_bias = p.bias;
    b.attrs(a).plain({p.in}, SWY_F32, 1 - p.bias, 0.3);
  }
  for (const uint64_t o : p.outs) b.matrix({o, p.in}, p.encoding.dtype, p.encoding.group);
  for (size_t i = 0; p.biased && i < p.outs.size(); ++i) b.bias({p.outs[i]}, i % 2 == 0 ? SWY_F32 : SWY_BF16);
  for (const uint64_t o : p.outs) b.output(o);
  Case c = b.done(p.rows > 2 ? 3 : 0);
  if (p.uneven) make_uneven(c);
  if (p.loud) make_loud(c, p.in);
  return c;
}

struct Piece {
  uint64_t rows;
  Encoding encoding;
};

// One input, and weights of several encodings, as a layer has that keeps its small projections plain.
Case mixed(swy_op_id op, uint32_t rows, uint64_t in, const std::vector<Piece>& weights, Random& random) {
  Builder b(op, random);
  b.rows(ragged(rows)).input(in);
  if (op == SWY_OP_RMS_NORM_LINEAR) b.attrs(swy_rms_norm_attrs{0, 1e-6f, 1, 0}).plain({in}, SWY_F32, 0, 0.3);
  for (const Piece& w : weights) b.matrix({w.rows, in}, w.encoding.dtype, w.encoding.group);
  for (const Piece& w : weights) b.output(w.rows);
  return b.done(rows > 2 ? 3 : 0);
}

void put_mixed(std::vector<CaseSpec>& out, const std::string& name, uint32_t rows, uint64_t in,
               const std::vector<Piece>& weights) {
  for (const swy_op_id op : {SWY_OP_LINEAR, SWY_OP_RMS_NORM_LINEAR}) {
    out.push_back({op, op_name(op) + ".mixed_" + name, false,
                   [=](Random& random) { return mixed(op, rows, in, weights, random); }});
  }
}

void put(std::vector<CaseSpec>& out, const Product& p, bool slow) {
  for (const swy_op_id op : {SWY_OP_LINEAR, SWY_OP_LINEAR_ADD, SWY_OP_RMS_NORM_LINEAR}) {
    Product q = p;
    if (op == SWY_OP_LINEAR_ADD) q.outs.resize(1);
    out.push_back({op, label(op, q), slow, [=](Random& random) { return product(op, q, random); }});
  }
}

// One row, and weights of 4 bits in whole tiles of 16 rows by 256 columns: few tiles and many, more of them than a
// device has processors, short sums and long ones, and plain weights beside them as the gates of a delta layer are.
void decoding_cases(std::vector<CaseSpec>& out) {
  const Encoding f32{SWY_F32, 0}, bf16{SWY_BF16, 0}, i4{SWY_I4, 64}, i4a{SWY_I4A, 64}, row{SWY_I4, 0};
  for (const Encoding& e : {i4, Encoding{SWY_I4, 128}, i4a, row}) put(out, {1, 256, {48, 16}, e}, false);
  for (const Encoding& e : {Encoding{SWY_I4A, 128}, Encoding{SWY_I4A, 0}}) put(out, {1, 512, {32}, e}, false);
  put(out, {1, 2048, {48, 16}, i4}, false);
  put(out, {1, 2304, {32}, i4a}, false);
  put(out, {1, 4096, {32}, i4}, false);
  put(out, {1, 256, {16, 48, 16, 32}, i4}, false);
  put(out, {1, 256, {2128}, i4}, false);  // 133 tiles
  put(out, {1, 256, {4112, 128}, i4a}, false);
  put_mixed(out, "gates.in256", 1, 256, {{48, i4}, {5, bf16}, {16, i4}, {20, f32}});
  put_mixed(out, "gates.in2048", 1, 2048, {{32, i4a}, {20, bf16}, {5, bf16}});
  put_mixed(out, "gates_first.in512", 1, 512, {{5, bf16}, {20, f32}, {16, row}});
  put(out, {1, 2304, {2128, 16}, i4}, true);
}

// The same for as many rows as many sessions have.
void few_rows_cases(std::vector<CaseSpec>& out) {
  const Encoding bf16{SWY_BF16, 0}, i4{SWY_I4, 64}, i4a{SWY_I4A, 64}, row{SWY_I4, 0};
  put(out, {2, 256, {48, 16}, i4}, false);
  for (const Encoding& e : {i4, i4a, row, Encoding{SWY_I4A, 128}}) put(out, {3, 512, {36, 130}, e}, false);
  put(out, {64, 512, {32, 40}, i4a}, false);
  put(out, {17, 1024, {144}, {SWY_I4A, 128}}, false);
  put(out, {16, 1536, {16}, {SWY_I4, 128}}, false);
  put(out, {33, 1024, {48}, row}, false);
  put(out, {9, 2048, {48, 16}, i4}, false);
  put(out, {31, 4096, {80}, i4}, false);
  put(out, {5, 512, {4112, 128}, i4a}, false);
  put_mixed(out, "gates.rows7.in512", 7, 512, {{48, i4}, {5, bf16}, {16, i4}, {20, bf16}});
  put_mixed(out, "gates.rows70.in512", 70, 512, {{136, i4}, {5, bf16}, {48, i4}, {20, bf16}});
  put_mixed(out, "gates.rows300.in832", 300, 832, {{264, i4}, {5, bf16}, {48, i4}, {20, bf16}});
  put_mixed(out, "gates.rows32.in2048", 32, 2048, {{32, i4a}, {20, bf16}, {5, bf16}});
  put(out, {32, 2048, {2128, 16}, i4}, true);
  put(out, {64, 2048, {2128, 16}, i4}, true);
  put(out, {64, 2560, {64}, i4}, true);
}

// Widths that fit no vector, attributes other than the usual ones, and more rows than a grid's or a buffer's fixed
// size.
void odd_cases(std::vector<CaseSpec>& out) {
  for (const Encoding& e : all_encodings()) put(out, {3, 101, {35, 17}, e, false, 0.1f, 0.5f}, false);
  for (const Encoding& e : {Encoding{SWY_F32, 0}, Encoding{SWY_BF16, 0}, Encoding{SWY_I4A, 64}}) {
    put(out, {1025, 101, {7}, e}, false);
  }
  put(out, {1025, 256, {32}, {SWY_I4, 64}}, false);
  // Several spans of 256 columns, the last one of one to three groups of 64; wide groups; two weights.
  put(out, {300, 832, {264, 48}, {SWY_I4, 64}}, false);
  put(out, {257, 1088, {512}, {SWY_I4, 0}}, false);
  put(out, {257, 2304, {40}, {SWY_I4, 128}}, true);
  Product loud{300, 832, {264, 48}, {SWY_I4, 64}};
  loud.loud = true;
  put(out, loud, false);
  for (const uint64_t in : {2048u, 4096u}) put(out, {513, in, {520}, {SWY_I4, 64}}, true);
  loud.in = 4096;
  put(out, loud, true);
}

void biased_cases(std::vector<CaseSpec>& out) {
  const auto put_biased = [&](Product p, bool slow = false) {
    p.biased = true;
    put(out, p, slow);
  };
  for (const Encoding& e : all_encodings()) {
    put_biased({1, 100, {36, 17}, e});
    put_biased({65, 256, {36, 130}, e});
  }
  for (const Encoding& e :
       {Encoding{SWY_F32, 0}, Encoding{SWY_BF16, 0}, Encoding{SWY_I4, 64}, Encoding{SWY_MXFP4, 32}}) {
    for (const uint32_t rows : {1u, 2u, 16u, 63u}) put_biased({rows, 256, {48, 16}, e});
    put_biased({513, 36, {24, 33}, e});
    put_biased({7, 160, {16, 20, 24, 28, 32, 36, 40, 44}, e});  // as many as there may be
    put_biased({3, 101, {35, 17}, e, false, 0.1f, 0.5f});
    put_biased({9, 300, {36}, e, true});
  }
  put_biased({1025, 101, {7}, {SWY_BF16, 0}});
  put_biased({4, 2048, {40}, {SWY_I4, 64}});
  for (const Encoding& e : all_encodings()) {
    for (const uint32_t rows : {8u, 33u, 129u}) put_biased({rows, 300, {30, 50}, e}, true);
  }
}

}  // namespace

void linear_cases(std::vector<CaseSpec>& out) {
  const Encoding f32{SWY_F32, 0}, bf16{SWY_BF16, 0}, i4{SWY_I4, 64};
  for (const Encoding& e : all_encodings()) {
    put(out, {1, 100, {36, 48}, e}, false);
    put(out, {65, 100, {36, 17}, e}, false);
    put(out, {9, 300, {36}, e, true}, false);
  }
  odd_cases(out);
  for (const Encoding& e : {bf16, Encoding{SWY_I4, 32}, Encoding{SWY_I4A, 128}}) {
    for (const uint32_t rows : {1u, 65u}) {
      put_mixed(out, e.name() + ".rows" + std::to_string(rows), rows, 100,
                {{36, e}, {31, bf16}, {26, f32}, {21, {SWY_I8, 64}}});
    }
  }
  for (const Encoding& e : {f32, bf16, Encoding{SWY_I4, 32}, Encoding{SWY_I8, 128}}) {
    put(out, {63, 48, {100}, e}, false);
    put(out, {513, 36, {24, 33}, e}, false);
    put(out, {2, 256, {12, 64}, e}, false);
    put(out, {7, 160, {16, 20, 24, 28, 32, 36, 40, 44}, e}, false);  // as many as there may be
  }
  put(out, {4, 2048, {40}, i4}, false);  // a long sum
  for (const Encoding& e : all_encodings()) {
    for (const uint32_t rows : {1u, 3u, 70u}) put(out, {rows, 256, {36, 130}, e}, false);  // whole groups
  }
  decoding_cases(out);
  few_rows_cases(out);
  biased_cases(out);
  for (const Encoding& e : all_encodings()) {
    for (const uint32_t rows : {1u, 2u, 8u, 16u, 17u, 63u, 64u, 65u, 129u, 513u}) {
      for (const uint64_t in : {36u, 64u, 300u, 512u}) put(out, {rows, in, {30, 50}, e}, true);
    }
  }
}

void random_linear_cases(Random& random, std::vector<CaseSpec>& out) {
  const Encoding e = all_encodings()[random.below(all_encodings().size())];
  std::vector<uint64_t> outs(1 + random.below(4));
  for (uint64_t& o : outs) o = 1 + random.below(120);
  Product p{1 + random.below(90), 8 + random.below(480), outs, e};
  p.biased = random.below(3) == 0;
  put(out, p, false);
}

}  // namespace switchyard::check
