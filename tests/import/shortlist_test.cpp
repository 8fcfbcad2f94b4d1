// SPDX-License-Identifier: Apache-2.0
// The ids that a multi-token prediction layer guesses from, and what a conversion makes of them.
#include "core/import/shortlist.h"

#include <gmock/gmock.h>

#include "core/import/convert.h"
#include "core/program/program.h"
#include "tests/support/files.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;

TEST(IdRanges, AreTextAndBack) {
  const IdRanges some = IdRanges::of({9, 3, 4, 5, 9, 12, 4});
  EXPECT_EQ(some.text(), "3-5 9 12");
  EXPECT_EQ(some.count(), 5u);
  EXPECT_EQ(some.end(), 13u);
  const auto again = IdRanges::parse(some.text(), 13);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->text(), some.text());
  EXPECT_TRUE(IdRanges::parse("", 1)->empty());
}

TEST(IdRanges, RefusesOtherText) {
  for (const char* text :
       {"13", "3-13", "5-3", "3 3", "3-5 5", "3,4", "3-", "-3", "x", "3  4", "99999999999", "3 4x"}) {
    EXPECT_FALSE(IdRanges::parse(text, 13).ok()) << text;
  }
}

TEST(Shortlist, HasTheFirstTokensAndAddedOnes) {
  const std::string tokenizer = R"({"added_tokens": [{"id": 190000}, {"id": 190001}, {"id": 7}, {"id": 999999}]})";
  const auto made = [&](const std::string& wanted, uint32_t vocab) {
    const auto ids = make_shortlist(Os::real(), wanted, tokenizer, vocab);
    EXPECT_TRUE(ids.ok()) << ids.status().message();
    return ids.ok() ? ids->text() : "";
  };
  EXPECT_EQ(made("auto", 200000), "0-98303 190000-190001");
  EXPECT_EQ(made("auto", 120000), "") << "there is little to leave out";
  EXPECT_EQ(made("off", 200000), "");
  EXPECT_EQ(made("100", 200000), "0-99 190000-190001");
  EXPECT_EQ(made("200000", 200000), "");
}

TEST(Shortlist, ReadsFilesAndRefusesTheRest) {
  const testing::TemporaryFolder folder;
  folder.write("ids", "5 6\r\n\n200\t7");
  folder.write("word", "5\n6 x\n");
  folder.write("large", "5\n300\n");
  folder.write("empty", "\n");
  const auto made = [&](const std::string& wanted) { return make_shortlist(Os::real(), wanted, "", 300); };
  EXPECT_EQ(made(folder.path("ids"))->text(), "5-7 200");
  EXPECT_THAT(made(folder.path("word")).status().message(), HasSubstr("word, line 2: 'x' is no token id"));
  EXPECT_THAT(made(folder.path("large")).status().message(), HasSubstr("line 2: '300' is no token id; this model has"));
  EXPECT_THAT(made(folder.path("empty")).status().message(), HasSubstr("has no token ids"));
  for (const char* wanted : {"", "0", "-1", "12x", "some"}) {
    EXPECT_THAT(made(wanted).status().message(),
                HasSubstr("it must be auto, off, a number of tokens or a file of ids"));
  }
}

// Rows of the head as they are stored there.
TEST(Shortlist, IsAHeadOfTheSameRows) {
  const testing::TemporaryFolder out;
  ConvertOptions c;
  c.source = SWITCHYARD_TEST_DATA "/tiny/mtp";
  c.output = out.path("model.swy");
  c.encoding = WeightEncoding{};
  c.mtp_shortlist = "33";
  const auto report = convert(Os::real(), c);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_THAT(report->notes, ::testing::Contains("the multi-token prediction layer guesses from 33 of 120 tokens"));
  const auto program = Program::load(Os::real(), c.output);
  ASSERT_TRUE(program.ok());
  EXPECT_THAT(program->metadata,
              ::testing::Contains(std::pair<std::string_view, std::string_view>(kShortlistKey, "0-32")));
  const Tensor *some = program->find_tensor("mtp.lm_head.shortlist"), *whole = program->find_tensor("lm_head.weight");
  ASSERT_TRUE(some != nullptr && whole != nullptr);
  EXPECT_EQ(some->dims[0], 33u);
  const auto few = program->segment_bytes(*some), all = program->segment_bytes(*whole);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), all.begin()));
  c.mtp_shortlist = "auto";
  ASSERT_TRUE(convert(Os::real(), c).ok());
  EXPECT_EQ(Program::load(Os::real(), c.output)->find_tensor("mtp.lm_head.shortlist"), nullptr);
}

}  // namespace
}  // namespace switchyard
