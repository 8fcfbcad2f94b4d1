// SPDX-License-Identifier: Apache-2.0
// Fuzzes the reader of session files: with files as they are, and under a checksum that fits, since no mutation would
// get past it. What is read is written again, and must be the same file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "core/generate/session_file.h"
#include "core/program/checksum.h"

using switchyard::Checksum;
using switchyard::SessionFile;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  (void)SessionFile::decode(bytes).ok();
  uint64_t sum = 0;
  if (bytes.size() < sizeof sum) return 0;
  Checksum checksum;
  checksum.add(std::as_bytes(std::span(bytes.data(), bytes.size() - sizeof sum)));
  sum = checksum.value();
  std::memcpy(bytes.data() + bytes.size() - sizeof sum, &sum, sizeof sum);
  const auto file = SessionFile::decode(bytes);
  if (file.ok() && file->encode() != bytes) std::abort();
  return 0;
}
