// SPDX-License-Identifier: Apache-2.0
// The probe itself: what it remembers, and what happens if it cannot run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "core/plugin/known_good.h"
#include "tests/plugin/hostile_files.h"
#include "tests/plugin/support.h"

namespace switchyard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

using Tried = Verdict::Tried;

Verdict verdict(const std::string& file, const std::string& memory = "",
                const std::string& program = SWITCHYARD_PROBE) {
  return probe(Os::real(), {program, memory, 60}, {file})[0];
}

TEST(Probe, FindsGoodPluginsFit) {
  for (const std::string& file :
       {fixture("good"), fixture("no_device"), std::string(SWITCHYARD_TEST_BACKENDS "/switchyard_reference.so")}) {
    const Verdict v = verdict(file);
    EXPECT_EQ(v.reason, "") << file;
    EXPECT_EQ(v.tried, Tried::now);
  }
}

TEST(Probe, SaysWhatDiscoveryWouldSay) {
  EXPECT_EQ(verdict(fixture("refuses")).reason, "refused: good: the moon is in the wrong phase");
  EXPECT_EQ(verdict(fixture("null_entry")).reason, "lacks the mandatory entry buffer_map");
}

TEST(Probe, RemembersAFileUntilItChanges) {
  const TemporaryFolder folder;
  const std::string file = folder.write("good.so", read_file(fixture("good"))), memory = folder.path("cache/plugins");
  EXPECT_EQ(verdict(file, memory).tried, Tried::now);
  EXPECT_EQ(verdict(file, memory).tried, Tried::earlier);
  EXPECT_EQ(verdict(file).tried, Tried::now) << "without a memory";

  // Of the same size, and as old as before.
  const auto age = std::filesystem::last_write_time(file);
  folder.write("good.so", read_file(fixture("good")));
  std::filesystem::last_write_time(file, age);
  EXPECT_EQ(verdict(file, memory).tried, Tried::now);
  EXPECT_EQ(verdict(file, memory).tried, Tried::earlier);

  // Another file under its name.
  folder.write("other.so", read_file(fixture("good")));
  std::filesystem::rename(folder.path("other.so"), file);
  EXPECT_EQ(verdict(file, memory).tried, Tried::now);

  // Another probe.
  const std::string probe_copy = folder.path("probe");
  std::filesystem::copy_file(SWITCHYARD_PROBE, probe_copy);
  EXPECT_EQ(verdict(file, memory, probe_copy).tried, Tried::now);
}

// What was fit before the machine started anew, or was another file, is tried again.
TEST(Probe, RemembersForThisBootAndThisFile) {
  std::string boot = read_file("/proc/sys/kernel/random/boot_id");
  boot.pop_back();  // its line end
  const std::string identity = plugin_identity(fixture("good"), SWITCHYARD_PROBE);
  for (const std::string& part : {boot, fixture("good"), std::string(SWITCHYARD_PROBE)}) {
    EXPECT_THAT(identity, HasSubstr(part));
  }
  const TemporaryFolder folder;
  remember_good(Os::real(), folder.path(), "/a/plugin.so", identity);
  EXPECT_TRUE(is_known_good(Os::real(), folder.path(), "/a/plugin.so", identity));
  EXPECT_FALSE(is_known_good(Os::real(), folder.path(), "/a/plugin.so", identity + " "));
  EXPECT_FALSE(is_known_good(Os::real(), folder.path(), "/another/plugin.so", identity));
}

TEST(Probe, RemembersNothingThatIsUnfitOrGarbled) {
  const TemporaryFolder folder;
  const std::string memory = folder.path("cache");
  EXPECT_EQ(verdict(fixture("refuses"), memory).tried, Tried::now);
  EXPECT_EQ(verdict(fixture("refuses"), memory).tried, Tried::now);
  EXPECT_EQ(verdict(fixture("good"), memory).tried, Tried::now);
  for (const auto& record : std::filesystem::directory_iterator(memory)) {
    folder.write("cache/" + record.path().filename().string(), "fit, believe me");
  }
  EXPECT_EQ(verdict(fixture("good"), memory).tried, Tried::now);
  // A memory that cannot be written is no obstacle.
  EXPECT_EQ(verdict(fixture("good"), "/proc/no-such-folder").reason, "");
}

TEST(Probe, IsKeptInTheUsersCache) {
  ::setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(known_good_folder(), "/cache/switchyard/plugins");
  ::setenv("XDG_CACHE_HOME", "relative", 1);
  ::setenv("HOME", "/home/me", 1);
  EXPECT_EQ(known_good_folder(), "/home/me/.cache/switchyard/plugins");
  ::unsetenv("HOME");
  EXPECT_EQ(known_good_folder(), "");
}

// If the probe cannot run: files that a user named, or that were installed with this program, are opened untried;
// others are not.
TEST(Probe, ThatDoesNotRunIsNoEnd) {
  const TemporaryFolder folder;
  const std::string mine = folder.write("mine.so", read_file(fixture("good")));
  std::filesystem::create_directories(folder.path("lib/switchyard/backends"));
  std::filesystem::create_directory(folder.path("bin"));
  const std::string ours =
      folder.write("lib/switchyard/backends/ours.so", read_file(SWITCHYARD_TEST_BACKENDS "/switchyard_reference.so"));
  DiscoveryOptions options;
  options.program_folder = folder.path("bin");
  for (const std::string& program : {folder.path("absent"), folder.write("text", "hello"), std::string("/bin/true")}) {
    SCOPED_TRACE(program);
    options.probe.program = program;
    options.search_path = folder.path();
    options.libraries = {};
    Registry r = Registry::discover(Os::real(), options, test_host());
    ASSERT_THAT(r.candidates(), SizeIs(2));
    EXPECT_THAT(r.candidates()[0].reason, StartsWith("cannot be tried, and --backend-lib does not name this file: "));
    EXPECT_THAT(r.candidates()[0].reason, HasSubstr(program));
    EXPECT_EQ(r.candidates()[1].reason, "");
    ASSERT_THAT(r.warnings(), SizeIs(1));
    EXPECT_THAT(r.warnings()[0], StartsWith(ours + " was opened without a trial: "));

    options.libraries = {mine};
    r = Registry::discover(Os::real(), options, test_host());
    EXPECT_EQ(r.candidates()[0].reason, "");
    EXPECT_THAT(r.warnings(), SizeIs(2));
  }
}

TEST(Probe, TriesManyAtTheSameTime) {
  const TemporaryFolder folder;
  std::vector<std::string> files;
  for (const Hostile& h : hanging_files()) files.push_back(h.make(folder));
  const uint64_t begin = Os::real().now_ns();
  const auto verdicts = probe(Os::real(), {SWITCHYARD_PROBE, "", 2}, files);
  EXPECT_LT(static_cast<double>(Os::real().now_ns() - begin) / 1e9, 2 * static_cast<double>(files.size()));
  for (const Verdict& v : verdicts) EXPECT_THAT(v.reason, StartsWith("hangs "));
}

}  // namespace
}  // namespace switchyard::testing
