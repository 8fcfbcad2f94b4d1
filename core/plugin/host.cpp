// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/host.h"

#include <spdlog/spdlog.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace switchyard {
namespace {

void log_line(void*, swy_log_level level, const char* message) {
  static constexpr spdlog::level::level_enum levels[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                                         spdlog::level::err};
  spdlog::log(levels[std::min<swy_log_level>(level, SWY_LOG_ERROR)], "{}", message == nullptr ? "" : message);
}

// Large blocks come from the system in huge pages: weights are read at the full rate of memory only if their addresses
// cost nothing to translate.
constexpr uint64_t kHugePage = uint64_t{2} << 20;

uint64_t page_end(uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

void* allocate(void*, uint64_t bytes, uint64_t alignment) {
  if (bytes < kHugePage) {
    void* p = ::operator new(bytes, std::align_val_t(alignment), std::nothrow);
    if (p != nullptr) std::memset(p, 0, bytes);
    return p;
  }
  const uint64_t size = bytes + kHugePage;
  if (size < bytes) return nullptr;
  void* block = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<uintptr_t>(block), aligned = (begin + kHugePage - 1) / kHugePage * kHugePage;
  if (aligned != begin) ::munmap(block, aligned - begin);
  auto* p = reinterpret_cast<char*>(aligned);
  ::munmap(p + page_end(bytes), begin + size - aligned - page_end(bytes));
  ::madvise(p, bytes, MADV_HUGEPAGE);
  return p;
}

void release(void*, void* p, uint64_t bytes, uint64_t alignment) {
  if (bytes < kHugePage) {
    ::operator delete(p, std::align_val_t(alignment));
  } else {
    ::munmap(p, page_end(bytes));
  }
}

}  // namespace

Host::Host(uint32_t threads) : pool_(threads) {
  executor_.struct_size = sizeof executor_;
  executor_.ctx = &pool_;
  executor_.width = [](void* ctx) { return static_cast<ThreadPool*>(ctx)->width(); };
  executor_.run = [](void* ctx, swy_team_fn fn, void* arg) { static_cast<ThreadPool*>(ctx)->run(fn, arg); };
  host_.struct_size = sizeof host_;
  host_.abi = SWY_ABI_VERSION;
  host_.version = "0.1.0";
  host_.log = log_line;
  host_.alloc = allocate;
  host_.free = release;
  host_.executor = &executor_;
  host_.get_extension = [](void*, const char*) -> const void* { return nullptr; };
}

}  // namespace switchyard
