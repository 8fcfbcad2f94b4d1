#include "core/plugin/host.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <new>

namespace switchyard {
namespace {

void log_line(void*, swy_log_level level, const char* message) {
  static constexpr spdlog::level::level_enum levels[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                                         spdlog::level::err};
  spdlog::log(levels[std::min<swy_log_level>(level, SWY_LOG_ERROR)], "{}", message == nullptr ? "" : message);
}

void* allocate(void*, uint64_t bytes, uint64_t alignment) {
  return ::operator new(bytes, std::align_val_t(alignment), std::nothrow);
}

void release(void*, void* p, uint64_t, uint64_t alignment) { ::operator delete(p, std::align_val_t(alignment)); }

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
