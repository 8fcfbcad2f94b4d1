// SPDX-License-Identifier: Apache-2.0
// The bytes of an input as a mapped file.
#pragma once

#include <utility>
#include <vector>

#include "core/base/os.h"

namespace switchyard::testing {

class Bytes final : public MappedFile {
 public:
  explicit Bytes(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  std::span<const std::byte> bytes() const override { return bytes_; }
  void release(size_t, size_t) const override {}

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace switchyard::testing
