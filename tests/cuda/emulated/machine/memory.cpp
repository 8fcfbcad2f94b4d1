// SPDX-License-Identifier: Apache-2.0
// Shared memory. Each block has a window; a 32-bit address is the block's rank in its cluster and a place in the
// window.
#include <cstdlib>
#include <cstring>
#include <new>

#include "machine/state.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define SWY_POISON(p, n) __asan_poison_memory_region(p, n)
#define SWY_UNPOISON(p, n) __asan_unpoison_memory_region(p, n)
#else
#define SWY_POISON(p, n) static_cast<void>(0)
#define SWY_UNPOISON(p, n) static_cast<void>(0)
#endif

namespace emulated {
namespace {

constexpr uint32_t kWindow = 256 * 1024, kRank = 24, kFirst = 1024, kMargin = 64;
constexpr uint32_t kMostShared = 227 * 1024;
constexpr int kGarbage = 0xff;  // numbers that are none

std::vector<char*>& free_windows() {
  static std::vector<char*> all;
  return all;
}

uint32_t up(uint32_t n, uint32_t to) { return (n + to - 1) / to * to; }

}  // namespace

char* take_window() {
  if (!free_windows().empty()) {
    char* w = free_windows().back();
    free_windows().pop_back();
    return w;
  }
  void* p = std::aligned_alloc(kWindow, kWindow);
  if (p == nullptr) throw std::bad_alloc();
  return static_cast<char*>(p);
}
void give_window(char* window) { free_windows().push_back(window); }

void begin_window(Block& block) {
  block.window = take_window();
  SWY_UNPOISON(block.window, kWindow);
  const uint32_t used =
      std::min<uint32_t>(kWindow, kFirst + 1024 + static_cast<uint32_t>(block.launch->dynamic_bytes) + kMargin);
  std::memset(block.window, kGarbage, used);
  SWY_POISON(block.window, kWindow);
}

void* dynamic_shared(size_t alignment) {
  Block& block = *current->warp->block;
  if (block.dynamic == nullptr) {
    // Aligned as declared, and no better: variables that come before it would move it.
    const uint32_t least = std::max<uint32_t>(16, static_cast<uint32_t>(alignment));
    block.dynamic = block.window + kFirst + (least < 1024 ? least : 0);
    SWY_UNPOISON(block.dynamic, block.launch->dynamic_bytes);
  }
  return block.dynamic;
}

void* fixed_shared(const void* id, size_t bytes, size_t alignment) {
  Block& block = *current->warp->block;
  char*& known = block.fixed[id];
  if (known != nullptr) return known;
  Launch& l = *block.launch;
  const auto found = l.places.find(id);
  uint32_t at = 0;
  if (found != l.places.end()) {
    at = found->second;
  } else {
    if (l.places.empty()) l.fixed_end = kFirst + 1024 + static_cast<uint32_t>(l.dynamic_bytes);
    at = up(l.fixed_end + kMargin, std::max<uint32_t>(16, static_cast<uint32_t>(alignment)));
    l.fixed_end = at + static_cast<uint32_t>(bytes);
    if (l.fixed_end > kFirst + 1024 + kMostShared + 2048)
      fault("%u bytes of shared memory; a block has %u", l.fixed_end, kMostShared);
    l.places[id] = at;
  }
  known = block.window + at;
  SWY_UNPOISON(known, bytes);
  std::memset(known, kGarbage, bytes);
  return known;
}

uint32_t shared_address(const void* p) {
  for (const auto& b : current->warp->block->cluster->blocks) {
    const auto at = static_cast<const char*>(p) - b->window;
    if (at >= 0 && at < kWindow) return (b->rank + 1) << kRank | static_cast<uint32_t>(at);
  }
  fault("%p is not in shared memory", p);
}

char* shared_pointer(uint32_t at, uint32_t bytes, uint32_t alignment) {
  const Cluster& c = *current->warp->block->cluster;
  const uint32_t rank = (at >> kRank) - 1, place = at & ((1u << kRank) - 1);
  if (rank >= c.blocks.size() || place + bytes > kWindow) fault("%08x is no address of shared memory", at);
  if (place % alignment != 0) fault("an address of shared memory, %08x, is no multiple of %u", at, alignment);
  if (c.blocks[rank]->living == 0)
    fault("an access to the shared memory of block %u of the cluster, which has ended", rank);
  char* p = c.blocks[rank]->window + place;
#if defined(__SANITIZE_ADDRESS__)
  if (const void* bad = __asan_region_is_poisoned(p, bytes); bad != nullptr) {
    fault("%u bytes at %08x of shared memory are not all in variables", bytes, at);
  }
#endif
  return p;
}

}  // namespace emulated
