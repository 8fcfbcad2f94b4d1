// SPDX-License-Identifier: Apache-2.0
// What the lanes of a warp do together: shuffles, votes, matrices, products.
#include <cmath>

#include "device.h"
#include "matrix.h"

namespace emulated {
namespace {

struct Exchanged {
  uint64_t value, got;
  Pick pick;
  uint32_t which, width;
};

void exchange(void* const* lanes) {
  for (uint32_t i = 0; i < kLanes; ++i) {
    if (lanes[i] == nullptr) continue;
    auto& e = *static_cast<Exchanged*>(lanes[i]);
    const uint32_t first = i / e.width * e.width, last = first + e.width - 1;
    uint32_t from = i;
    if (e.pick == Pick::lane) from = first + e.which % e.width;
    if (e.pick == Pick::up) from = i >= first + e.which ? i - e.which : i;
    if (e.pick == Pick::exclusive) from = (i ^ e.which) <= last ? i ^ e.which : i;
    e.got = lanes[from] == nullptr ? ~uint64_t{0} : static_cast<Exchanged*>(lanes[from])->value;  // garbage of no lane
  }
}

struct Voted {
  uint32_t value, got;
  Vote kind;
};

void count_votes(void* const* lanes) {
  bool first = true;
  uint32_t all = 0;
  for (uint32_t i = 0; i < kLanes; ++i) {
    if (lanes[i] == nullptr) continue;
    const auto& v = *static_cast<Voted*>(lanes[i]);
    const uint32_t x = v.kind == Vote::ballot ? v.value << i : v.value;
    const auto sx = static_cast<int>(x), sall = static_cast<int>(all);
    all = first                        ? x
          : v.kind == Vote::add        ? all + x
          : v.kind == Vote::min        ? std::min(all, x)
          : v.kind == Vote::max        ? std::max(all, x)
          : v.kind == Vote::min_signed ? static_cast<uint32_t>(std::min(sall, sx))
          : v.kind == Vote::max_signed ? static_cast<uint32_t>(std::max(sall, sx))
                                       : all | x;
    first = false;
  }
  for (uint32_t i = 0; i < kLanes; ++i) {
    if (lanes[i] != nullptr) static_cast<Voted*>(lanes[i])->got = all;
  }
}

struct Matrices {
  uint32_t** to;
  const char* row;  // that this lane names
  bool transposed;
};

void hand_out(void* const* lanes) {
  for (uint32_t i = 0; i < kLanes; ++i) {
    const auto& mine = *static_cast<Matrices*>(lanes[i]);
    for (uint32_t m = 0; m < 4; ++m) {
      uint16_t pair[2];
      for (uint32_t e = 0; e < 2; ++e) {
        const uint32_t row = mine.transposed ? i % 4 * 2 + e : i / 4, column = mine.transposed ? i / 4 : i % 4 * 2 + e;
        std::memcpy(&pair[e], static_cast<Matrices*>(lanes[m * 8 + row])->row + 2 * column, 2);
      }
      std::memcpy(mine.to[m], pair, 4);
    }
  }
}

struct Turned {
  uint32_t value, got;
};

void turn(void* const* lanes) {
  for (uint32_t i = 0; i < kLanes; ++i) {
    uint32_t got = 0;
    for (uint32_t e = 0; e < 2; ++e) {
      const uint32_t row = i % 4 * 2 + e, column = i / 4;
      got |= (static_cast<Turned*>(lanes[row * 4 + column / 2])->value >> 16 * (column % 2) & 0xffff) << 16 * e;
    }
    static_cast<Turned*>(lanes[i])->got = got;
  }
}

struct Multiplied {
  ptx::Numbers numbers;
  void* const* d;
  const uint32_t *a, *b;
  const void* c;
};

void multiply_lanes(void* const* lanes) {
  const auto at = [&](uint32_t i) -> Multiplied& { return *static_cast<Multiplied*>(lanes[i]); };
  const ptx::Numbers numbers = at(0).numbers;
  const uint32_t depth = depth_of(numbers);
  const bool whole = numbers == ptx::Numbers::bytes || numbers == ptx::Numbers::bytes_unsigned;
  float a[16][32], b[32][8];
  int ai[16][32], bi[32][8];
  for (uint32_t i = 0; i < kLanes; ++i) {
    take_first(numbers, at(i).a, i, a, ai);
    take_second(numbers, at(i).b, i, b, bi);
  }
  for (uint32_t i = 0; i < kLanes; ++i) {
    for (uint32_t e = 0; e < 4; ++e) {
      const uint32_t m = i / 4 + e / 2 * 8, n = i % 4 * 2 + e % 2;
      if (whole) {
        int sum = static_cast<const int*>(at(i).c)[e];
        for (uint32_t k = 0; k < depth; ++k) sum += ai[m][k] * bi[k][n];
        *static_cast<int*>(at(i).d[e]) = sum;
      } else {
        float sum = static_cast<const float*>(at(i).c)[e];
        for (uint32_t k = 0; k < depth; ++k) sum += a[m][k] * b[k][n];
        *static_cast<float*>(at(i).d[e]) = sum;
      }
    }
  }
}

}  // namespace

uint64_t shuffle(const char* what, uint32_t mask, uint64_t value, Pick pick, uint32_t which, uint32_t width) {
  Exchanged e{value, 0, pick, which, width};
  meet(what, mask, &e, exchange, false, __builtin_return_address(0));
  return e.got;
}

uint32_t vote(const char* what, uint32_t mask, uint32_t value, Vote kind) {
  Voted v{value, 0, kind};
  meet(what, mask, &v, count_votes, false, __builtin_return_address(0));
  return v.got;
}

namespace ptx {

void load_matrices(uint32_t** to, uint32_t at, bool transposed) {
  Matrices m{to, shared_pointer(at, 16, 16), transposed};
  meet(transposed ? "ldmatrix.trans" : "ldmatrix", ~0u, &m, hand_out, true, __builtin_return_address(0));
}

uint32_t transposed(uint32_t x) {
  Turned t{x, 0};
  meet("movmatrix", ~0u, &t, turn, true, __builtin_return_address(0));
  return t.got;
}

void multiply(Numbers numbers, void* const* d, const uint32_t* a, const uint32_t* b, const void* c) {
  Multiplied m{numbers, d, a, b, c};
  meet("mma", ~0u, &m, multiply_lanes, true, __builtin_return_address(0));
}

}  // namespace ptx
}  // namespace emulated

void __syncwarp(uint32_t mask) {
  const void* site = __builtin_return_address(0);
  if (!emulated::dropped("__syncwarp", site)) emulated::meet("__syncwarp", mask, nullptr, nullptr, false, site);
}
void __syncthreads() {
  const void* site = __builtin_return_address(0);
  if (!emulated::dropped("__syncthreads", site)) emulated::block_barrier("__syncthreads", 0, 0, 0, site);
}
int __syncthreads_count(int yes) {
  return emulated::block_barrier("__syncthreads_count", 0, 0, yes, __builtin_return_address(0));
}
int __syncthreads_or(int yes) {
  return emulated::block_barrier("__syncthreads_or", 0, 0, yes, __builtin_return_address(0)) != 0 ? 1 : 0;
}
