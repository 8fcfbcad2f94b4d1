// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/known_good.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <filesystem>
#include <fstream>
#include <span>

#include "switchyard/plugin.h"

#include "core/base/user_folder.h"

namespace switchyard {
namespace {

std::string stamp(const std::string& path) {
  struct stat s {};
  if (::stat(path.c_str(), &s) != 0) return "";
  return fmt::format("{} dev {} inode {} size {} modified {}.{:09} changed {}.{:09}\n", path, s.st_dev, s.st_ino,
                     s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec, s.st_ctim.tv_sec, s.st_ctim.tv_nsec);
}

std::string boot() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

// One small file per plugin: nothing to parse, and nothing that two processes could garble together.
std::string record_of(const std::string& folder, const std::string& file) {
  return fmt::format("{}/{:016x}", folder, XXH3_64bits(file.data(), file.size()));
}

}  // namespace

std::string known_good_folder() {
  const std::string folder = cache_folder();
  return folder.empty() ? "" : folder + "/plugins";
}

std::string plugin_identity(const std::string& file, const std::string& probe) {
  const std::string plugin = stamp(file), prober = stamp(probe), booted = boot();
  if (plugin.empty() || prober.empty() || booted.empty()) return "";
  return fmt::format("{}{}ABI {}, boot {}\n", plugin, prober, SWY_ABI_VERSION, booted);
}

bool is_known_good(Os& os, const std::string& folder, const std::string& file, const std::string& identity) {
  if (folder.empty() || identity.empty()) return false;
  const auto record = os.read(record_of(folder, file), 65536);
  return record.ok() && *record == identity;
}

void remember_good(Os& os, const std::string& folder, const std::string& file, const std::string& identity) {
  if (folder.empty() || identity.empty()) return;
  std::error_code ec;
  std::filesystem::create_directories(folder, ec);
  if (ec) return;
  auto record = os.create(record_of(folder, file));
  if (!record.ok() || !(*record)->append(std::as_bytes(std::span(identity))).ok()) return;
  (void)(*record)->commit();
}

}  // namespace switchyard
