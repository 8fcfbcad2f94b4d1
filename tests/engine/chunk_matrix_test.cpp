// SPDX-License-Identifier: Apache-2.0
// Long prompts on the demo model, in chunks and token by token: the same bits of `reference`.
#include <random>

#include "tests/engine/fixture.h"

namespace switchyard {
namespace {

std::vector<float> logits_of(Model& model, const std::vector<int32_t>& ids, uint32_t chunk) {
  auto session = model.session();
  EXPECT_TRUE(session.ok());
  const auto last = (*session)->feed(ids, 1, chunk);
  EXPECT_TRUE(last.ok()) << last.status().message();
  if (!last.ok()) return {};
  std::vector<float> all(last->begin(), last->end());
  for (const int32_t id : {7, 300}) {
    const auto next = (*session)->feed({&id, 1});
    EXPECT_TRUE(next.ok());
    if (next.ok()) all.insert(all.end(), next->begin(), next->end());
  }
  return all;
}

TEST(ChunkMatrix, LongPromptsEqualTokenByToken) {
  const TestModel t = make_model(kDemo);
  ASSERT_NE(t.model, nullptr);
  for (const size_t length : {200, 513}) {
    std::mt19937 random(static_cast<uint32_t>(length));
    std::vector<int32_t> ids(length);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % t.model->vocab());
    const std::vector<float> one_by_one = logits_of(*t.model, ids, 1);
    for (const uint32_t chunk : {16u, 64u, 512u}) {
      EXPECT_EQ(logits_of(*t.model, ids, chunk), one_by_one) << length << " tokens, chunks of " << chunk;
    }
  }
}

}  // namespace
}  // namespace switchyard
