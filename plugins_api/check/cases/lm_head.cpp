// SPDX-License-Identifier: Apache-2.0
// LM_HEAD and GATHER_ROWS.
#include "plugins_api/check/cases.h"

namespace switchyard::check {
namespace {

// Which rows' logits are wanted: one, some, or all.
std::vector<uint32_t> wanted_rows(uint32_t rows, const std::string& which) {
  if (which == "last") return {rows - 1};
  std::vector<uint32_t> out;
  for (uint32_t r = 0; r < rows; r += which == "all" ? 1 : 3) out.push_back(r);
  return out;
}

Case head(uint32_t rows, const std::string& which, uint64_t hidden, uint64_t vocab, const Encoding& e, Random& random) {
  Builder b(SWY_OP_LM_HEAD, random);
  b.rows(ragged(rows)).wanted(wanted_rows(rows, which)).input(hidden).matrix({vocab, hidden}, e.dtype, e.group);
  return b.fixed_output(vocab, SWY_F32, SWY_ROWS_LOGITS).done(rows > 2 ? 3 : 0);
}

Case gather(uint32_t rows, const std::string& which, uint64_t width, Random& random) {
  Builder b(SWY_OP_GATHER_ROWS, random);
  b.rows(ragged(rows)).wanted(wanted_rows(rows, which)).input(width).output(width, SWY_ROWS_LOGITS);
  return b.done(rows > 2 ? 3 : 0);
}

}  // namespace

void lm_head_cases(std::vector<CaseSpec>& out) {
  for (const Encoding& e : all_encodings()) {
    for (const uint32_t rows : {1u, 8u, 65u, 513u}) {
      for (const std::string which : {"last", "some", "all"}) {
        const std::string name = "lm_head." + e.name() + ".rows" + std::to_string(rows) + "." + which;
        if (rows == 1 && which != "last") continue;
        out.push_back({SWY_OP_LM_HEAD, name, rows == 513 && which != "last",
                       [=](Random& random) { return head(rows, which, 100, 77, e, random); }});
      }
    }
    for (const std::string which : {"last", "all"}) {
      out.push_back({SWY_OP_LM_HEAD, "lm_head." + e.name() + ".whole_groups." + which, false,
                     [=](Random& random) { return head(6, which, 256, 77, e, random); }});
    }
    out.push_back({SWY_OP_LM_HEAD, "lm_head." + e.name() + ".odd", false,
                   [=](Random& random) { return head(9, "some", 101, 301, e, random); }});
    out.push_back({SWY_OP_LM_HEAD, "lm_head." + e.name() + ".whole_groups.many", false,
                   [=](Random& random) { return head(27, "all", 256, 600, e, random); }});
    out.push_back(
        {SWY_OP_LM_HEAD, "lm_head." + e.name() + ".long", e.dtype != SWY_I4 && e.dtype != SWY_I4A,
         [=](Random& random) { return head(1, "last", 512, 20011, e, random); }});  // as decoding steps have it
    out.push_back({SWY_OP_LM_HEAD, "lm_head." + e.name() + ".wide", true,
                   [=](Random& random) { return head(5, "some", 512, 3001, e, random); }});
    if ((e.dtype == SWY_I4 || e.dtype == SWY_I4A) && e.group == 64) {  // more tiles than a device works at once
      out.push_back({SWY_OP_LM_HEAD, "lm_head." + e.name() + ".several", true,
                     [=](Random& random) { return head(18, "all", 1280, 26003, e, random); }});
    }
  }
  out.push_back({SWY_OP_LM_HEAD, "lm_head.bf16.rows1300", false, [](Random& random) {
                   return head(1300, "all", 12, 300, {SWY_BF16, 0}, random);
                 }});
  out.push_back(
      {SWY_OP_GATHER_ROWS, "gather_rows.odd", false, [=](Random& random) { return gather(1300, "all", 37, random); }});
  for (const uint32_t rows : {1u, 63u, 513u}) {
    for (const std::string which : {"last", "some", "all"}) {
      if (rows == 1 && which != "last") continue;
      out.push_back({SWY_OP_GATHER_ROWS, "gather_rows.rows" + std::to_string(rows) + "." + which, false,
                     [=](Random& random) { return gather(rows, which, 36, random); }});
    }
  }
}

void random_lm_head_cases(Random& random, std::vector<CaseSpec>& out) {
  const Encoding e = all_encodings()[random.below(all_encodings().size())];
  const uint32_t rows = 1 + random.below(90);
  const uint64_t hidden = 8 + random.below(360), vocab = 1 + random.below(300);
  const std::string sizes = ".rows" + std::to_string(rows) + ".hidden" + std::to_string(hidden);
  out.push_back({SWY_OP_LM_HEAD, "lm_head." + e.name() + sizes + ".vocab" + std::to_string(vocab), false,
                 [=](Random& r) { return head(rows, "some", hidden, vocab, e, r); }});
  out.push_back(
      {SWY_OP_GATHER_ROWS, "gather_rows" + sizes, false, [=](Random& r) { return gather(rows, "some", hidden, r); }});
}

}  // namespace switchyard::check
