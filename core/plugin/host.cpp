// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/host.h"

#include <spdlog/spdlog.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>
#include <string_view>
#include <vector>

#include "core/base/call_site.h"
#include "core/base/printable.h"
#include "switchyard/extensions.h"

namespace switchyard {
namespace {

constexpr size_t kLongestLog = 1000;  // bytes

void log_line(void*, swy_log_level level, const char* message) {
  static constexpr spdlog::level::level_enum levels[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                                         spdlog::level::err};
  try {
    const std::string_view text(message, message == nullptr ? 0 : ::strnlen(message, 2 * kLongestLog));
    spdlog::log(levels[std::min<swy_log_level>(level, SWY_LOG_ERROR)], "{}", printable(text, kLongestLog));
  } catch (const std::exception&) {  // out of memory: nothing may leave this for the plugin
  }
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

const void* extension(void*, const char* name) {
  static const swy_doing doing{sizeof(swy_doing), 0, nullptr, [](void*) { return &this_call_site().kernel; }};
  return std::string_view(name) == SWY_EXT_DOING ? &doing : nullptr;
}

}  // namespace

struct Host::Services {
  explicit Services(uint32_t threads) : wanted(threads), pool(threads) {
    executor.struct_size = sizeof executor;
    executor.ctx = &pool;
    executor.width = [](void* ctx) { return static_cast<ThreadPool*>(ctx)->width(); };
    executor.run = [](void* ctx, swy_team_fn fn, void* arg) { static_cast<ThreadPool*>(ctx)->run(fn, arg); };
    table.struct_size = sizeof table;
    table.abi = SWY_ABI_VERSION;
    table.version = "0.1.0";
    table.log = log_line;
    table.alloc = allocate;
    table.free = release;
    table.executor = &executor;
    table.get_extension = extension;
  }

  // All of this process, for ever; one that no Host has is idle.
  struct All {
    std::mutex mutex;
    std::vector<Services*> services;
  };
  static All& all() {
    static auto* const all = new All;
    return *all;
  }
  static Services* take(uint32_t threads) {
    const std::lock_guard lock(all().mutex);
    for (Services* s : all().services) {
      if (!s->idle || s->wanted != threads) continue;
      s->idle = false;
      return s;
    }
    return all().services.emplace_back(new Services(threads));
  }
  void give_back() {
    const std::lock_guard lock(all().mutex);
    idle = true;
  }

  const uint32_t wanted;  // threads
  bool idle = false;
  ThreadPool pool;
  swy_executor executor{};
  swy_host table{};
};

Host::Host(uint32_t threads) : services_(Services::take(threads)) {}

Host::~Host() {
  set_trace(nullptr, nullptr);
  watch(nullptr);
  services_->give_back();
}

const swy_host* Host::table() const { return &services_->table; }
const ThreadPool& Host::pool() const { return services_->pool; }

void Host::set_trace(Trace trace, void* ctx) {
  services_->table.trace = trace;
  services_->table.ctx = ctx;
}

bool Host::pin() { return services_->pool.pin(); }
void Host::watch(TeamCounts* counts) { services_->pool.watch(counts); }

}  // namespace switchyard
