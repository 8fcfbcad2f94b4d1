// SPDX-License-Identifier: Apache-2.0
// Ctrl-C while a model is loaded.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/base/cancel.h"

namespace switchyard::cli {

// While it exists, an interrupt ends the program within 200 ms. The library is asked to stop first, and its error then
// ends the command as any other. What cannot be stopped (a driver that opens a device, one large weight that is packed)
// is cut off: the program exits.
class LoadWatch {
 public:
  LoadWatch();
  ~LoadWatch();
  LoadWatch(const LoadWatch&) = delete;
  LoadWatch& operator=(const LoadWatch&) = delete;

  // True when an interrupt came while the watch existed. It may outlive the watch.
  CancelCheck cancelled() const;

 private:
  void watch();

  std::shared_ptr<std::atomic<bool>> loading_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::vector<std::thread> thread_;  // none where the system refuses it
};

}  // namespace switchyard::cli
