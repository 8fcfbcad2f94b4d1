// What the runtime offers to plugins: logging, memory, and the thread pool.
#pragma once

#include <memory>

#include "core/base/thread_pool.h"
#include "switchyard/plugin.h"

namespace switchyard {

// One per process is enough; it outlives every plugin that negotiated with it.
class Host {
 public:
  explicit Host(uint32_t threads);
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  const swy_host* table() const { return &host_; }
  uint32_t threads() const { return pool_.width(); }

 private:
  ThreadPool pool_;
  swy_executor executor_{};
  swy_host host_{};
};

}  // namespace switchyard
