// SPDX-License-Identifier: Apache-2.0
// A program file out of bytes of a fuzzer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "core/program/file_header.h"
#include "core/program/program.h"

namespace switchyard::testing {

class Input final : public MappedFile {
 public:
  explicit Input(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  std::span<const std::byte> bytes() const override { return bytes_; }
  void release(size_t, size_t) const override {}

 private:
  std::vector<std::byte> bytes_;
};

// Gives the file a header that fits it, since no mutation would get past the checksum.
inline void seal_file(std::span<std::byte> file) {
  if (file.size() < kHeaderBytes) return;
  uint64_t declared = 0;
  std::memcpy(&declared, file.data() + 16, sizeof declared);
  const auto flatbuffer = file.subspan(kHeaderBytes, std::min<uint64_t>(declared, file.size() - kHeaderBytes));
  const HeaderBytes header = make_header(flatbuffer, file.size());
  std::copy(header.begin(), header.end(), file.begin());
}

inline Result<Program> parse_sealed(std::span<const std::byte> file) {
  std::vector<std::byte> bytes(file.begin(), file.end());
  seal_file(bytes);
  return Program::parse(std::make_shared<Input>(std::move(bytes)));
}

}  // namespace switchyard::testing
