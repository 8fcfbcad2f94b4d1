// SPDX-License-Identifier: Apache-2.0
#include "core/plan/code_store.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "core/base/user_folder.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;

constexpr char kSuffix[] = ".code";

// A file: this, the identity, the code.
struct Header {
  char magic[8] = {'s', 'w', 'y', 'c', 'o', 'd', 'e', '1'};
  uint64_t identity_bytes = 0, code_bytes = 0;
  uint64_t hash = 0;  // of identity and code
};

uint64_t hash_of(std::string_view identity, std::string_view code) {
  return XXH3_64bits_withSeed(code.data(), code.size(), XXH3_64bits(identity.data(), identity.size()));
}

struct CodeFile {
  fs::path path;
  fs::file_time_type time;
  uint64_t bytes = 0;
};

}  // namespace

std::string default_code_folder() {
  const std::string folder = cache_folder();
  return folder.empty() ? "" : folder + "/code";
}

std::string CodeStore::path_of(const std::string& identity) const {
  const XXH128_hash_t h = XXH3_128bits(identity.data(), identity.size());
  return fmt::format("{}/{:016x}{:016x}{}", folder_, h.high64, h.low64, kSuffix);
}

std::optional<std::string> CodeStore::load(const std::string& identity) const {
  if (!keeps()) return std::nullopt;
  const std::string path = path_of(identity);
  auto file = os_->read(path, kMaxBytes);
  Header h;
  const Header wanted;
  if (!file.ok() || file->size() < sizeof h) return std::nullopt;
  std::memcpy(&h, file->data(), sizeof h);
  const uint64_t rest = file->size() - sizeof h;
  if (std::memcmp(h.magic, wanted.magic, sizeof h.magic) != 0 || h.identity_bytes != identity.size() ||
      h.identity_bytes > rest || h.code_bytes != rest - h.identity_bytes) {
    return std::nullopt;
  }
  const std::string_view all(*file);
  const std::string_view code = all.substr(sizeof h + h.identity_bytes);
  if (all.substr(sizeof h, h.identity_bytes) != identity || hash_of(identity, code) != h.hash) return std::nullopt;
  std::error_code ignored;  // what was used last goes last
  fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
  return std::string(code);
}

void CodeStore::save(const std::string& identity, std::span<const std::byte> code) const {
  if (!keeps() || code.empty() || code.size() + identity.size() + sizeof(Header) > kMaxBytes) return;
  std::error_code ec;
  fs::create_directories(folder_, ec);
  if (ec) return;
  make_room(code.size());
  const auto file = os_->create(path_of(identity), WhenMapped::replace);
  if (!file.ok()) return;
  (*file)->keep_private();  // what is read back runs in this process
  Header h;
  h.identity_bytes = identity.size();
  h.code_bytes = code.size();
  h.hash = hash_of(identity, {reinterpret_cast<const char*>(code.data()), code.size()});
  const bool written = (*file)->append(std::as_bytes(std::span(&h, 1))).ok() &&
                       (*file)->append(std::as_bytes(std::span(identity))).ok() && (*file)->append(code).ok();
  if (written) (void)(*file)->commit();
}

// Removes the oldest files until another of so many bytes fits.
void CodeStore::make_room(uint64_t bytes) const {
  std::vector<CodeFile> files;
  std::error_code ec;
  for (fs::directory_iterator it(folder_, ec), end; !ec && it != end; it.increment(ec)) {
    std::error_code unknown;
    if (it->path().extension() != kSuffix) continue;
    const auto time = it->last_write_time(unknown);
    const uint64_t size = it->file_size(unknown);
    if (!unknown) files.push_back({it->path(), time, size});
  }
  std::sort(files.begin(), files.end(), [](const CodeFile& a, const CodeFile& b) { return a.time > b.time; });
  for (const CodeFile& f : files) bytes += f.bytes;
  while (!files.empty() && (files.size() >= max_files_ || bytes > kMaxAllBytes)) {
    fs::remove(files.back().path, ec);
    bytes -= files.back().bytes;
    files.pop_back();
  }
}

}  // namespace switchyard
