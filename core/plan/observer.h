// SPDX-License-Identifier: Apache-2.0
// Observers of steps: told what ran when, and what was submitted. Without observers, steps cost nothing extra.
#pragma once

#include <cstdint>

#include "core/base/os.h"

namespace switchyard {

struct Plan;
struct PlanSegment;

// Counts of submissions while it was installed.
struct SubmitCounts {
  uint64_t lists = 0;
  uint64_t cpu_ns = 0;   // processor time of the submitting thread inside the plugins, waiting included
  uint64_t wait_ns = 0;  // of it by the clock, in calls that wait for an asynchronous device
};

// Called on the thread that steps. Times are of Os::now_ns.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  // A stretch of that thread's time; stretches nest. `what` lives for ever.
  virtual void stretch(const char* what, uint64_t begin_ns, uint64_t end_ns) = 0;
  // Before and after a list is submitted. The plan lives until the model's lists are forgotten.
  virtual void submitting(const Plan& plan, const PlanSegment& segment) = 0;
  virtual void submitted(const Plan& plan, const PlanSegment& segment, uint64_t begin_ns, uint64_t end_ns) = 0;
  // The results of a step have come to the host.
  virtual void stepped() = 0;
};

// A stretch that ends with its scope.
class Stretch {
 public:
  Stretch(StepObserver* observer, const char* what)
      : observer_(observer), what_(what), begin_ns_(observer == nullptr ? 0 : Os::real().now_ns()) {}
  ~Stretch() {
    if (observer_ != nullptr) observer_->stretch(what_, begin_ns_, Os::real().now_ns());
  }
  Stretch(const Stretch&) = delete;
  Stretch& operator=(const Stretch&) = delete;

 private:
  StepObserver* observer_;
  const char* what_;
  uint64_t begin_ns_;
};

// Time inside a plugin, counted until its scope ends.
class PluginTime {
 public:
  // `waits`: the call returns when an asynchronous device has come that far.
  PluginTime(SubmitCounts* counts, bool waits) : counts_(counts), waits_(waits) {
    if (counts_ == nullptr) return;
    cpu_ns_ = thread_cpu_ns();
    begin_ns_ = waits ? Os::real().now_ns() : 0;
  }
  ~PluginTime() {
    if (counts_ == nullptr) return;
    counts_->cpu_ns += thread_cpu_ns() - cpu_ns_;
    if (waits_) counts_->wait_ns += Os::real().now_ns() - begin_ns_;
  }
  PluginTime(const PluginTime&) = delete;
  PluginTime& operator=(const PluginTime&) = delete;

 private:
  SubmitCounts* counts_;
  bool waits_;
  uint64_t cpu_ns_ = 0, begin_ns_ = 0;
};

// Both, for what submits.
struct StepWatch {
  SubmitCounts* counts = nullptr;
  StepObserver* observer = nullptr;
};

}  // namespace switchyard
