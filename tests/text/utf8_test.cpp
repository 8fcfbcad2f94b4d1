// SPDX-License-Identifier: Apache-2.0
// UTF-8 as the Unicode Standard has it: what is none is refused or replaced, and what may still become some is waited
// for.
#include "core/text/utf8.h"

#include <gtest/gtest.h>

namespace switchyard {
namespace {

TEST(Utf8, RefusesWhatIsNone) {
  for (const char* bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xED\xBF\xBF",
                          "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82"}) {
    EXPECT_FALSE(check_utf8(bad).ok()) << testing::PrintToString(std::string(bad));
  }
  for (const char* good :
       {"", "a", "\xC2\x80", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(check_utf8(good).ok()) << testing::PrintToString(std::string(good));
  }
}

TEST(Utf8, WaitsForTheRestOfACharacter) {
  std::string out;
  EXPECT_EQ(append_utf8_lossy("a\xE2\x82", false, out), 1u);
  EXPECT_EQ(out, "a");
  EXPECT_EQ(append_utf8_lossy("\xE2\x82\xAC!", false, out), 4u);
  EXPECT_EQ(out, "a\xE2\x82\xAC!");
  EXPECT_EQ(append_utf8_lossy("\xE2\x82", true, out), 2u);
  EXPECT_EQ(out, "a\xE2\x82\xAC!\xEF\xBF\xBD");
}

}  // namespace
}  // namespace switchyard
