// SPDX-License-Identifier: Apache-2.0
// Structs as hosts of other minor versions pass them: longer, with what this plugin cannot know behind, or as short as
// in the first version. In both, bytes that the plugin must not read are poison.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "switchyard/plugin.h"

namespace switchyard::check {

enum class Form { kOwn, kNewer, kFirst };

constexpr uint32_t kNewerBytes = 64;  // by which structs of a newer host are longer

// Bytes of a struct in minor version 0.
template <class T>
constexpr uint32_t kFirstBytes = sizeof(T);
template <>
inline constexpr uint32_t kFirstBytes<swy_tensor> = offsetof(swy_tensor, encoding);
template <>
inline constexpr uint32_t kFirstBytes<swy_op> = offsetof(swy_op, name);
template <>
inline constexpr uint32_t kFirstBytes<swy_bucket> = offsetof(swy_bucket, seq_rows);

class Forms {
 public:
  explicit Forms(Form form) : form_(form) {}
  Forms(const Forms&) = delete;
  Forms& operator=(const Forms&) = delete;

  // A copy in this form, which lives as long as this object.
  template <class T>
  T* of(const T& own) {
    const uint32_t bytes = form_ == Form::kFirst ? kFirstBytes<T> : sizeof(T);
    return static_cast<T*>(copy(&own, bytes, form_ == Form::kOwn ? sizeof(T) : bytes + newer()));
  }
  // The same for a struct of which only the size is known.
  void* of(const void* own, uint32_t bytes) { return copy(own, bytes, bytes + newer()); }
  uint32_t newer() const { return form_ == Form::kNewer ? kNewerBytes : 0; }

  // What a plugin filled in, as far as it knows it. False if it wrote to fields that it cannot know.
  template <class T>
  static bool take(const T* filled, uint32_t given, T* out) {
    *out = {};
    std::memcpy(out, filled, std::min<size_t>(given, sizeof(T)));
    const auto* bytes = reinterpret_cast<const unsigned char*>(filled);
    const bool untouched = std::all_of(bytes + std::min<size_t>(given, sizeof(T)), bytes + sizeof(T) + kNewerBytes,
                                       [](unsigned char c) { return c == kPoison; });
    return untouched && filled->struct_size <= given;
  }

 private:
  static constexpr unsigned char kPoison = 0xab;
  void* copy(const void* own, uint32_t bytes, uint32_t struct_size) {
    std::vector<uint64_t>& room = rooms_.emplace_back((bytes + 2 * kNewerBytes + 7) / 8);
    std::memset(room.data(), kPoison, room.size() * 8);
    std::memcpy(room.data(), own, bytes);
    std::memcpy(room.data(), &struct_size, sizeof struct_size);
    return room.data();
  }

  const Form form_;
  std::deque<std::vector<uint64_t>> rooms_;
};

}  // namespace switchyard::check
