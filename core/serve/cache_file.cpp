// SPDX-License-Identifier: Apache-2.0
#include "core/serve/cache_file.h"

#include <cstring>

#include "core/program/checksum.h"

namespace switchyard {
namespace {

constexpr char kCacheMagic[8] = {'S', 'W', 'Y', 'C', 'A', 'C', 'H', '1'};

struct CacheHeader {
  char magic[8];
  uint64_t identity;  // a checksum
  uint64_t index_at, index_bytes, index_checksum;
  uint32_t entries, reserved;
};

struct CacheIndexEntry {
  uint64_t states_at, states_bytes;
  uint32_t scope_bytes, tokens;
};

uint64_t cache_checksum(std::string_view bytes) {
  Checksum sum;
  sum.add(std::as_bytes(std::span(bytes)));
  return sum.value();
}

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

Status damaged_cache() { return error(Code::invalid_data, "the file of cached states is damaged"); }

// Takes one entry off the front of the index.
Result<CacheFileEntry> take_entry(std::string_view& index, std::string_view states) {
  CacheIndexEntry e{};
  if (index.size() < sizeof e) return damaged_cache();
  std::memcpy(&e, index.data(), sizeof e);
  index.remove_prefix(sizeof e);
  const uint64_t token_bytes = uint64_t{e.tokens} * sizeof(int32_t);
  if (index.size() < e.scope_bytes + token_bytes || e.tokens == 0) return damaged_cache();
  if (e.states_at > states.size() || e.states_bytes > states.size() - e.states_at) return damaged_cache();
  CacheFileEntry entry;
  entry.scope = index.substr(0, e.scope_bytes);
  entry.tokens.resize(e.tokens);
  std::memcpy(entry.tokens.data(), index.data() + e.scope_bytes, token_bytes);
  entry.states = states.substr(e.states_at, e.states_bytes);
  index.remove_prefix(e.scope_bytes + token_bytes);
  return entry;
}

}  // namespace

Result<CacheFile> CacheFile::open(Os& os, const std::string& path, std::string_view identity) {
  CacheFile out;
  SWY_LET(out.file_, os.map(path));
  const std::span<const std::byte> raw = out.file_->bytes();
  const std::string_view all(reinterpret_cast<const char*>(raw.data()), raw.size());
  CacheHeader h{};
  if (all.size() < sizeof h || std::memcmp(all.data(), kCacheMagic, sizeof kCacheMagic) != 0) {
    return error(Code::invalid_data, "this is no file of cached states");
  }
  std::memcpy(&h, all.data(), sizeof h);
  if (h.index_at < sizeof h || h.index_at > all.size() || h.index_bytes != all.size() - h.index_at) {
    return damaged_cache();
  }
  std::string_view index = all.substr(h.index_at);
  if (cache_checksum(index) != h.index_checksum) return damaged_cache();
  if (h.identity != cache_checksum(identity)) {
    return error(Code::usage, "the cached states are of another model, version, backend or setting");
  }
  for (uint32_t i = 0; i < h.entries; ++i) {
    SWY_LET(CacheFileEntry entry, take_entry(index, all.substr(0, h.index_at)));
    out.entries_.push_back(std::move(entry));
  }
  return out;
}

Result<CacheFileWriter> CacheFileWriter::create(Os& os, const std::string& path, std::string_view identity) {
  CacheFileWriter out;
  // A server that reads from the old file goes on with what it has mapped.
  SWY_LET(out.file_, os.create(path, WhenMapped::replace));
  out.file_->keep_private();
  out.identity_ = cache_checksum(identity);
  const CacheHeader none{};
  SWY_TRY(out.file_->append(std::as_bytes(std::span(&none, 1))));
  return out;
}

Status CacheFileWriter::add(const std::string& scope, std::span<const int32_t> tokens, std::string_view states) {
  const CacheIndexEntry e{file_->size(), states.size(), static_cast<uint32_t>(scope.size()),
                          static_cast<uint32_t>(tokens.size())};
  SWY_TRY(file_->append(bytes_of(states)));
  index_.append(reinterpret_cast<const char*>(&e), sizeof e);
  index_ += scope;
  index_.append(reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes());
  ++entries_;
  return {};
}

Status CacheFileWriter::commit() {
  CacheHeader h{};
  std::memcpy(h.magic, kCacheMagic, sizeof kCacheMagic);
  h.identity = identity_;
  h.index_at = file_->size();
  h.index_bytes = index_.size();
  h.index_checksum = cache_checksum(index_);
  h.entries = entries_;
  SWY_TRY(file_->append(bytes_of(index_)));
  SWY_TRY(file_->write_at(0, std::as_bytes(std::span(&h, 1))));
  return file_->commit();
}

}  // namespace switchyard
