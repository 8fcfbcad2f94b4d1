// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/host.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>

#include "plugins_api/check/failure.h"
#include "plugins_api/check/team.h"

namespace switchyard::check {
namespace {

std::atomic<uint64_t> allocations{0};
std::atomic<Shortage> shortage{Shortage::kNone};
std::atomic<int64_t> allocations_left{0};  // allocations until it begins
std::atomic<bool> met{false};
uintptr_t code_begin = 0, code_end = 0;

// Whether the current allocation is one that must fail.
bool is_short() {
  const Shortage s = shortage.load(std::memory_order_relaxed);
  if (s == Shortage::kNone) return false;
  const int64_t n = allocations_left.fetch_sub(1, std::memory_order_relaxed);
  const bool fails = n == 1 || (n < 1 && s == Shortage::kForGood);
  if (fails) met = true;
  return fails;
}

// Blocks in use, to find wrong frees.
class Ledger {
 public:
  void add(void* p, uint64_t bytes, uint64_t alignment) {
    const std::lock_guard lock(mutex_);
    blocks_[p] = {bytes, alignment};
  }
  // Whether it may be freed.
  bool remove(void* p, uint64_t bytes, uint64_t alignment) {
    const std::lock_guard lock(mutex_);
    const auto it = blocks_.find(p);
    if (it == blocks_.end()) {
      misuse_ = text("gave back ", bytes, " bytes that the host's allocator did not give, or gave them back twice");
      return false;
    }
    if (it->second != std::pair(bytes, alignment)) {
      misuse_ = text("gave back ", bytes, " bytes aligned to ", alignment, " that it got as ", it->second.first,
                     " aligned to ", it->second.second);
    }
    blocks_.erase(it);
    return true;
  }
  uint64_t count() {
    const std::lock_guard lock(mutex_);
    return blocks_.size();
  }
  std::string misuse() {
    const std::lock_guard lock(mutex_);
    return std::exchange(misuse_, "");
  }

 private:
  std::mutex mutex_;
  std::unordered_map<void*, std::pair<uint64_t, uint64_t>> blocks_;
  std::string misuse_;
};

Ledger& ledger() {
  static auto* all = new Ledger;  // plugins may give memory back while the process ends
  return *all;
}

// ---- blocks before guard pages

constexpr uint64_t kPage = 4096;

struct GuardedBlock {
  std::atomic<char*> begin{nullptr};  // as given to the plugin; NULL: a free place
  char* end = nullptr;                // of its bytes
  char* map = nullptr;
  uint64_t map_bytes = 0;  // the last page is the guard
  char what[64] = {};
};
std::array<GuardedBlock, 4096> guarded;
std::atomic<bool> guarding{false};
thread_local std::string block_name;

// NULL: no memory, or no place.
void* allocate_guarded(uint64_t bytes, uint64_t alignment) {
  const uint64_t size = (bytes + alignment - 1) / alignment * alignment, pages = (size + kPage - 1) / kPage * kPage;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  for (GuardedBlock& b : guarded) {
    if (b.begin != nullptr) continue;
    void* map = ::mmap(nullptr, pages + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) return nullptr;
    b.map = static_cast<char*>(map);
    b.map_bytes = pages + kPage;
    ::mprotect(b.map + pages, kPage, PROT_NONE);
    std::snprintf(b.what, sizeof b.what, "%s", block_name.empty() ? "a block" : block_name.c_str());
    b.end = b.map + pages - size + bytes;
    b.begin = b.map + pages - size;
    return b.begin;
  }
  return nullptr;
}

bool release_guarded(const void* p) {
  for (GuardedBlock& b : guarded) {
    if (b.begin != p) continue;
    ::munmap(b.map, b.map_bytes);
    b.begin = nullptr;
    return true;
  }
  return false;
}

void log_line(void*, swy_log_level level, const char* message) {
  if (level >= SWY_LOG_WARNING) std::fprintf(stderr, "plugin: %s\n", message == nullptr ? "" : message);
}
void* allocate(void*, uint64_t bytes, uint64_t alignment) {
  constexpr uint64_t kMost = uint64_t{1} << 40;  // beyond any machine's
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (bytes > kMost || is_short()) return nullptr;
  const uint64_t whole = alignment < alignof(std::max_align_t) ? alignof(std::max_align_t) : alignment;
  void* p = guarding ? allocate_guarded(bytes == 0 ? 1 : bytes, whole)
                     : ::aligned_alloc(whole, (bytes + whole - 1) / whole * whole + (bytes == 0 ? whole : 0));
  if (p == nullptr) return nullptr;
  std::memset(p, 0, bytes);
  ledger().add(p, bytes, alignment);
  return p;
}
void release(void*, void* p, uint64_t bytes, uint64_t alignment) {
  if (p != nullptr && ledger().remove(p, bytes, alignment) && !release_guarded(p)) std::free(p);
}

}  // namespace

const swy_host* the_host() {
  static const swy_host host{sizeof(swy_host), SWY_ABI_VERSION,
                             "check",          nullptr,
                             log_line,         nullptr,
                             allocate,         release,
                             the_team(),       [](void*, const char*) { return static_cast<const void*>(nullptr); }};
  return &host;
}

uint64_t host_allocations() { return allocations.load(std::memory_order_relaxed); }
uint64_t host_blocks() { return ledger().count(); }
std::string host_misuse() { return ledger().misuse(); }

void set_guard_pages(bool on) { guarding = on; }
bool guard_pages() { return guarding; }
uint64_t guarded_blocks() {
  return static_cast<uint64_t>(
      std::count_if(guarded.begin(), guarded.end(), [](const GuardedBlock& b) { return b.begin != nullptr; }));
}
void name_blocks(const std::string& what) { block_name = what; }

bool describe_guard(const void* address, char* out, size_t capacity) {
  const auto* at = static_cast<const char*>(address);
  for (const GuardedBlock& b : guarded) {
    const char* guard = b.map + b.map_bytes - kPage;
    if (b.begin == nullptr || at < guard || at >= guard + kPage) continue;
    std::snprintf(out, capacity, "%lld bytes past the end of %s", static_cast<long long>(at - b.end), b.what);
    return true;
  }
  return false;
}

void set_shortage(Shortage s, uint64_t n) {
  allocations_left = static_cast<int64_t>(n);
  if (s != Shortage::kNone) met = false;
  shortage = s;
}
bool shortage_met() { return met; }

void set_plugin_code(const void* symbol_of_it) {
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* symbol) {
        const auto wanted = reinterpret_cast<uintptr_t>(symbol);
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& h = info->dlpi_phdr[i];
          const uintptr_t begin = info->dlpi_addr + h.p_vaddr, end = begin + h.p_memsz;
          if (h.p_type != PT_LOAD || wanted < begin || wanted >= end) continue;
          code_begin = begin;
          code_end = end;
        }
        return 0;
      },
      const_cast<void*>(symbol_of_it));
}

// Whether an allocation by operator new is the plugin's, and fails.
bool new_is_short(const void* caller) {
  const auto at = reinterpret_cast<uintptr_t>(caller);
  return at >= code_begin && at < code_end && is_short();
}

}  // namespace switchyard::check

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// The program's operator new serves plugins, too: the dynamic linker finds it first.
#pragma GCC visibility push(default)
void* operator new(size_t bytes) {
  void* p =
      switchyard::check::new_is_short(__builtin_return_address(0)) ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return switchyard::check::new_is_short(__builtin_return_address(0)) ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
}
void* operator new[](size_t bytes) {
  void* p =
      switchyard::check::new_is_short(__builtin_return_address(0)) ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }
#pragma GCC visibility pop
#endif
