// SPDX-License-Identifier: Apache-2.0
// Plan: which kernel of which device runs every operation of a graph, for one bucket of step sizes, and where every
// value lies.
//
// An operation that has a name stays one where a kernel of the chosen backends takes it; elsewhere the operations of
// its function take its place (expand.h). The planner covers the graph with ranges, fused composites, composites and
// primitives (dynamic programming over the cost that backends estimate plus the cost of copies), inserts casts and
// copies, and lays values out by liveness in one arena per device. After planning nothing allocates.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/cancel.h"
#include "core/base/status.h"
#include "core/plan/graph.h"
#include "core/plugin/device.h"
#include "switchyard/extensions.h"
#include "switchyard/plugin.h"

namespace switchyard {

class RangeCode;
struct Refusal;

// "op=kernel" forces a variant, "op=!kernel" forbids one. The op "range" stands for claims, whose kernel is
// "swy.range/1" or "swy.range/2".
struct VariantRule {
  std::string op;
  std::string kernel;
  bool forbid = false;
};
Result<VariantRule> parse_variant_rule(const std::string& text);

// Bucket sizes are the powers of two up to a limit, and the limit.
uint32_t bucket_size(uint32_t n, uint32_t limit);
inline constexpr uint32_t kSmallestContextBucket = 256;

struct StepCounts {
  uint32_t rows = 1, seqs = 1, logit_rows = 1;
  uint32_t sample_rows = 0;
  uint32_t context = 0;  // tokens of the longest sequence after the step
};
// The smallest bucket of the pool that takes such a step.
swy_bucket bucket_of(const StepCounts& counts, const swy_bucket& pool, uint32_t max_rows);

// One operation of the plan. A copy between devices is a node of its own with `copy_from` set.
struct PlanNode {
  GraphOp op;  // indices into Plan::graph
  uint32_t device = 0;
  const swy_kernel* kernel = nullptr;
  swy_prepared prepared{};
  bool head = false;   // produces logits, or samples from them
  int copy_from = -1;  // device that a copy reads from
  // A range: the operations that it covers; `op` then lists what crosses its border.
  const char* range = nullptr;  // the extension that claims it
  std::vector<GraphOp> range_ops;
  std::vector<uint32_t> range_kept;  // values that they produce and others read
  std::vector<uint32_t> range_layouts;
  std::shared_ptr<RangeCode> range_code;  // of swy.range/2
  double cost_us = 0;
  std::string source;  // of the choice between kernels: "estimate", "tuned 2026-11-21", "forced"; of a range "claimed"

  const char* kernel_name() const { return kernel != nullptr ? kernel->name : range; }  // NULL for a copy
};

struct PlanDecision {
  std::string op;       // name of the program's operation
  std::string op_kind;  // "attention"
  std::string chosen;   // "cpu:0 attention.flash"; for a decomposition, every piece
  std::string reason;
  std::string source;  // PlanNode::source; of several nodes that differ, all
  std::vector<Considered> considered;
  std::vector<std::string> moves;  // the casts and copies that its operands needed: "copy x from cpu:0 to cuda:0"
};

// Where a value lies on a device.
struct Placement {
  uint32_t value = 0;
  uint32_t device = 0;
  uint64_t offset = 0;  // in the device's arena
  uint64_t bytes = 0;
};

// Consecutive nodes of one device, recorded as one command list; or one copy.
struct PlanSegment {
  uint32_t begin = 0, end = 0;  // nodes
  uint32_t device = 0;          // of a copy: the one that it writes to
  bool head = false;            // belongs to a head that is submitted apart
  bool copy = false;
  std::vector<uint32_t> waits = {};  // earlier segments that it reads from, except lists of its own device
  bool signals = false;              // a later segment waits for it
};

// Whether a step's head is in the same lists as the operations before it, or in lists of its own. The latter is for
// steps whose masks the host makes meanwhile, and for steps without the head.
enum class HeadLists { joined, apart };

struct Plan {
  Graph graph;  // the program's, with the temporaries, casts and copies that planning added
  swy_bucket bucket{};
  HeadLists head_lists = HeadLists::joined;
  std::vector<std::string> device_names;
  std::vector<PlanNode> nodes;
  std::vector<PlanSegment> segments;
  std::vector<Placement> placements;
  std::vector<uint64_t> arena_bytes;       // per device
  std::vector<uint64_t> workspace_offset;  // per node, in its device's arena
  std::vector<uint32_t> state_device;      // per state
  std::vector<PlanDecision> decisions;
  std::vector<std::string> warnings;

  const Placement* find(uint32_t value, uint32_t device) const;
  size_t casts() const;
  size_t copies() const;
};

class Planner {
 public:
  // Chooses the device of every state: one that runs all operations on it in every bucket up to `max_rows` rows and the
  // pool's context and sequences. `pool` gives the pool's pages, slots and page size, too. Errors: usage, for a variant
  // that no device has; unsupported, with the operation and each device's answer; cancelled, here and in `plan`,
  // when `cancelled` returns true.
  static Result<Planner> create(Graph graph, std::vector<PlanDevice> devices, PlanPolicy policy,
                                std::vector<VariantRule> variants, const swy_bucket& pool, uint32_t max_rows,
                                CancelCheck cancelled = {});

  // [thread-safe] A plan for steps within `bucket` that produces `results`, a subset of the graph's. It contains only
  // the operations of the head (logits and sampling) that these need. Steps without sampled rows must not ask for
  // samples. A kernel or range that is chosen and then refuses to be prepared is dropped, and the step planned again.
  Result<Plan> plan(const swy_bucket& bucket, std::span<const uint32_t> results,
                    HeadLists head_lists = HeadLists::joined) const;
  // All results that a step of this bucket can have.
  Result<Plan> plan(const swy_bucket& bucket, HeadLists head_lists = HeadLists::joined) const;

  // [thread-safe] Plans from now on go without these kernels and ranges, which refused. Logs them.
  void drop(const std::vector<Refusal>& refused) const;

  const Graph& graph() const { return graph_; }
  const std::vector<PlanDevice>& devices() const { return devices_; }
  const std::vector<uint32_t>& state_device() const { return state_device_; }

 private:
  Planner() = default;
  Status home_states(const swy_bucket& pool, uint32_t max_rows);

  Graph graph_;
  std::vector<PlanDevice> devices_;
  PlanPolicy policy_;
  std::vector<VariantRule> variants_;
  std::vector<uint32_t> state_device_;
  CancelCheck cancelled_;
};

// `switchyard plan --explain`. As JSON: explain_json.h.
std::string explain_text(const Plan& plan, bool considered);

}  // namespace switchyard
