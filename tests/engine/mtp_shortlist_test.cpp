// SPDX-License-Identifier: Apache-2.0
// A multi-token prediction layer that guesses from a shortlist: its logits are those of the whole head where it has
// any, and what is drawn stays the same, also where it is not in the list.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/engine/mtp_drafter.h"
#include "core/import/convert.h"
#include "tests/engine/fixture.h"
#include "tests/support/drafted.h"
#include "tests/support/files.h"

namespace switchyard {
namespace {

const std::string kTinyMtp = SWITCHYARD_TEST_DATA "/tiny/mtp";

TestModel with_shortlist(const std::string& shortlist, const std::string& backend, bool deterministic = true) {
  const testing::TemporaryFolder out;
  ConvertOptions c;
  c.source = kTinyMtp;
  c.output = out.path("model.swy");
  c.encoding = WeightEncoding{SWY_I4, 32};
  c.mtp_shortlist = shortlist;
  const auto report = convert(Os::real(), c);
  EXPECT_TRUE(report.ok()) << report.status().message();
  ModelOptions o = drafting(1);
  o.mtp = o.hidden = true;
  o.deterministic = deterministic;
  o.context = 128;
  return make_model(c.output, backend, o);
}

std::vector<float> draft_logits(Model& model, std::span<const int32_t> ids, int32_t next) {
  auto session = *model.session();
  EXPECT_TRUE(session->feed(ids).ok());
  std::vector<float> rows(ids.size() * model.hidden_width());
  EXPECT_TRUE(model.read_hidden(0, rows).ok());
  session->trail().saw(0, ids, rows);
  const auto logits = session->draft_row(next);
  EXPECT_TRUE(logits.ok()) << logits.status().message();
  return logits.ok() ? std::vector<float>(logits->begin(), logits->end()) : std::vector<float>();
}

// Rows of the head keep their encoding.
TEST(MtpShortlist, ItsLogitsAreThoseOfTheWholeHead) {
  const testing::TemporaryFolder folder;
  folder.write("ids.txt", "7 90\n64 65 66\n3 119\n");
  const TestModel whole = with_shortlist("off", "reference"),
                  some = with_shortlist(folder.path("ids.txt"), "reference");
  ASSERT_TRUE(whole.model != nullptr && some.model != nullptr && some.model->mtp() != nullptr);
  const std::set<size_t> listed = {3, 7, 64, 65, 66, 90, 119};
  const std::vector<int32_t> ids = {5, 118, 64, 2, 99, 31};  // the model reads any token
  const auto all = draft_logits(*whole.model, ids, 117), few = draft_logits(*some.model, ids, 117);
  ASSERT_EQ(all.size(), whole.model->vocab());
  ASSERT_EQ(few.size(), all.size());
  for (size_t id = 0; id < all.size(); ++id) {
    if (listed.contains(id)) {
      EXPECT_EQ(few[id], all[id]) << id;
    } else {
      EXPECT_EQ(few[id], -INFINITY) << id;
    }
  }
}

// Guesses are from the list alone; tokens from the whole vocabulary.
TEST(MtpShortlist, ChangesNoToken) {
  for (const char* backend : {"reference", kFast}) {
    const TestModel t = with_shortlist("40", backend);
    ASSERT_TRUE(t.model != nullptr && t.model->mtp() != nullptr);
    std::mt19937 random(11);
    uint64_t drafted = 0, accepted = 0, outside = 0;
    for (int round = 0; round < 6; ++round) {
      const Request request = random_request(random, t.model->vocab(), 30);
      auto session = *t.model->session();
      const Drafted plain = run_drafted(*session, request, nullptr);
      session->reset();
      const Drafted with = run_drafted(*session, request, std::make_shared<MtpDrafter>(*session, 3));
      EXPECT_TRUE(with.drawn == plain.drawn) << backend << " " << round;
      drafted += with.outcome.drafts.all_drafted(), accepted += with.outcome.drafts.all_accepted();
      for (const int32_t id : plain.drawn.ids) outside += id >= 40 ? 1 : 0;
    }
    EXPECT_GT(drafted, 100u);
    EXPECT_GT(accepted, 0u);
    EXPECT_GT(outside, 20u);
  }
}

}  // namespace
}  // namespace switchyard
