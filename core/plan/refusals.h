// SPDX-License-Identifier: Apache-2.0
// Refusals: kernels and ranges that were chosen, and then said in `prepare`, `compile` or `record` that they cannot.
// Later plans for the same bucket go on without them.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "switchyard/plugin.h"

namespace switchyard {

struct PlanNode;

struct Refusal {
  uint32_t device = 0;
  std::string kernel;  // or the extension of a range
  std::string op;      // GraphOp::name; a range has a refusal for each of its operations
  swy_bucket bucket{};
  std::string reason;  // "refused in prepare: no such tile"
};

// [thread-safe]
class Refusals {
 public:
  void add(const Refusal& refusal);
  // Why this kernel is not used for the operation of that name; empty: nothing is known against it. `bucket` NULL: in
  // any bucket.
  std::string find(uint32_t device, const std::string& kernel, const std::string& op, const swy_bucket* bucket) const;
  // Whether this kernel of this device has refused anything.
  bool known(uint32_t device, const std::string& kernel) const;
  // Counts up with every refusal that is added.
  size_t count() const { return count_; }

 private:
  using Key = std::tuple<uint32_t, std::string, std::string>;
  mutable std::mutex mutex_;
  std::map<Key, std::vector<Refusal>> all_;
  std::atomic<size_t> count_ = 0;
};

// That a node refused.
void add_refusals(const PlanNode& node, const swy_bucket& bucket, const std::string& reason,
                  std::vector<Refusal>& refusals);

// One line for the log for each kernel: "cpu:0 linear.tiles refused in prepare: no such tile (layers.0.q and 3 more)".
std::vector<std::string> describe(const std::vector<Refusal>& refusals, const std::vector<std::string>& devices);

}  // namespace switchyard
