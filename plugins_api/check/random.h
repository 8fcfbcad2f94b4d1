// SPDX-License-Identifier: Apache-2.0
// Random numbers of a seed: the same on every machine and library.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

namespace switchyard::check {

// The bell curve in layers of the same area, as the ziggurat method has them (Marsaglia and Tsang 2000, as Doornik
// 2005): layer i is edges[i] wide; those below are wider, and the lowest has the tail, too.
struct Ziggurat {
  static constexpr uint32_t kLayers = 128;
  static constexpr double kTail = 3.442619855899, kArea = 9.91256303526217e-3;
  std::array<double, kLayers + 1> edges{};
  Ziggurat() {
    double height = std::exp(-0.5 * kTail * kTail);
    edges[0] = kArea / height;
    edges[1] = kTail;
    for (uint32_t i = 2; i < kLayers; ++i) {
      edges[i] = std::sqrt(-2 * std::log(kArea / edges[i - 1] + height));
      height = std::exp(-0.5 * edges[i] * edges[i]);
    }
  }
};

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
  double normal() {
    static const Ziggurat ziggurat;
    const auto& edges = ziggurat.edges;
    while (true) {
      const uint64_t bits = word();  // the upper ones say where in a layer, the lowest in which
      const double u = static_cast<double>(bits >> 11) * 0x1p-52 - 1;
      const uint32_t layer = bits % Ziggurat::kLayers;
      const double x = u * edges[layer];
      if (std::fabs(x) < edges[layer + 1]) return x;
      if (layer == 0) return u < 0 ? -tail() : tail();
      const double outer = std::exp(-0.5 * (edges[layer] * edges[layer] - x * x));
      const double inner = std::exp(-0.5 * (edges[layer + 1] * edges[layer + 1] - x * x));
      if (outer + uniform() * (inner - outer) < 1) return x;
    }
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
  double tail() {  // Marsaglia 1964
    while (true) {
      const double x = -std::log(1 - uniform()) / Ziggurat::kTail, y = -std::log(1 - uniform());
      if (2 * y > x * x) return Ziggurat::kTail + x;
    }
  }

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
