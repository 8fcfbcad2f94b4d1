// SPDX-License-Identifier: Apache-2.0
// Every way in which a file can be unfit to be a backend is turned down with its reason, and never opened for nothing.
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/plugin/support.h"

namespace switchyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

TEST(Discovery, AcceptsAGoodPlugin) {
  const Registry r = discover({fixture("good")});
  ASSERT_THAT(r.candidates(), SizeIs(1));
  EXPECT_EQ(r.candidates()[0].reason, "");
  EXPECT_EQ(r.candidates()[0].id, "good");
  ASSERT_NE(r.candidates()[0].plugin, nullptr);
  EXPECT_EQ(r.candidates()[0].plugin->version(), "1.2.3");
}

TEST(Discovery, RefusesByNote) {
  EXPECT_EQ(reason_of(fixture("other_abi")),
            "speaks ABI 2 to 2, this runtime speaks 1; install the plugin's matching version");
  EXPECT_EQ(reason_of(fixture("needs_cpu")), "needs the processor feature 'warpdrive', which this machine lacks");
  EXPECT_EQ(reason_of(fixture("no_note")), "not a Switchyard plugin (no Switchyard note)");
}

TEST(Discovery, RefusesByNegotiation) {
  EXPECT_EQ(reason_of(fixture("refuses")), "refused: good: the moon is in the wrong phase");
  EXPECT_EQ(reason_of(fixture("answers_abi")), "answered ABI 7, this runtime speaks 1");
  EXPECT_EQ(reason_of(fixture("no_table")), "gave no id or no table");
  EXPECT_EQ(reason_of(fixture("null_entry")), "lacks the mandatory entry buffer_map");
  EXPECT_EQ(reason_of(fixture("short_table")), "lacks the mandatory entry list_begin");
  EXPECT_EQ(reason_of(fixture("other_id")), "calls itself 'good', and its note says 'other'");
  EXPECT_EQ(reason_of(fixture("no_symbol")), "no symbol switchyard_plugin_negotiate");
}

TEST(Discovery, RefusesWhatIsNoLibraryForThisMachine) {
  const TemporaryFolder folder;
  const std::string good = read_file(fixture("good"));
  EXPECT_EQ(reason_of(folder.write("text.so", "hello, world")), "not a shared library (no ELF header)");
  EXPECT_EQ(reason_of(folder.write("empty.so", "")), "not a shared library (no ELF header)");
  EXPECT_EQ(reason_of(folder.write("head.so", good.substr(0, 20))), "a truncated ELF file");
  EXPECT_EQ(reason_of(folder.write("part.so", good.substr(0, 4000))), "a truncated ELF file");

  std::string other = good;
  const uint16_t machine = EM_S390;
  std::memcpy(other.data() + offsetof(Elf64_Ehdr, e_machine), &machine, sizeof machine);
  EXPECT_THAT(reason_of(folder.write("other.so", other)), StartsWith("built for another processor (ELF machine 22, "));
  EXPECT_THAT(reason_of(folder.path("absent.so")), AllOf(HasSubstr("absent.so"), HasSubstr("No such file")));
}

// Running code that a file was cut off from ends in a bus error, so no cut inside a loaded segment may get past the
// note.
TEST(Discovery, NeverAcceptsATruncatedCopy) {
  const std::string good = read_file(fixture("good"));
  const auto bytes = std::as_bytes(std::span(good));
  size_t loaded = 0;  // the end of the last segment that the loader maps
  Elf64_Ehdr head;
  std::memcpy(&head, good.data(), sizeof head);
  for (uint16_t i = 0; i < head.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, good.data() + head.e_phoff + i * sizeof segment, sizeof segment);
    if (segment.p_type == PT_LOAD) loaded = std::max<size_t>(loaded, segment.p_offset + segment.p_filesz);
  }
  ASSERT_TRUE(read_plugin_note(bytes).ok());
  for (size_t size = 0; size < loaded; ++size) ASSERT_FALSE(read_plugin_note(bytes.first(size)).ok()) << size;
}

TEST(Discovery, TheFirstOfTwoWithOneIdWins) {
  const TemporaryFolder folder;
  const std::string copy = folder.write("copy.so", read_file(fixture("good")));
  const Registry r = discover({fixture("good"), copy});
  ASSERT_THAT(r.candidates(), SizeIs(2));
  EXPECT_EQ(r.candidates()[0].reason, "");
  EXPECT_EQ(r.candidates()[1].plugin, nullptr);
  EXPECT_EQ(r.candidates()[1].reason,
            "hidden by " + r.candidates()[0].path + ", which has the same id and was found first");
}

TEST(Discovery, OneFileIsLookedAtOnce) {
  EXPECT_THAT(discover({fixture("good"), fixture("good")}).candidates(), SizeIs(1));
}

TEST(Discovery, PathsAreAbsolute) {
  DiscoveryOptions options;
  options.libraries = {"mine.so"};
  options.search_path = "plugins:/nonexistent-folder";
  const Registry r = Registry::discover(Os::real(), options, test_host());
  ASSERT_THAT(r.candidates(), SizeIs(3));
  EXPECT_EQ(r.candidates()[0].reason, "--backend-lib takes an absolute path");
  EXPECT_EQ(r.candidates()[1].reason, "SWITCHYARD_BACKEND_PATH takes absolute folders");
  EXPECT_THAT(r.candidates()[2].reason, HasSubstr("/nonexistent-folder"));
  EXPECT_THAT(r.warnings(),
              ElementsAre("backend path 'plugins' is not searched: SWITCHYARD_BACKEND_PATH takes absolute folders",
                          HasSubstr("backend path '/nonexistent-folder' is not searched: cannot list")));
}

TEST(Discovery, SearchesFoldersForLibraries) {
  const TemporaryFolder folder;
  folder.write("good.so", read_file(fixture("good")));
  folder.write("README", "not a library, and not looked at");
  DiscoveryOptions options;
  options.search_path = folder.path();
  const Registry r = Registry::discover(Os::real(), options, test_host());
  ASSERT_THAT(r.candidates(), SizeIs(1));
  EXPECT_EQ(r.candidates()[0].path, folder.path("good.so"));
  EXPECT_EQ(r.candidates()[0].reason, "");
}

TEST(Discovery, ReportsAFailingSystem) {
  FailingOs os;
  os.fail_map = true;
  EXPECT_EQ(reason_of(fixture("good"), os), "cannot map " + fixture("good") + ": told to fail");
  os.fail_map = false;
  os.fail_open_library = true;
  EXPECT_EQ(reason_of(fixture("good"), os), "cannot open " + fixture("good") + ": told to fail");
  os.fail_list = true;
  DiscoveryOptions options;
  options.search_path = "/some-folder";
  const Registry r = Registry::discover(os, options, test_host());
  ASSERT_THAT(r.candidates(), SizeIs(1));
  EXPECT_EQ(r.candidates()[0].reason, "cannot list /some-folder: told to fail");
}

}  // namespace
}  // namespace switchyard::testing
