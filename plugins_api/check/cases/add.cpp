// SPDX-License-Identifier: Apache-2.0
// ADD, SILU_MUL, SIGMOID_MUL, SIGMOID_SCALE_ADD.
#include "plugins_api/check/cases.h"

namespace switchyard::check {
namespace {

constexpr swy_op_id kOps[] = {SWY_OP_ADD, SWY_OP_SILU_MUL, SWY_OP_SIGMOID_MUL, SWY_OP_SIGMOID_SCALE_ADD};

// The second revision of SILU_MUL.
void put_activation(std::vector<CaseSpec>& out, swy_activation_attrs a, uint32_t rows, uint64_t width,
                    double deviation = 2) {
  const std::string name = "silu_mul." + std::string(a.activation == SWY_ACT_CLAMPED ? "clamped" : "silu") + ".rows" +
                           std::to_string(rows) + ".width" + std::to_string(width) + (deviation > 10 ? ".large" : "");
  out.push_back({SWY_OP_SILU_MUL, name, false, [=](Random& random) {
                   Builder b(SWY_OP_SILU_MUL, random, 2);
                   b.attrs(a).rows(ragged(rows)).input(width, 0, deviation).input(width, 0, deviation);
                   return b.output(width).done(rows > 2 ? 3 : 0);
                 }});
}

void put(std::vector<CaseSpec>& out, swy_op_id op, uint32_t rows, uint64_t width, bool slow, double deviation = 2) {
  const std::string name = op_name(op) + ".rows" + std::to_string(rows) + ".width" + std::to_string(width) +
                           (deviation > 10 ? ".large" : "");
  out.push_back({op, name, slow, [=](Random& random) {
                   Builder b(op, random);
                   b.rows(ragged(rows)).input(width, 0, deviation).input(width, 0, deviation);
                   if (op == SWY_OP_SIGMOID_SCALE_ADD) b.input(1, 0, deviation);
                   return b.output(width).done(rows > 2 ? 3 : 0);
                 }});
}

void activation_cases(std::vector<CaseSpec>& out) {
  const swy_activation_attrs silu{0, SWY_ACT_SILU, 0, 0}, gpt_oss{0, SWY_ACT_CLAMPED, 1.702f, 7},
      narrow{0, SWY_ACT_CLAMPED, 0.9f, 1.5f};
  for (const uint32_t rows : {1u, 63u, 65u, 513u}) put_activation(out, narrow, rows, 100);
  put_activation(out, silu, 65, 256);
  put_activation(out, gpt_oss, 3, 36);
  put_activation(out, gpt_oss, 9, 101, 100);  // the exponential of a gate is beyond fp32
  put_activation(out, narrow, 1025, 37);
}

}  // namespace

void add_cases(std::vector<CaseSpec>& out) {
  for (const swy_op_id op : kOps) {
    for (const uint32_t rows : {1u, 2u, 63u, 65u, 513u}) {
      for (const uint64_t width : {36u, 100u, 256u, 2048u}) put(out, op, rows, width, rows == 513 && width == 2048);
    }
    put(out, op, 1025, 37, false);
    put(out, op, 9, 101, false, 100);  // the exponential of a gate is beyond fp32
  }
  activation_cases(out);
}

void random_add_cases(Random& random, std::vector<CaseSpec>& out) {
  for (const swy_op_id op : kOps) put(out, op, 1 + random.below(200), 1 + random.below(700), false);
}

}  // namespace switchyard::check
