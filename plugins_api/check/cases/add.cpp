// SPDX-License-Identifier: Apache-2.0
// ADD, SILU_MUL, SIGMOID_MUL, SIGMOID_SCALE_ADD.
#include "plugins_api/check/cases.h"

namespace switchyard::check {
namespace {

constexpr swy_op_id kOps[] = {SWY_OP_ADD, SWY_OP_SILU_MUL, SWY_OP_SIGMOID_MUL, SWY_OP_SIGMOID_SCALE_ADD};

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

}  // namespace

void add_cases(std::vector<CaseSpec>& out) {
  for (const swy_op_id op : kOps) {
    for (const uint32_t rows : {1u, 2u, 63u, 65u, 513u}) {
      for (const uint64_t width : {36u, 100u, 256u, 2048u}) put(out, op, rows, width, rows == 513 && width == 2048);
    }
    put(out, op, 1025, 37, false);
    put(out, op, 9, 101, false, 100);  // the exponential of a gate is beyond fp32
  }
}

void random_add_cases(Random& random, std::vector<CaseSpec>& out) {
  for (const swy_op_id op : kOps) put(out, op, 1 + random.below(200), 1 + random.below(700), false);
}

}  // namespace switchyard::check
