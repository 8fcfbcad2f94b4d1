// SPDX-License-Identifier: Apache-2.0
#include "bench/machine.h"

#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "core/base/affinity.h"
#include "core/base/os.h"

namespace switchyard::bench {
namespace {

// Files of the kernel's have no size, and so cannot be mapped: they are read as streams.

// The text after "name" and a colon in the first such line of a file; "" if there is none.
std::string field(const char* path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    const size_t at = line.find_first_not_of(" \t", line.find(':') + 1);
    return at == std::string::npos ? "" : line.substr(at);
  }
  return {};
}

uint64_t kilobytes(std::string_view name) {
  return std::strtoull(field("/proc/meminfo", name).c_str(), nullptr, 10) * 1024;
}

uint64_t cache_bytes(int name) { return static_cast<uint64_t>(std::max(0L, ::sysconf(name))); }

}  // namespace

Machine describe_machine() {
  Machine m;
  m.processor = field("/proc/cpuinfo", "model name");
  utsname system{};
  if (::uname(&system) == 0) m.kernel = std::string(system.sysname) + " " + system.release;
  m.cpus = static_cast<uint32_t>(allowed_processors().size());
  m.second_cache_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE);
  m.last_cache_bytes =
      std::max({cache_bytes(_SC_LEVEL4_CACHE_SIZE), cache_bytes(_SC_LEVEL3_CACHE_SIZE), m.second_cache_bytes});
  m.memory_bytes = kilobytes("MemTotal");
  m.memory_free_bytes = Os::real().available_memory();
  return m;
}

std::vector<std::string> command_line() {
  std::vector<std::string> words;
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

// From VmHWM: getrusage's figure starts with the memory of the parent at the fork.
uint64_t peak_memory_bytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmHWM:")) return std::strtoull(line.c_str() + 6, nullptr, 10) * 1024;
  }
  return 0;
}

double processor_seconds() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace switchyard::bench
