// SPDX-License-Identifier: Apache-2.0
// EMBEDDING.
#include "plugins_api/check/cases.h"

namespace switchyard::check {
namespace {

Case embedding(uint32_t rows, uint64_t width, const Encoding& e, Random& random) {
  constexpr uint32_t kVocab = 77;
  Builder b(SWY_OP_EMBEDDING, random);
  b.rows(ragged(rows)).matrix({kVocab, width}, e.dtype, e.group).output(width);
  Case c = b.done(rows > 2 ? 3 : 0);
  c.tokens = {static_cast<int32_t>(random.below(kVocab)), static_cast<int32_t>(random.below(kVocab)), kVocab - 1};
  std::vector<int32_t>& tokens = c.steps[0].tokens;
  for (int32_t& t : tokens) t = static_cast<int32_t>(random.below(kVocab));
  tokens.front() = 0;
  tokens.back() = -1 - static_cast<int32_t>(random.below(3));  // from the token buffer
  return c;
}

}  // namespace

void embedding_cases(std::vector<CaseSpec>& out) {
  for (const Encoding& e : all_encodings()) {
    for (const uint32_t rows : {1u, 63u, 65u, 513u}) {
      for (const uint64_t width : {36u, 100u, 256u}) {
        out.push_back({SWY_OP_EMBEDDING,
                       "embedding." + e.name() + ".rows" + std::to_string(rows) + ".width" + std::to_string(width),
                       rows == 513 && width != 36, [=](Random& random) { return embedding(rows, width, e, random); }});
      }
    }
  }
}

void random_embedding_cases(Random& random, std::vector<CaseSpec>& out) {
  const Encoding e = all_encodings()[random.below(all_encodings().size())];
  const uint32_t rows = 1 + random.below(200);
  const uint64_t width = uint64_t{4} * (2 + random.below(90));
  out.push_back({SWY_OP_EMBEDDING,
                 "embedding." + e.name() + ".rows" + std::to_string(rows) + ".width" + std::to_string(width), false,
                 [=](Random& r) { return embedding(rows, width, e, r); }});
}

}  // namespace switchyard::check
