// SPDX-License-Identifier: Apache-2.0
// ByteSet: a set of byte values.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace switchyard::constrain {

struct ByteSet {
  std::array<uint64_t, 4> words = {};

  static ByteSet range(unsigned low, unsigned high) {
    ByteSet s;
    for (unsigned b = low; b <= high && b < 256; ++b) s.add(b);
    return s;
  }
  static ByteSet all() { return {{~0ull, ~0ull, ~0ull, ~0ull}}; }

  bool has(unsigned b) const { return (words[b / 64] >> (b % 64) & 1) != 0; }
  void add(unsigned b) { words[b / 64] |= 1ull << (b % 64); }
  bool empty() const { return (words[0] | words[1] | words[2] | words[3]) == 0; }
  size_t size() const {
    size_t n = 0;
    for (const uint64_t w : words) n += static_cast<size_t>(std::popcount(w));
    return n;
  }
  // The first member that is at least `from`; 256 if there is none.
  unsigned next(unsigned from) const {
    while (from < 256) {
      const uint64_t rest = words[from / 64] >> (from % 64);
      if (rest != 0) return from + static_cast<unsigned>(std::countr_zero(rest));
      from = (from / 64 + 1) * 64;
    }
    return 256;
  }
  // The last member that is at most `from`; 0 if there is none.
  unsigned last(unsigned from) const {
    for (unsigned w = from / 64 + 1; w-- > 0;) {
      uint64_t rest = words[w];
      if (w == from / 64 && from % 64 != 63) rest &= (2ull << (from % 64)) - 1;
      if (rest != 0) return w * 64 + 63 - static_cast<unsigned>(std::countl_zero(rest));
    }
    return 0;
  }

  ByteSet& operator|=(const ByteSet& o) {
    for (size_t i = 0; i < 4; ++i) words[i] |= o.words[i];
    return *this;
  }
  friend ByteSet operator&(ByteSet a, const ByteSet& b) {
    for (size_t i = 0; i < 4; ++i) a.words[i] &= b.words[i];
    return a;
  }
  friend ByteSet operator~(ByteSet a) {
    for (uint64_t& w : a.words) w = ~w;
    return a;
  }
  bool operator==(const ByteSet&) const = default;
  auto operator<=>(const ByteSet&) const = default;

  // The values at which membership differs from that of the value before.
  ByteSet edges() const {
    ByteSet e;
    for (size_t i = 0; i < 4; ++i) {
      const uint64_t before = words[i] << 1 | (i == 0 ? 0 : words[i - 1] >> 63);
      e.words[i] = words[i] ^ before;
    }
    return e;
  }
};

}  // namespace switchyard::constrain
