// SPDX-License-Identifier: Apache-2.0
// A cache file: the states that a prefix cache kept, for the next process with the same model. Little-endian: a header,
// the states one after another (Session::snapshot), an index with the tokens that each has seen, checksums. Such files
// are untrusted: the index is checked as a whole when the file is opened, states by Session::restore when they are
// used.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/os.h"

namespace switchyard {

struct CacheFileEntry {
  std::string scope;
  std::vector<int32_t> tokens;
  std::string_view states;  // in the file
};

class CacheFile {
 public:
  // `identity` says what made the states; a file of another one is refused. Errors: not_found; invalid_data, for what
  // is no such file, is cut off or changed; usage, for one of another identity; io.
  static Result<CacheFile> open(Os& os, const std::string& path, std::string_view identity);
  const std::vector<CacheFileEntry>& entries() const { return entries_; }

 private:
  std::shared_ptr<const MappedFile> file_;
  std::vector<CacheFileEntry> entries_;
};

class CacheFileWriter {
 public:
  // Readable by the owner alone: it has the texts of prompts in it. Errors: io.
  static Result<CacheFileWriter> create(Os& os, const std::string& path, std::string_view identity);
  Status add(const std::string& scope, std::span<const int32_t> tokens, std::string_view states);
  uint64_t bytes() const { return file_->size() + index_.size(); }
  // Replaces what is at the path, atomically.
  Status commit();

 private:
  std::unique_ptr<OutputFile> file_;
  std::string index_;
  uint64_t identity_ = 0;
  uint32_t entries_ = 0;
};

}  // namespace switchyard
