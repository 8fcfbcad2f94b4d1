// SPDX-License-Identifier: Apache-2.0
#include "core/hub/digest.h"

#include <fmt/format.h>

namespace switchyard::hub {

Digest::Digest(const std::string& like, uint64_t bytes) : sha256_(like.size() == SHA256_DIGEST_STRING_LENGTH - 1) {
  ::SHA256Init(&sha2_);
  ::SHA1Init(&sha1_);
  if (sha256_) return;
  const std::string before = fmt::format("blob {}", bytes);
  ::SHA1Update(&sha1_, reinterpret_cast<const uint8_t*>(before.c_str()), before.size() + 1);  // and its NUL
}

void Digest::add(std::span<const std::byte> bytes) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  if (sha256_) {
    ::SHA256Update(&sha2_, data, bytes.size());
  } else {
    ::SHA1Update(&sha1_, data, bytes.size());
  }
}

std::string Digest::text() {
  char text[SHA256_DIGEST_STRING_LENGTH] = {};
  return sha256_ ? ::SHA256End(&sha2_, text) : ::SHA1End(&sha1_, text);
}

}  // namespace switchyard::hub
