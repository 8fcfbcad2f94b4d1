// SPDX-License-Identifier: Apache-2.0
#include "core/base/available_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>

namespace switchyard {
namespace {

constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();

// The number that `text` begins with, after blanks; none for "max".
std::optional<uint64_t> number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  uint64_t n = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), n).ec != std::errc()) return std::nullopt;
  return n;
}

// That of the line that begins with `name`; 0 where there is none.
uint64_t field(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name)) return number(std::string_view(line).substr(name.size())).value_or(0);
  }
  return 0;
}

// The names of a version's files.
struct Files {
  const char *limit, *used, *inactive, *active;
};
constexpr Files kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ",
                             "total_active_file "};
constexpr Files kVersion2 = {"memory.max", "memory.current", "inactive_file ", "active_file "};

uint64_t left_in(const std::string& folder, const Files& files, const ReadText& read) {
  const auto limit = number(read(fmt::format("{}/{}", folder, files.limit))),
             used = number(read(fmt::format("{}/{}", folder, files.used)));
  if (!limit || !used) return kUnknown;
  const std::string stat = read(fmt::format("{}/memory.stat", folder));
  const uint64_t cached = field(stat, files.inactive) + field(stat, files.active);
  const uint64_t taken = *used - std::min(*used, cached);
  return *limit - std::min(*limit, taken);
}

// A group's limit holds for those below it, too.
uint64_t left_up_from(const std::string& root, std::string group, const Files& files, const ReadText& read) {
  uint64_t least = kUnknown;
  for (;;) {
    while (group.ends_with('/')) group.pop_back();
    least = std::min(least, left_in(fmt::format("{}{}", root, group), files, read));
    if (group.empty()) return least;
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
}

}  // namespace

uint64_t available_memory(const ReadText& read) {
  uint64_t least = kUnknown;
  if (const uint64_t kib = field(read("/proc/meminfo"), "MemAvailable:"); kib != 0) least = kib * 1024;
  std::istringstream groups(read("/proc/self/cgroup"));  // "4:memory:/a/b", or "0::/a/b" in version 2
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const std::string group = line.substr(second + 1);
    if (controllers == ",,") least = std::min(least, left_up_from("/sys/fs/cgroup", group, kVersion2, read));
    if (controllers.find(",memory,") != std::string::npos) {
      least = std::min(least, left_up_from("/sys/fs/cgroup/memory", group, kVersion1, read));
    }
  }
  return least == kUnknown ? 0 : least;
}

}  // namespace switchyard
