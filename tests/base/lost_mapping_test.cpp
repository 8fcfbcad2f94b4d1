// SPDX-License-Identifier: Apache-2.0
// A file that is cut short while it is mapped ends the program with its name, not with a signal.
#include "core/base/lost_mapping.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "core/base/os.h"
#include "tests/support/files.h"

namespace switchyard::testing {
namespace {

constexpr size_t kPages = 1 << 16;  // more than one, however large they are

int sum(std::span<const std::byte> bytes) {
  int all = 0;
  for (const std::byte b : bytes) all += std::to_integer<int>(b);
  return all;
}

std::string name_with_escape() { return "cut\x1b[31m.swy"; }

void read_a_cut_file(const std::string& path, bool on_a_thread) {
  report_lost_mappings();
  const auto before = Os::real().map(path), map = Os::real().map(path);
  if (::truncate(path.c_str(), 10) != 0) ::_exit(3);
  const auto read = [&] { ::_exit(sum((*map)->bytes()) == 0 ? 4 : 5); };
  if (on_a_thread) std::thread(read).join();
  read();
}

TEST(LostMapping, EndsWithOneLineThatNamesTheFile) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const TemporaryFolder folder;
  for (const bool on_a_thread : {false, true}) {
    const std::string path = folder.write(name_with_escape(), std::string(kPages * 3, 'x'));
    EXPECT_EXIT(read_a_cut_file(path, on_a_thread), ::testing::ExitedWithCode(1),
                "^switchyard: .*/cut\\\\x1B\\[31m\\.swy became shorter while it was read; copy it again");
  }
}

TEST(LostMapping, AnyOtherBusErrorIsStillOne) {
  const auto raise = [] {
    report_lost_mappings();
    std::raise(SIGBUS);
    std::raise(SIGBUS);
  };
  EXPECT_EXIT(raise(), ::testing::KilledBySignal(SIGBUS), "");
}

// As many maps as there are files in a folder: those that find no place are read all the same.
TEST(LostMapping, ManyMappingsComeAndGo) {
  const TemporaryFolder folder;
  const std::string path = folder.write("x", "abc");
  for (int times = 0; times < 3; ++times) {
    std::vector<std::unique_ptr<MappedFile>> maps;
    for (int i = 0; i < 200; ++i) {
      auto map = Os::real().map(path);
      ASSERT_TRUE(map.ok());
      EXPECT_EQ(sum((*map)->bytes()), 'a' + 'b' + 'c');
      maps.push_back(std::move(*map));
    }
  }
}

}  // namespace
}  // namespace switchyard::testing
