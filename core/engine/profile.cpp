// SPDX-License-Identifier: Apache-2.0
#include "core/engine/profile.h"

#include <cstring>

namespace switchyard {

Profile::Profile(Model& model, Host& host, ProfileListener& listener)
    : model_(model), host_(host), listener_(listener), lanes_(model.devices().size()) {}

Result<std::unique_ptr<Profile>> Profile::start(Model& model, Host& host, ProfileListener& listener) {
  std::unique_ptr<Profile> p(new Profile(model, host, listener));
  SWY_TRY(p->begin());
  return p;
}

Profile::~Profile() { (void)stop(); }

Status Profile::begin() {
  model_.runner().drain();
  bool anew = false;
  for (uint32_t d = 0; d < lanes_.size(); ++d) {
    const PlanDevice& device = model_.devices()[d];
    lanes_[d].synchronous = (device.info.flags & SWY_DEVICE_SYNCHRONOUS) != 0;
    if (!model_.used_devices().contains(d) || !DeviceProfiler::offered(device)) continue;
    SWY_LET(lanes_[d].profiler,
            DeviceProfiler::start(Os::real(), device, [this, d](const DeviceSpan& span) { tell(d, span); }));
    anew = true;
  }
  if (anew) model_.forget_lists();
  host_.set_trace([](void* ctx, const char* name, uint64_t begin_ns,
                     uint64_t end_ns) { static_cast<Profile*>(ctx)->host_kernel(name, begin_ns, end_ns); },
                  this);
  model_.observe(this);
  on_ = true;
  return {};
}

Status Profile::stop() {
  if (!on_) return failed_;
  on_ = false;
  model_.observe(nullptr);
  model_.runner().drain();  // until then kernels may report
  host_.set_trace(nullptr, nullptr);
  if (Status s = collect(true); !s.ok() && failed_.ok()) failed_ = std::move(s);
  bool anew = false;
  for (Lane& lane : lanes_) {
    anew |= lane.profiler != nullptr;
    if (lane.profiler != nullptr) dropped_ += lane.profiler->dropped();
    lane.profiler.reset();
    lane.lists.clear();
  }
  if (anew) model_.forget_lists();
  return failed_;
}

std::vector<std::string> Profile::blind() const {
  std::vector<std::string> names;
  for (const uint32_t d : model_.used_devices()) {
    if (!lanes_[d].told) names.push_back(model_.devices()[d].name);
  }
  return names;
}

void Profile::stretch(const char* what, uint64_t begin_ns, uint64_t end_ns) {
  const std::lock_guard lock(mutex_);
  listener_.stretch(what, begin_ns, end_ns);
}

void Profile::submitting(const Plan& plan, const PlanSegment& segment) {
  const std::lock_guard lock(mutex_);
  Lane& lane = lanes_[segment.device];
  if (lane.synchronous) {
    submitting_ = segment.device;
    lane.lists.clear();
  }
  constexpr size_t kMost = 1024;  // a device that reports nothing is not waited for
  if (lane.lists.size() == kMost) lane.lists.pop_front();
  lane.lists.push_back({++lists_, &plan, segment.begin, segment.end});
}

void Profile::submitted(const Plan& plan, const PlanSegment& segment, uint64_t begin_ns, uint64_t end_ns) {
  const std::lock_guard lock(mutex_);
  submitting_ = kNowhere;
  listener_.submitted(lists_, plan, segment, begin_ns, end_ns);
}

void Profile::stepped() {
  if (Status s = collect(false); !s.ok() && failed_.ok()) failed_ = std::move(s);
}

Status Profile::collect(bool all) {
  Status first;
  for (Lane& lane : lanes_) {
    if (lane.profiler == nullptr) continue;
    if (Status s = lane.profiler->collect(all); !s.ok() && first.ok()) first = std::move(s);
  }
  return first;
}

// The expected kernel of the synchronous device that is running a list; otherwise of an asynchronous device that
// expects a kernel of this name.
void Profile::host_kernel(const char* name, uint64_t begin_ns, uint64_t end_ns) {
  uint32_t device = kNowhere;
  {
    const std::lock_guard lock(mutex_);
    device = submitting_;
    for (uint32_t d = 0; d < lanes_.size() && device == kNowhere; ++d) {
      if (!lanes_[d].synchronous && lanes_[d].profiler == nullptr && !lanes_[d].lists.empty()) device = d;
    }
  }
  if (device != kNowhere) tell(device, {name, begin_ns, end_ns});
}

void Profile::tell(uint32_t device, const DeviceSpan& span) {
  const std::lock_guard lock(mutex_);
  Lane& lane = lanes_[device];
  lane.told = true;
  KernelSpan k{device, span.kernel, 0, nullptr, nullptr, span.begin_ns, span.end_ns};
  if (find(lane, span.kernel)) {
    k.list = lane.current.list;
    k.plan = lane.current.plan;
    k.node = lane.node;
  }
  listener_.kernel(k);
}

// Finds the operation that a kernel of this name belongs to. For a further launch, that of the previous launch;
// otherwise the next expected one. Operations without a launch are skipped.
bool Profile::find(Lane& lane, const char* name) {
  const auto kernel_of = [](const PlanNode& n) { return n.kernel_name(); };
  if (lane.node != nullptr) {
    const char* of = kernel_of(*lane.node);
    const size_t n = std::strlen(of);
    if (std::strncmp(name, of, n) == 0 && name[n] == '/') return true;
  }
  for (size_t l = 0; l < lane.lists.size(); ++l) {
    for (Expected e = lane.lists[l]; e.next < e.end; ++e.next) {
      const PlanNode& node = e.plan->nodes[e.next];
      if (std::strcmp(kernel_of(node), name) != 0) continue;
      lane.node = &node;
      ++e.next;
      lane.current = e;
      lane.lists.erase(lane.lists.begin(), lane.lists.begin() + static_cast<ptrdiff_t>(l));
      lane.lists.front() = e;
      return true;
    }
  }
  return false;
}

}  // namespace switchyard
