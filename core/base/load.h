// SPDX-License-Identifier: Apache-2.0
// Reading a value from bytes at any address.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

namespace switchyard {

template <class T>
T load(const std::byte* from) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace switchyard
