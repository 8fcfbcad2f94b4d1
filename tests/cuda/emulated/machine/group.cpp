// SPDX-License-Identifier: Apache-2.0
// Products of a warpgroup (wgmma). Each warp has its quarter of the rows. A product runs when it is issued or, as
// often, only when the warp waits for it: so a warp that does not wait reads old sums, and one that lets its operands
// be overwritten too early multiplies what they became.
#include "device.h"
#include "machine/state.h"
#include "matrix.h"

namespace emulated {
namespace {

// A matrix in shared memory with rows of 128 bytes, pieces of 16 permuted by the place's bits 7 to 9. PTX ISA, matrix
// descriptors of wgmma.
struct Operand {
  const char* window;
  uint32_t at, leading, stride;
  bool transposed;

  Operand(const char* of, uint64_t descriptor, bool turned)
      : window(of),
        at(static_cast<uint32_t>(descriptor & 0x3fff) << 4),
        leading(static_cast<uint32_t>(descriptor >> 16 & 0x3fff) << 4),
        stride(static_cast<uint32_t>(descriptor >> 32 & 0x3fff) << 4),
        transposed(turned) {}
  // Byte `byte` of element k of row r, where elements have `size` bytes.
  const char* element(uint32_t r, uint32_t k, uint32_t size) const {
    uint32_t place;
    if (transposed) {  // rows are k, with 64 elements
      place = at + k / 8 * stride + k % 8 * 128 + r / 64 * leading + r % 64 * size;
    } else {
      place = at + r / 8 * stride + r % 8 * 128 + k * size;
    }
    return window + (place ^ (place >> 7 & 7) << 4);
  }
  float number(uint32_t r, uint32_t k) const {
    uint16_t bits;
    std::memcpy(&bits, element(r, k, 2), 2);
    return float_of_bf16(bits);
  }
  int byte(uint32_t r, uint32_t k) const { return *reinterpret_cast<const int8_t*>(element(r, k, 1)); }
};

using Lanes = std::vector<ptx::GroupProduct>;

// b [depth][columns]; the innermost loop is over columns, so that it becomes vector instructions.
template <class T>
void sum_up(const Lanes& lanes, const T (&a)[16][32], const std::vector<T>& b, uint32_t depth) {
  const uint32_t columns = lanes[0].columns;
  std::vector<T> sums(columns);
  for (uint32_t m = 0; m < 16; ++m) {
    const auto each = [&](auto body) {  // the sum of column n: its lane, and its place there
      for (uint32_t n = 0; n < columns; ++n)
        body(sums[n], lanes[m % 8 * 4 + n % 8 / 2].d[n / 8 * 4 + m / 8 * 2 + n % 2]);
    };
    std::fill(sums.begin(), sums.end(), T{0});
    if (lanes[0].add) each([](T& sum, const void* at) { std::memcpy(&sum, at, sizeof sum); });
    for (uint32_t k = 0; k < depth; ++k) {
      const T factor = a[m][k], *row = &b[k * columns];
      for (uint32_t n = 0; n < columns; ++n) sums[n] += factor * row[n];
    }
    each([](const T& sum, void* at) { std::memcpy(at, &sum, sizeof sum); });
  }
}

void compute(const Lanes& lanes, const char* window, uint32_t quarter) {
  const ptx::GroupProduct& p = lanes[0];
  const uint32_t depth = depth_of(p.numbers);
  float a[16][32];
  int ai[16][32];
  if (p.a_at != 0) {
    const Operand first(window, p.a_at, false);
    for (uint32_t m = 0; m < 16; ++m) {
      for (uint32_t k = 0; k < depth; ++k) a[m][k] = first.number(quarter * 16 + m, k);
    }
  } else {
    for (uint32_t i = 0; i < kLanes; ++i) take_first(p.numbers, lanes[i].a, i, a, ai);
  }
  const Operand second(window, p.b_at, p.b_transposed);
  if (p.numbers == ptx::Numbers::bf16) {
    std::vector<float> b(p.columns * depth);
    for (uint32_t i = 0; i < b.size(); ++i) b[i] = second.number(i % p.columns, i / p.columns);
    sum_up(lanes, a, b, depth);
  } else {
    std::vector<int> b(p.columns * depth);
    for (uint32_t i = 0; i < b.size(); ++i) b[i] = second.byte(i % p.columns, i / p.columns);
    sum_up(lanes, ai, b, depth);
  }
}

void issue(void* const* all) {
  Lanes lanes(kLanes);
  for (uint32_t i = 0; i < kLanes; ++i) {
    lanes[i] = *static_cast<const ptx::GroupProduct*>(all[i]);
    if (lanes[i].b_at != lanes[0].b_at || lanes[i].a_at != lanes[0].a_at || lanes[i].add != lanes[0].add) {
      fault("wgmma with other descriptors in lane %u than in lane 0", i);
    }
  }
  Warp& w = *current->warp;
  const char* window = w.block->window;
  const uint32_t quarter = current->linear / kLanes % 4;
  const bool now = w.groups.size() == 1 && w.groups[0].empty() && random_below(2) != 0;
  if (now) {
    compute(lanes, window, quarter);
  } else {
    w.groups.back().push_back([lanes = std::move(lanes), window, quarter] { compute(lanes, window, quarter); });
  }
}

void close_group(void* const*) { current->warp->groups.emplace_back(); }

void run_groups(void* const* lanes) {
  const uint32_t left = *static_cast<const uint32_t*>(lanes[0]);
  auto& groups = current->warp->groups;
  while (groups.size() > left + 1) {  // the last one is not committed
    for (const Product& p : groups.front()) p();
    groups.pop_front();
  }
}

}  // namespace

namespace ptx {

void multiply_group(const GroupProduct& p) {
  GroupProduct mine = p;
  meet("wgmma", ~0u, &mine, issue, true, __builtin_return_address(0));
}
void wgmma_fence_sync_aligned() { meet("wgmma.fence", ~0u, nullptr, nullptr, true, __builtin_return_address(0)); }
void wgmma_commit_group_sync_aligned() {
  meet("wgmma.commit_group", ~0u, nullptr, close_group, true, __builtin_return_address(0));
}
void wgmma_wait_group_sync_aligned(uint32_t left) {
  const void* site = __builtin_return_address(0);
  if (dropped("wgmma.wait_group", site)) return;
  meet("wgmma.wait_group", ~0u, &left, run_groups, true, site);
}

}  // namespace ptx
}  // namespace emulated
