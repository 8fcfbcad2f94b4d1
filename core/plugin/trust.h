// SPDX-License-Identifier: Apache-2.0
// Which backend files may be opened, and which others than the user could have written. docs/discovery.md says what
// this protects from.
#pragma once

#include <cstddef>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/base/os.h"

namespace switchyard {

// 64 hexadecimal digits, in lower case, as sha256sum prints them.
std::string sha256(std::span<const std::byte> bytes);

// The files that may be opened, by their SHA-256.
class AllowList {
 public:
  // Lines as sha256sum prints them: the digest, then anything; empty lines and those that begin with # are skipped.
  // With a `path` of "" all files are allowed. A list that cannot be read allows none.
  AllowList(Os& os, const std::string& path);

  // Why `file` may not be opened; "": it may.
  std::string refuses(Os& os, const std::string& file) const;

 private:
  std::string path_, broken_;
  std::set<std::string> digests_;
};

// Who, other than this process's user and root, can replace `file`, or add files to its folder. One line for each of
// the two, with what to do.
std::vector<std::string> writable_by_others(const std::string& file);

}  // namespace switchyard
