// SPDX-License-Identifier: Apache-2.0
// The memory that this process may take, from the files in which Linux tells it.
#include "core/base/available_memory.h"

#include <gtest/gtest.h>

#include <map>

#include "core/base/os.h"

namespace switchyard {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

uint64_t available(const std::map<std::string, std::string>& files) {
  return available_memory([&](const std::string& path) {
    const auto file = files.find(path);
    return file == files.end() ? std::string() : file->second;
  });
}

const std::string kMeminfo = "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:    8388608 kB\n";

TEST(AvailableMemory, OfAMachineWithoutGroups) {
  EXPECT_EQ(available({{"/proc/meminfo", kMeminfo}}), 8 * kGiB);
  EXPECT_EQ(available({}), 0u);
  EXPECT_EQ(available({{"/proc/meminfo", "MemAvailable: a lot\n"}, {"/proc/self/cgroup", "0\n0:\n:::\n"}}), 0u);
}

TEST(AvailableMemory, IsWhatTheGroupLeavesOfItsLimit) {
  std::map<std::string, std::string> files = {{"/proc/meminfo", kMeminfo},
                                              {"/proc/self/cgroup", "0::/a/b\n"},
                                              {"/sys/fs/cgroup/a/b/memory.max", "4294967296\n"},
                                              {"/sys/fs/cgroup/a/b/memory.current", "3221225472\n"}};
  EXPECT_EQ(available(files), kGiB);
  // What the group has of files can be read again.
  files["/sys/fs/cgroup/a/b/memory.stat"] = "anon 5\ninactive_file 1073741824\nactive_file 536870912\n";
  EXPECT_EQ(available(files), 5 * kGiB / 2);
  files["/sys/fs/cgroup/a/b/memory.max"] = "max\n";
  EXPECT_EQ(available(files), 8 * kGiB);
  files["/sys/fs/cgroup/a/memory.max"] = "2147483648\n";  // a group above it
  files["/sys/fs/cgroup/a/memory.current"] = "4294967296\n";
  EXPECT_EQ(available(files), 0u);
}

TEST(AvailableMemory, IsThatOfTheFirstVersionOfGroups) {
  EXPECT_EQ(available({{"/proc/meminfo", kMeminfo},
                       {"/proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/box\n0::/\n"},
                       {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "4294967296\n"},  // the container's own root
                       {"/sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n"},
                       {"/sys/fs/cgroup/memory/memory.stat", "inactive_file 9\ntotal_inactive_file 536870912\n"}}),
            7 * kGiB / 2);
}

TEST(AvailableMemory, OfThisMachineIsKnown) { EXPECT_GT(Os::real().available_memory(), uint64_t{1} << 20); }

}  // namespace
}  // namespace switchyard
