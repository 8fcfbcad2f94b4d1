// SPDX-License-Identifier: Apache-2.0
// MLP, MLP_ADD.
#include "plugins_api/check/cases.h"

namespace switchyard::check {
namespace {

struct Mlp {
  uint32_t rows;
  uint64_t hidden;
  uint32_t width;
  uint64_t out;
  Encoding encoding;
  bool clamped = false;
  Encoding down = {};  // if not `encoding`
};

Case mlp(swy_op_id op, const Mlp& m, Random& random) {
  swy_mlp_attrs a{};
  a.width = m.width;
  if (m.clamped) a.activation = SWY_ACT_CLAMPED, a.act_alpha = 1.702f, a.act_limit = 0.8f;
  const Encoding down = m.down.dtype != 0 ? m.down : m.encoding;
  Builder b(op, random);
  b.attrs(a).rows(ragged(m.rows)).input(m.hidden);
  if (op == SWY_OP_MLP_ADD) b.input(m.out);
  b.matrix({m.width, m.hidden}, m.encoding.dtype, m.encoding.group, 1.5);
  b.matrix({m.width, m.hidden}, m.encoding.dtype, m.encoding.group);
  b.matrix({m.out, m.width}, down.dtype, down.group);
  return b.output(m.out).done(m.rows > 2 ? 3 : 0);
}

void put(std::vector<CaseSpec>& out, const Mlp& m, bool slow = false) {
  for (const swy_op_id op : {SWY_OP_MLP, SWY_OP_MLP_ADD}) {
    const std::string name = op_name(op) + "." + m.encoding.name() + ".rows" + std::to_string(m.rows) + ".hidden" +
                             std::to_string(m.hidden) + ".width" + std::to_string(m.width) + ".out" +
                             std::to_string(m.out) + (m.clamped ? ".clamped" : "") +
                             (m.down.dtype != 0 ? ".down_" + m.down.name() : "");
    out.push_back({op, name, slow, [=](Random& random) { return mlp(op, m, random); }});
  }
}

}  // namespace

void mlp_cases(std::vector<CaseSpec>& out) {
  const Encoding bf16{SWY_BF16, 0}, i4{SWY_I4, 64};
  for (const Encoding& e : all_encodings()) {
    put(out, {1, 100, 36, 100, e});
    put(out, {17, 100, 52, 36, e, true});
    put(out, {3, 256, 256, 256, e});  // whole groups
  }
  for (const Encoding& e : {Encoding{SWY_F32, 0}, bf16, Encoding{SWY_I8, 64}, i4, Encoding{SWY_MXFP4, 32}}) {
    for (const uint32_t rows : {1u, 2u, 63u, 65u}) put(out, {rows, 64, 96, 64, e});
    put(out, {5, 101, 19, 37, e});  // widths that fit no vector
    put(out, {513, 36, 24, 36, e, true});
  }
  put(out, {1025, 37, 11, 13, bf16});
  put(out, {1, 2048, 512, 256, i4});
  put(out, {16, 512, 768, 512, i4, false, {SWY_I8, 64}});
  put(out, {9, 256, 128, 256, bf16, false, {SWY_I4A, 32}});
  // The widths of large models: rows of `down` that no shared memory of a GPU holds.
  put(out, {1, 64, 17408, 64, i4});
  put(out, {3, 64, 17408, 32, bf16, false, {SWY_I4A, 32}}, true);
  for (const Encoding& e : all_encodings()) {
    for (const uint32_t rows : {1u, 8u, 33u, 129u}) put(out, {rows, 300, 200, 300, e}, true);
    for (const uint32_t rows : {1u, 8u}) put(out, {rows, 128, 25600, 64, e}, true);
  }
}

void random_mlp_cases(Random& random, std::vector<CaseSpec>& out) {
  const Encoding e = all_encodings()[random.below(all_encodings().size())];
  put(out, {1 + random.below(90), 8 + random.below(300), 16 + random.below(200), 1 + random.below(200), e,
            random.below(2) == 0});
}

}  // namespace switchyard::check
