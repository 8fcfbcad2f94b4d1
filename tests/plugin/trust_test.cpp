// SPDX-License-Identifier: Apache-2.0
// Which backend files may be opened, and what is said of those that others can write to, or that hide one of ours.
#include "core/plugin/trust.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/plugin/support.h"

namespace switchyard::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string digest(const std::string& text) { return sha256(std::as_bytes(std::span(text))); }

TEST(Sha256, IsThatOfTheStandard) {
  EXPECT_EQ(digest(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

class Trust : public ::testing::Test {
 protected:
  Trust() {
    ::chmod(folder.path("").c_str(), 0755);
    file = folder.write("good.so", read_file(fixture("good")));
    ::chmod(file.c_str(), 0644);
  }
  Registry discover(const std::string& allow = "", const std::string& ours = "") const {
    DiscoveryOptions options;
    options.search_path = std::filesystem::path(file).parent_path();
    options.allow_list = allow;
    options.installed_folder = ours;
    return Registry::discover(Os::real(), options, test_host());
  }

  TemporaryFolder folder;
  std::string file;
};

TEST_F(Trust, AFileOfOursIsSilent) { EXPECT_THAT(discover().warnings(), ElementsAre()); }

TEST_F(Trust, WhatAllMayWriteToIsSaid) {
  ::chmod(file.c_str(), 0666);
  ::chmod(std::filesystem::path(file).parent_path().c_str(), 0777);
  const Registry r = discover();
  EXPECT_THAT(r.warnings(), Contains(HasSubstr("backend file " + file + " may be written by all users (mode 0666)")));
  EXPECT_THAT(r.warnings(), Contains(HasSubstr("may be written by all users (mode 0777)")));
  EXPECT_EQ(r.candidates()[0].reason, "");
}

TEST_F(Trust, WhatAnotherUserOwnsIsSaid) {
  if (::chown(file.c_str(), 4711, 4711) != 0) GTEST_SKIP() << "not tested: only root gives a file away";
  EXPECT_THAT(discover().warnings(),
              ElementsAre(HasSubstr("backend file " + file + " belongs to another user (number 4711)")));
}

TEST_F(Trust, WhatAGroupMayWriteToIsSaid) {
  if (::chown(file.c_str(), static_cast<uid_t>(-1), 4711) != 0)
    GTEST_SKIP() << "not tested: only root changes the group";
  ::chmod(file.c_str(), 0664);
  EXPECT_THAT(discover().warnings(), ElementsAre(HasSubstr("may be written by the group 4711 (mode 0664)")));
}

TEST_F(Trust, OnlyListedFilesAreOpened) {
  const std::string listed = folder.write("allow", "# mine\n\n" + digest(read_file(file)) + "  good.so\n");
  EXPECT_EQ(discover(listed).candidates()[0].reason, "");
  const std::string other = folder.write("other", digest("something else") + "  good.so\n");
  EXPECT_THAT(discover(other).candidates()[0].reason,
              HasSubstr("its SHA-256, " + digest(read_file(file)) + ", is not in the list"));
}

TEST_F(Trust, AListThatCannotBeReadAllowsNone) {
  EXPECT_THAT(discover(folder.path("none")).candidates()[0].reason,
              HasSubstr("SWITCHYARD_BACKEND_ALLOW allows none: "));
  const std::string bad = folder.write("bad", "good.so\n");
  EXPECT_THAT(discover(bad).candidates()[0].reason, HasSubstr("line 1 of " + bad + " does not begin with a SHA-256"));
}

TEST_F(Trust, WhatHidesABackendOfTheInstallationIsSaid) {
  TemporaryFolder installation;
  ::chmod(installation.path("").c_str(), 0755);
  const std::string ours = installation.write("good.so", read_file(fixture("good")));
  ::chmod(ours.c_str(), 0644);
  const Registry r = discover("", std::filesystem::path(ours).parent_path());
  EXPECT_THAT(r.warnings(),
              ElementsAre("backend good is " + file + ", which hides the one of this installation, " + ours));
}

}  // namespace
}  // namespace switchyard::testing
