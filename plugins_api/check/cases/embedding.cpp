// SPDX-License-Identifier: Apache-2.0
// EMBEDDING.
#include "plugins_api/check/cases.h"

namespace switchyard::check {
namespace {

constexpr uint32_t kVocab = 77;

Case embedding(uint32_t rows, uint64_t width, uint32_t vocab, const Encoding& e, Random& random) {
  Builder b(SWY_OP_EMBEDDING, random);
  b.rows(ragged(rows)).matrix({vocab, width}, e.dtype, e.group).output(width);
  Case c = b.done(rows > 2 ? 3 : 0);
  const auto last = static_cast<int32_t>(vocab - 1);
  c.tokens = {static_cast<int32_t>(random.below(vocab)), static_cast<int32_t>(random.below(vocab)), last};
  std::vector<int32_t>& tokens = c.steps[0].tokens;
  for (int32_t& t : tokens) t = static_cast<int32_t>(random.below(vocab));
  if (rows > 2) tokens[1] = last;
  tokens.front() = 0;
  tokens.back() = -1 - static_cast<int32_t>(random.below(3));  // from the token buffer
  return c;
}

void put(std::vector<CaseSpec>& out, const Encoding& e, uint32_t rows, uint64_t width, uint32_t vocab, bool slow) {
  const std::string name = "embedding." + e.name() + ".rows" + std::to_string(rows) + ".width" + std::to_string(width) +
                           (vocab != kVocab ? ".vocab" + std::to_string(vocab) : "");
  out.push_back(
      {SWY_OP_EMBEDDING, name, slow, [=](Random& random) { return embedding(rows, width, vocab, e, random); }});
}

}  // namespace

void embedding_cases(std::vector<CaseSpec>& out) {
  for (const Encoding& e : all_encodings()) {
    for (const uint32_t rows : {1u, 63u, 65u, 513u}) {
      for (const uint64_t width : {36u, 100u, 256u}) put(out, e, rows, width, kVocab, rows == 513 && width != 36);
    }
    put(out, e, 9, 101, 300, false);
  }
  put(out, {SWY_F32, 0}, 1025, 37, 300, false);
  put(out, {SWY_BF16, 0}, 1025, 20, 70001, false);  // an id has more than 16 bits
}

void random_embedding_cases(Random& random, std::vector<CaseSpec>& out) {
  const Encoding e = all_encodings()[random.below(all_encodings().size())];
  const uint32_t rows = 1 + random.below(200);
  put(out, e, rows, 8 + random.below(360), kVocab, false);
}

}  // namespace switchyard::check
