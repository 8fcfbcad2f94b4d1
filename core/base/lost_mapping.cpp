// SPDX-License-Identifier: Apache-2.0
#include "core/base/lost_mapping.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>

#include "core/base/call_site.h"
#include "core/base/output_file.h"
#include "core/base/printable.h"

namespace switchyard {

// What the handler says of a mapping is written beforehand: it may not allocate. `begin` is set last and cleared first.
struct ListedMapping::Entry {
  std::atomic<bool> used = false;
  std::atomic<uintptr_t> begin = 0;
  uintptr_t end = 0;
  size_t size = 0;
  std::array<char, 1024> line{};
};

struct Mappings {
  static inline std::array<ListedMapping::Entry, 64> entries;
};

namespace {

static_assert(std::atomic<uintptr_t>::is_always_lock_free);

void on_bus_error(int signal, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const auto& entry : Mappings::entries) {
    const uintptr_t begin = entry.begin.load(std::memory_order_acquire);
    if (begin == 0 || address < begin || address >= entry.end) continue;
    remove_unfinished_files();
    (void)!::write(STDERR_FILENO, entry.line.data(), entry.size);
    forget_this_call();  // the fault is the file's
    ::_exit(1);
  }
  ::signal(signal, SIG_DFL);  // the instruction runs again, and faults again
}

}  // namespace

ListedMapping::ListedMapping(const void* begin, size_t size, const std::string& path) : entry_(nullptr) {
  for (Entry& entry : Mappings::entries) {
    if (size == 0 || entry.used.exchange(true)) continue;
    entry_ = &entry;
    break;
  }
  if (entry_ == nullptr) return;
  const std::string line = "switchyard: " + printable(path, entry_->line.size() / 2) +
                           " became shorter while it was read; copy it again, and leave it alone while it is in use\n";
  entry_->size = std::min(line.size(), entry_->line.size());
  std::copy_n(line.begin(), entry_->size, entry_->line.begin());
  const auto first = reinterpret_cast<uintptr_t>(begin);
  entry_->end = first + size;
  entry_->begin.store(first, std::memory_order_release);
}

ListedMapping::~ListedMapping() {
  if (entry_ == nullptr) return;
  entry_->begin.store(0);
  entry_->used.store(false);
}

void report_lost_mappings() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace switchyard
