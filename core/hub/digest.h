// SPDX-License-Identifier: Apache-2.0
// The hash by which the hub names a file: SHA-256 of large files, git's SHA-1 of small ones.
#pragma once

#include <sha1.h>
#include <sha2.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace switchyard::hub {

class Digest {
 public:
  // `bytes` is the size of the file, which git hashes before its content. `like`: a digest of the kind wanted.
  Digest(const std::string& like, uint64_t bytes);
  void add(std::span<const std::byte> bytes);
  std::string text();  // hexadecimal; once

 private:
  bool sha256_;
  ::SHA2_CTX sha2_{};
  ::SHA1_CTX sha1_{};
};

}  // namespace switchyard::hub
