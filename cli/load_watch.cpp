// SPDX-License-Identifier: Apache-2.0
#include "cli/load_watch.h"

#include <unistd.h>

#include <chrono>
#include <string_view>

#include "cli/signals.h"
#include "core/base/output_file.h"
#include "core/base/threads.h"

namespace switchyard::cli {
namespace {

using std::chrono_literals::operator""ms;

constexpr auto kLook = 40ms;    // between looks at the flag
constexpr auto kGrace = 120ms;  // for an orderly end

}  // namespace

LoadWatch::LoadWatch() : loading_(std::make_shared<std::atomic<bool>>(true)) {
  start_thread(thread_, [this] { watch(); });
}

LoadWatch::~LoadWatch() {
  {
    const std::lock_guard lock(mutex_);
    loading_->store(false);
  }
  ended_.notify_all();
  for (std::thread& t : thread_) t.join();
}

CancelCheck LoadWatch::cancelled() const {
  return [loading = loading_] { return loading->load() && interrupted.load(); };
}

void LoadWatch::watch() {
  std::unique_lock lock(mutex_);
  const auto ended = [this] { return !loading_->load(); };
  while (!interrupted.load()) {
    if (ended_.wait_for(lock, kLook, ended)) return;
  }
  if (ended_.wait_for(lock, kGrace, ended)) return;
  constexpr std::string_view kStopped = "switchyard: stopped\n";
  (void)!::write(STDERR_FILENO, kStopped.data(), kStopped.size());
  remove_unfinished_files();
  ::_exit(exit_code_after_signals(130));
}

}  // namespace switchyard::cli
