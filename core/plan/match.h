// SPDX-License-Identifier: Apache-2.0
// Match: asks the kernels of devices about one operation.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/plan/plan.h"
#include "core/plan/refusals.h"
#include "core/plan/tuning.h"

namespace switchyard {

struct Match {
  const swy_kernel* kernel = nullptr;
  double cost_us = 0;                  // the least estimate of all kernels that can, also where a tuned one was chosen
  std::string source;                  // PlanNode::source
  std::vector<uint32_t> weights = {};  // that the kernel reads, where some are decoded; empty: the operation's own
};

class Matcher {
 public:
  // `tuning` decides between the kernels of a device, unless it is NULL or the bucket is deterministic. Kernels that
  // `refusals` names for this bucket do not count.
  Matcher(const std::vector<PlanDevice>& devices, const std::vector<VariantRule>& variants, const swy_bucket& bucket,
          const Tuning* tuning = nullptr, const Refusals* refusals = nullptr);
  // From now on, neither do those that `refusals` names for any bucket.
  void drop_in_all_buckets() { any_bucket_ = true; }

  // The cheapest kernel of a device for `op`: as measured if all candidates were, otherwise as estimated. Every answer
  // is appended to `considered`, with the description `as`.
  std::optional<Match> best(const Graph& graph, const GraphOp& op, uint32_t device, const std::string& as,
                            std::vector<Considered>& considered) const;

  // Whether a kernel that was chosen takes the operation as `view` describes it, too.
  bool supports(uint32_t device, const swy_kernel& kernel, const OpView& view) const;

  // The kernels that --variant forces for operations of this name ("a, b"); empty: none. A forced operation is neither
  // decomposed nor run as a part of something larger, and a forced fused composite or range is formed where it can be.
  std::string forced(const std::string& op) const;
  // Why --variant rules `kernel` out for operations of this name; empty: it does not.
  std::string ruled_out(const std::string& op, const std::string& kernel) const;

  // Why the kernel or range is not used for the operation of this name, since it refused when it was prepared or
  // recorded; empty: it did not.
  std::string dropped(uint32_t device, const std::string& kernel, const std::string& op) const;

  const swy_bucket& bucket() const { return bucket_; }
  const std::string& device_name(uint32_t device) const { return devices_[device].name; }

 private:
  void choose_tuned(const Graph& graph, const GraphOp& op, uint32_t device, std::span<Considered> answers,
                    Match& best) const;
  std::string refuse(const PlanDevice& device, const swy_kernel& kernel, const GraphOp& op, OpView& view) const;
  void ask(const PlanDevice& device, const swy_kernel& kernel, const Graph& graph, const GraphOp& op,
           Considered& answer) const;
  std::vector<uint32_t> ask_decoded(const PlanDevice& device, const swy_kernel& kernel, const Graph& graph,
                                    const GraphOp& op, Considered& answer) const;

  const std::vector<PlanDevice>& devices_;
  const std::vector<VariantRule>& variants_;
  const swy_bucket& bucket_;
  std::vector<const TunedDevice*> tuned_;  // per device; empty or NULL: estimates decide
  const Refusals* refusals_;
  bool any_bucket_ = false;
};

// Whether a kernel is for this operation, by its id or name.
bool serves(const swy_kernel& kernel, const GraphOp& op);
// Whether ranges of the device may be offered the operation: whether it says nothing that the first headers did not
// have, or else some kernel of the device knows its revision and names the encodings of all its weights.
bool is_known(const PlanDevice& device, const Graph& graph, const GraphOp& op);

// Whether some kernel of the device is for it, whatever it answers.
bool is_announced(const PlanDevice& device, const GraphOp& op);

// NULL: the device announces no kernel of that name for `op`.
const swy_kernel* kernel_named(const PlanDevice& device, swy_op_id op, const std::string& name);

// The type in which a kernel takes or produces an activation that the program declares as `declared`: that type if the
// mask allows it (an empty mask allows all), otherwise the other one.
swy_dtype preferred_dtype(swy_dtype declared, uint32_t mask);
// Sets the view's activation types to those of the kernel.
void set_kernel_dtypes(const swy_kernel& kernel, OpView& view);

}  // namespace switchyard
