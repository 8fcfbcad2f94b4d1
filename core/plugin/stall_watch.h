// SPDX-License-Identifier: Apache-2.0
// StallWatch: a thread that says when the program has been in one call of a backend for long, and that asks the backend
// to end it when the user stops the program.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/cancel.h"

namespace switchyard {

class StallWatch {
 public:
  struct Options {
    double seconds = 10;      // until a call is told of; then after twice the time, and so on
    double patience = 0.5;    // of a call, before an interrupt asks its device to cancel it
    CancelCheck interrupted;  // the user stops the program
    std::function<void(const std::string& line)> say;
  };
  explicit StallWatch(Options options);
  ~StallWatch();
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

 private:
  void watch();

  Options options_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  std::vector<std::thread> thread_;  // none where the system refuses it
};

}  // namespace switchyard
