// SPDX-License-Identifier: Apache-2.0
// Text from files in messages.
#include "core/base/printable.h"

#include <gtest/gtest.h>

namespace switchyard {
namespace {

TEST(Printable, KeepsTextAndEscapesWhatATerminalObeys) {
  EXPECT_EQ(printable("naïve 日本 🎉"), "naïve 日本 🎉");
  EXPECT_EQ(printable("\x1b]0;x\x07"), "\\x1B]0;x\\x07");
  EXPECT_EQ(printable("a\nb\r\x7f"), "a\\x0Ab\\x0D\\x7F");
  EXPECT_EQ(printable("\xC2\x9B"), "\\xC2\\x9B") << "CSI as one character";
  EXPECT_EQ(printable("\xE2\x80\xAE"), "\\xE2\\x80\\xAE") << "right to left";
  EXPECT_EQ(printable("a\xff\xC3"), "a\\xFF\\xC3") << "not UTF-8";
}

TEST(Printable, WholeMessagesAreNotCut) {
  const std::string all(1000, '\x1b');
  EXPECT_EQ(printable_line(all).size(), 4000u);
  EXPECT_EQ(printable_line("two\nlines\t\u2028"), "two\\x0Alines\\x09\\xE2\\x80\\xA8");
  EXPECT_EQ(printable_lines("a\nb\r\x1b\n"), "a\nb\\x0D\\x1B\n");
}

TEST(Printable, JsonMeansTheSame) {
  EXPECT_EQ(printable_json("{\n \"é\": \"\u009b\x7f\u202e\U000e0001\"}"),
            "{\n \"é\": \"\\u009b\\u007f\\u202e\\udb40\\udc01\"}");
}

TEST(Printable, CutsBetweenCharacters) {
  EXPECT_EQ(printable("abcdef", 6), "abcdef");
  EXPECT_EQ(printable("abcdefg", 6), "abc...");
  EXPECT_EQ(printable("aéééé", 6), "aé...") << "é is two bytes";
  EXPECT_EQ(printable(std::string(100000, '\x1b')).size(), 79u);
}

}  // namespace
}  // namespace switchyard
