// SPDX-License-Identifier: Apache-2.0
// Profile: what ran when while a model steps, on the host and on its devices, by one clock. Host backends report their
// kernels through the host's trace callback, asynchronous devices through swy.profile/1.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/engine/model.h"
#include "core/plan/observer.h"
#include "core/plugin/host.h"
#include "core/plugin/profiler.h"

namespace switchyard {

// One kernel, or one launch of several that an operation takes.
struct KernelSpan {
  uint32_t device = 0;         // of Model::devices
  const char* name = nullptr;  // "moe_add.sorted"; further launches: "moe_add.sorted/combine"
  uint64_t list = 0;           // the submission that it belongs to; 0: not known
  const Plan* plan = nullptr;  // with the operation; NULL: not known. Both live until the profile ends
  const PlanNode* node = nullptr;
  uint64_t begin_ns = 0, end_ns = 0;
};

class ProfileListener {
 public:
  virtual ~ProfileListener() = default;
  // A stretch of the thread that steps; stretches nest, and inner ones come first.
  virtual void stretch(const char* what, uint64_t begin_ns, uint64_t end_ns) {
    (void)what, (void)begin_ns, (void)end_ns;
  }
  // A list was submitted in that stretch of time. `list` counts from 1.
  virtual void submitted(uint64_t list, const Plan& plan, const PlanSegment& segment, uint64_t begin_ns,
                         uint64_t end_ns) {
    (void)list, (void)plan, (void)segment, (void)begin_ns, (void)end_ns;
  }
  // In order per device. Never at the same time as another call.
  virtual void kernel(const KernelSpan& span) = 0;
};

class Profile final : private StepObserver {
 public:
  // Waits for the devices, and starts profiling. All lists are recorded again if a device needs that. All arguments
  // outlive it; no step of the model may be in flight. Errors: those of the devices.
  static Result<std::unique_ptr<Profile>> start(Model& model, Host& host, ProfileListener& listener);
  // Reports the rest, and stops. Nothing is reported afterwards. Errors: those of the devices, now or earlier.
  Status stop();
  ~Profile() override;
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  // Devices that run something and cannot report times.
  std::vector<std::string> blind() const;
  // Spans that did not fit into devices' memory.
  uint64_t dropped() const { return dropped_; }

 private:
  // A submission with kernels that have not been reported yet.
  struct Expected {
    uint64_t list = 0;
    const Plan* plan = nullptr;
    uint32_t next = 0, end = 0;  // nodes
  };
  // The profile's data of one device.
  struct Lane {
    std::deque<Expected> lists;
    Expected current;  // of the operation that reported last
    const PlanNode* node = nullptr;
    std::unique_ptr<DeviceProfiler> profiler;
    bool synchronous = false, told = false;
  };

  Profile(Model& model, Host& host, ProfileListener& listener);
  Status begin();
  void stretch(const char* what, uint64_t begin_ns, uint64_t end_ns) override;
  void submitting(const Plan& plan, const PlanSegment& segment) override;
  void submitted(const Plan& plan, const PlanSegment& segment, uint64_t begin_ns, uint64_t end_ns) override;
  void stepped() override;
  void host_kernel(const char* name, uint64_t begin_ns, uint64_t end_ns);
  void tell(uint32_t device, const DeviceSpan& span);
  bool find(Lane& lane, const char* name);
  Status collect(bool all);

  Model& model_;
  Host& host_;
  ProfileListener& listener_;
  std::mutex mutex_;  // for all below: kernels may report from other threads
  std::vector<Lane> lanes_;
  uint32_t submitting_ = kNowhere;  // the synchronous device that is running a list
  uint64_t lists_ = 0, dropped_ = 0;
  Status failed_;  // the first failure of a device to report
  bool on_ = false;

  static constexpr uint32_t kNowhere = UINT32_MAX;
};

}  // namespace switchyard
