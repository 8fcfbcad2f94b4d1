// SPDX-License-Identifier: Apache-2.0
// CAST.
#include "plugins_api/check/cases.h"
#include "switchyard/weights.h"

namespace switchyard::check {
namespace {

Case cast(uint32_t rows, uint64_t width, swy_dtype from, swy_dtype to, Random& random) {
  Builder b(SWY_OP_CAST, random);
  b.rows(ragged(rows)).fixed_input(width, 0, 3).fixed_output(width, to);
  Case c = b.done(rows > 2 ? 3 : 0);
  c.inputs[0].desc.dtype = from;
  std::vector<float>& x = c.steps[0].inputs[0].floats;
  for (size_t i = 0; from == SWY_F32 && i < x.size(); i += 7) {  // halfway between two bf16 numbers
    x[i] = swy_bits_float((swy_float_bits(x[i]) & 0xffff0000u) | 0x8000u);
  }
  return c;
}

}  // namespace

void cast_cases(std::vector<CaseSpec>& out) {
  for (const uint32_t rows : {1u, 63u, 1025u}) {
    for (const uint64_t width : {37u, 100u}) {
      for (const bool narrow : {true, false}) {
        const std::string name = std::string("cast.") + (narrow ? "f32_to_bf16" : "bf16_to_f32") + ".rows" +
                                 std::to_string(rows) + ".width" + std::to_string(width);
        const swy_dtype from = narrow ? SWY_F32 : SWY_BF16, to = narrow ? SWY_BF16 : SWY_F32;
        out.push_back({SWY_OP_CAST, name, false, [=](Random& random) { return cast(rows, width, from, to, random); }});
      }
    }
  }
}

void random_cast_cases(Random& random, std::vector<CaseSpec>& out) {
  const uint32_t rows = 1 + random.below(300);
  const uint64_t width = 1 + random.below(360);
  const bool narrow = random.below(2) == 0;
  const swy_dtype from = narrow ? SWY_F32 : SWY_BF16, to = narrow ? SWY_BF16 : SWY_F32;
  out.push_back({SWY_OP_CAST,
                 std::string("cast.") + (narrow ? "f32_to_bf16" : "bf16_to_f32") + ".rows" + std::to_string(rows) +
                     ".width" + std::to_string(width),
                 false, [=](Random& r) { return cast(rows, width, from, to, r); }});
}

}  // namespace switchyard::check
