// SPDX-License-Identifier: Apache-2.0
// XXH3-64 over bytes that arrive in pieces. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

struct XXH3_state_s;

namespace switchyard {

class Checksum {
 public:
  Checksum();

  void reset();
  void add(std::span<const std::byte> bytes);
  // The checksum of everything added since the last reset; more may be added afterwards.
  uint64_t value() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

}  // namespace switchyard
