// SPDX-License-Identifier: Apache-2.0
// Random numbers of a seed: the same on every machine and library.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

namespace switchyard::check {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  // A source that describes without drawing: for cases whose shapes are wanted, not their contents.
  static Random shapes_only() {
    Random r(0);
    r.shapes_only_ = true;
    return r;
  }
  bool draws() const { return !shapes_only_; }

  uint64_t word() {  // SplitMix64 (Steele, Lea, Flood 2014)
    uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  double uniform() { return static_cast<double>(word() >> 11) * 0x1p-53; }  // [0, 1)
  uint32_t below(uint64_t n) { return static_cast<uint32_t>(word() % n); }
  double normal() {  // Box and Muller 1958
    const double r = std::sqrt(-2 * std::log(1 - uniform()));
    return r * std::cos(6.283185307179586 * uniform());
  }

  std::vector<float> normals(uint64_t n, double mean = 0, double deviation = 1) {
    std::vector<float> out(draws() ? n : 0);
    for (float& x : out) x = static_cast<float>(mean + deviation * normal());
    return out;
  }
  // 0 .. n - 1 in random order.
  std::vector<uint32_t> permutation(uint32_t n) {
    std::vector<uint32_t> out(n);
    for (uint32_t i = 0; i < n; ++i) out[i] = i;
    for (uint32_t i = n; i > 1; --i) std::swap(out[i - 1], out[below(i)]);
    return out;
  }

 private:
  uint64_t state_;
  bool shapes_only_ = false;
};

// A separate seed for each name (FNV-1a).
inline uint64_t derive(uint64_t seed, std::string_view name) {
  uint64_t h = 14695981039346656037u ^ seed;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return h;
}

}  // namespace switchyard::check
