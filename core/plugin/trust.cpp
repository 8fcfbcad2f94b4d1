// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/trust.h"

#include <fmt/format.h>
#include <sha2.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sstream>

namespace switchyard {
namespace {

constexpr uint64_t kMaxList = 1 << 20;  // bytes
constexpr size_t kDigest = 64;          // digits

// Why others can write to `path`; "": they cannot, or it is not there.
std::string others(const std::string& path, const char* what) {
  struct stat s {};
  if (::stat(path.c_str(), &s) != 0) return "";
  if (s.st_uid != 0 && s.st_uid != ::geteuid()) {
    return fmt::format(
        "{} {} belongs to another user (number {}), who can run code as you with it; chown it, or use "
        "another place",
        what, path, s.st_uid);
  }
  // A group with the owner's number is the owner's own, by the custom of most systems.
  const bool group = (s.st_mode & S_IWGRP) != 0 && s.st_gid != s.st_uid;
  const bool all = (s.st_mode & S_IWOTH) != 0;
  if (!group && !all) return "";
  return fmt::format("{} {} may be written by {} (mode {:04o}), who can run code as you with it; chmod go-w {}", what,
                     path, all ? "all users" : fmt::format("the group {}", s.st_gid), s.st_mode & 07777, path);
}

}  // namespace

std::string sha256(std::span<const std::byte> bytes) {
  char digits[SHA256_DIGEST_STRING_LENGTH];
  SHA256Data(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), digits);
  return digits;
}

AllowList::AllowList(Os& os, const std::string& path) : path_(path) {
  if (path.empty()) return;
  const Result<std::string> text = os.read(path, kMaxList);
  if (!text.ok()) {
    broken_ = fmt::format("SWITCHYARD_BACKEND_ALLOW allows none: {}", text.status().message());
    return;
  }
  std::istringstream lines(*text);
  size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    const std::string digest = line.substr(0, line.find_first_of(" \t\r"));
    if (digest.size() != kDigest || digest.find_first_not_of("0123456789abcdef") != std::string::npos) {
      broken_ = fmt::format(
          "SWITCHYARD_BACKEND_ALLOW allows none: line {} of {} does not begin with a SHA-256 in {} "
          "digits 0-9a-f, as sha256sum prints it",
          number, path, kDigest);
      return;
    }
    digests_.insert(digest);
  }
}

std::string AllowList::refuses(Os& os, const std::string& file) const {
  if (path_.empty()) return "";
  if (!broken_.empty()) return broken_;
  const auto mapped = os.map(file);
  if (!mapped.ok()) return mapped.status().message();
  const std::string digest = sha256((*mapped)->bytes());
  if (digests_.contains(digest)) return "";
  return fmt::format("its SHA-256, {}, is not in the list that SWITCHYARD_BACKEND_ALLOW names, {}", digest, path_);
}

std::vector<std::string> writable_by_others(const std::string& file) {
  std::vector<std::string> lines;
  if (std::string line = others(file, "backend file"); !line.empty()) lines.push_back(std::move(line));
  const size_t slash = file.rfind('/');
  if (slash == std::string::npos || slash == 0) return lines;
  if (std::string line = others(file.substr(0, slash), "backend folder"); !line.empty())
    lines.push_back(std::move(line));
  return lines;
}

}  // namespace switchyard
