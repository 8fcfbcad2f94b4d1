// SPDX-License-Identifier: Apache-2.0
// What the hub answers, and hashes. pull_test.py has the wrong answers, each through the whole program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/hub/digest.h"
#include "core/hub/listing.h"

namespace switchyard::hub {
namespace {

TEST(HubListing, HasFilesWithTheirSizesAndHashes) {
  const std::string commit(40, 'c'), blob(40, 'b'), sha(64, 'a');
  const auto list =
      parse_listing(R"({"sha": ")" + commit + R"(", "gguf": {"architecture": "qwen35moe"}, "siblings": [
    {"rfilename": "config.json", "size": 7, "blobId": ")" +
                        blob + R"("},
    {"rfilename": "sub/m.gguf", "size": 133, "blobId": ")" +
                        blob + R"(", "lfs": {"sha256": ")" + sha + R"(", "size": 5000000000, "pointerSize": 133}}]})",
                    "o/n");
  ASSERT_TRUE(list.ok()) << list.status().message();
  EXPECT_EQ(list->commit, commit);
  EXPECT_EQ(list->gguf_architecture, "qwen35moe");
  EXPECT_EQ(list->find("config.json")->digest, blob);
  EXPECT_EQ(list->find("sub/m.gguf")->digest, sha);
  EXPECT_EQ(list->find("sub/m.gguf")->bytes, 5000000000u);
  EXPECT_EQ(list->find("m.gguf"), nullptr);
}

TEST(HubListing, PathsStayInTheirFolder) {
  for (const char* good : {"a", "a/b.gguf", "..a/b..", "a b", "é.gguf"}) EXPECT_EQ(fault_of_path(good), "") << good;
  for (const char* bad :
       {"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/..", "a/./b", "a\\b", "a\nb", "\x7f", "a\xff"}) {
    EXPECT_NE(fault_of_path(bad), "") << bad;
  }
  EXPECT_NE(fault_of_path(std::string("a\0b", 3)), "");
}

std::string digest_of(const std::string& like, const std::string& text) {
  Digest d(like, text.size());
  d.add(std::as_bytes(std::span(text).first(text.size() / 2)));
  d.add(std::as_bytes(std::span(text).subspan(text.size() / 2)));
  return d.text();
}

// As sha256sum and `git hash-object` print them.
TEST(HubDigest, IsSha256OrGits) {
  EXPECT_EQ(digest_of(std::string(64, '0'), "hello\n"),
            "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
  EXPECT_EQ(digest_of(std::string(40, '0'), "hello\n"), "ce013625030ba8dba906f756967f9e9ca394464a");
}

}  // namespace
}  // namespace switchyard::hub
