// SPDX-License-Identifier: Apache-2.0
// What a repository of the hub has, as the hub tells it. Nothing of the answer is trusted: paths, sizes and hashes are
// checked here, before any of them reaches the file system.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/hub/http.h"
#include "core/hub/name.h"

namespace switchyard::hub {

struct RemoteFile {
  std::string path;  // relative, without "..": it stays inside any folder
  uint64_t bytes = 0;
  std::string digest;  // 64 hexadecimal digits: SHA-256; 40: SHA-1 as git has it. Also the name in the cache.
};

struct Listing {
  std::string commit;             // 40 hexadecimal digits
  std::string gguf_architecture;  // as the hub has read it; "" where it does not say
  std::vector<RemoteFile> files;

  std::vector<NamedFile> named() const;
  const RemoteFile* find(const std::string& path) const;
};

// Why a path from a server is not used; "" for one that is.
std::string fault_of_path(const std::string& path);

// Errors: invalid_data, naming what is wrong with the answer.
Result<Listing> parse_listing(const std::string& json, const std::string& repo);

// The main revision of a repository, from the hub.
Result<Listing> fetch_listing(const Http& http, const std::string& repo, const CancelCheck& cancelled,
                              const std::function<void(const std::string&)>& retrying);

}  // namespace switchyard::hub
