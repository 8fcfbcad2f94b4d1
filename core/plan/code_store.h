// SPDX-License-Identifier: Apache-2.0
// CodeStore: compiled ranges (swy.range/2) in files, from run to run. A file is written as a whole or not at all, and
// is read only if it is complete, undamaged, and of exactly the identity asked for. The oldest files go when there are
// too many. A failure is none: the range is compiled again.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "core/base/os.h"

namespace switchyard {

class CodeStore {
 public:
  static constexpr uint64_t kMaxBytes = uint64_t{1} << 30;     // of one file
  static constexpr uint64_t kMaxAllBytes = uint64_t{4} << 30;  // of the folder
  static constexpr size_t kMaxFiles = 256;

  CodeStore() = default;  // keeps nothing
  // `folder` is made when something is saved; "": nothing is kept. `os` outlives the store.
  CodeStore(Os& os, std::string folder, size_t max_files = kMaxFiles)
      : os_(&os), folder_(std::move(folder)), max_files_(max_files) {}

  bool keeps() const { return os_ != nullptr && !folder_.empty(); }
  std::optional<std::string> load(const std::string& identity) const;
  void save(const std::string& identity, std::span<const std::byte> code) const;

 private:
  std::string path_of(const std::string& identity) const;
  void make_room(uint64_t bytes) const;

  Os* os_ = nullptr;
  std::string folder_;
  size_t max_files_ = kMaxFiles;
};

// $XDG_CACHE_HOME/switchyard/code, or the same under ~/.cache; "" where there is no absolute path to it.
std::string default_code_folder();

}  // namespace switchyard
