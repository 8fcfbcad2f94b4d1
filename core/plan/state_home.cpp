// SPDX-License-Identifier: Apache-2.0
#include "core/plan/state_home.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <unordered_map>

#include "core/plan/cover.h"
#include "core/plan/op_shape.h"
#include "core/plan/plan_memory.h"
#include "core/program/op_names.h"

namespace switchyard {
namespace {

// Every bucket that a step within the pool can have, as far as operations on states can distinguish them.
std::vector<swy_bucket> buckets_of(const swy_bucket& pool, uint32_t max_rows) {
  std::vector<uint32_t> contexts;
  for (uint32_t c = std::min(kSmallestContextBucket, pool.context); c < pool.context;
       c = bucket_size(c + 1, pool.context)) {
    contexts.push_back(c);
  }
  contexts.push_back(pool.context);
  std::vector<swy_bucket> all;
  for (uint32_t rows = 1;; rows = bucket_size(rows + 1, max_rows)) {
    for (const uint32_t context : contexts) {
      swy_bucket b = pool;
      b.rows = rows;
      b.logit_rows = b.sample_rows = 1;
      b.context = context;
      if (rows > 1) {  // a part of one prompt
        b.seqs = 1;
        b.flags = pool.flags & ~static_cast<uint32_t>(SWY_BUCKET_DECODE);
        all.push_back(b);
      }
      if (rows > bucket_size(pool.seqs, max_rows)) continue;
      b.seqs = std::min(rows, std::max(pool.seqs, 1u));
      b.flags = pool.flags | SWY_BUCKET_DECODE;
      all.push_back(b);
    }
    if (rows >= max_rows) return all;
  }
}

// The operations that touch states, grouped by the states that they share.
class Groups {
 public:
  explicit Groups(const Graph& graph) : parent_(graph.states.size()), ops_(graph.states.size()) {
    std::iota(parent_.begin(), parent_.end(), 0u);
    for (const GraphOp& op : graph.ops) {
      for (const uint32_t s : op.states) parent_[root(s)] = root(op.states[0]);
    }
    for (const GraphOp& op : graph.ops) {
      if (!op.states.empty()) ops_[root(op.states[0])].push_back(&op);
    }
  }
  // The state that stands for a group.
  uint32_t root(uint32_t state) {
    while (parent_[state] != state) state = parent_[state] = parent_[parent_[state]];
    return state;
  }
  const std::vector<const GraphOp*>& ops(uint32_t root) const { return ops_[root]; }

 private:
  std::vector<uint32_t> parent_;                  // per state
  std::vector<std::vector<const GraphOp*>> ops_;  // per state that is a root
};

void keep_common(std::vector<uint32_t>& able, const std::vector<uint32_t>& now) {
  std::erase_if(able, [&](uint32_t d) { return std::find(now.begin(), now.end(), d) == now.end(); });
}

class Homes {
 public:
  Homes(Graph& graph, const std::vector<PlanDevice>& devices, const PlanPolicy& policy,
        const std::vector<VariantRule>& variants, std::vector<swy_bucket> buckets, const CancelCheck& cancelled)
      : graph_(graph), devices_(devices), policy_(policy), buckets_(std::move(buckets)), cancelled_(cancelled) {
    const Refusals* refusals = policy.memory == nullptr ? nullptr : &policy.memory->refusals;
    for (const swy_bucket& b : buckets_)
      matchers_.emplace_back(devices, variants, b, nullptr, refusals).drop_in_all_buckets();
    for (const PlanDevice& d : devices) ranges_.emplace_back(d);
  }

  Result<uint32_t> of(const std::vector<const GraphOp*>& ops) {
    std::vector<uint32_t> able;
    for (const GraphOp* op : ops) {
      SWY_LET(const std::vector<uint32_t>* now, able_for(*op));
      if (op == ops.front()) {
        able = *now;
      } else {
        keep_common(able, *now);
      }
      if (able.empty()) return nowhere(ops, *op);
    }
    return able.front();
  }

 private:
  // Those that can run one operation in all buckets: the same for all of one shape.
  Result<const std::vector<uint32_t>*> able_for(const GraphOp& op) {
    // Where kernels were dropped, operations of one shape may differ.
    const bool alike = policy_.memory == nullptr || policy_.memory->refusals.count() == 0;
    const auto [entry, fresh] = able_.try_emplace(shape_bytes(graph_, op) + (alike ? "" : op.name));
    std::vector<uint32_t>& able = entry->second;
    if (!fresh) return &std::as_const(able);
    std::vector<Considered> ignored;
    for (size_t b = 0; b < buckets_.size() && (b == 0 || !able.empty()); ++b) {
      SWY_TRY(check_cancelled(cancelled_, "the devices of states were chosen"));
      const std::vector<uint32_t> now = devices_for(graph_, op, devices_, policy_, matchers_[b], ranges_, ignored);
      ignored.clear();
      if (b == 0) {
        able = now;
      } else {
        keep_common(able, now);
      }
    }
    return &std::as_const(able);
  }

  // The error for a group that no device can run whole: the answers of the devices up to the operation `last`, which
  // the last device left refuses.
  Status nowhere(const std::vector<const GraphOp*>& ops, const GraphOp& last) {
    constexpr size_t kMaxReasons = 4096;  // characters
    std::string reasons;
    std::vector<Considered> considered;
    for (const GraphOp* op : ops) {
      for (const Matcher& matcher : matchers_) {
        considered.clear();
        devices_for(graph_, *op, devices_, policy_, matcher, ranges_, considered);
        for (const Considered& c : considered) {
          const std::string reason =
              fmt::format("{}{}{}: {}", c.device, c.kernel.empty() ? "" : " ", c.kernel, c.reason);
          if (c.accepted || reasons.find(reason) != std::string::npos)
            continue;  // another step size gave the same reason
          reasons += (reasons.empty() ? "" : "; ") + reason;
        }
        SWY_TRY(check_cancelled(cancelled_, "the devices of states were chosen"));
      }
      if (op == &last || reasons.size() > kMaxReasons) break;
    }
    return error(Code::unsupported, "no chosen backend can run {} ({}) in every step size: {}", last.name,
                 op_kind(last), reasons.empty() ? "no device" : reasons);
  }

  Graph& graph_;
  const std::vector<PlanDevice>& devices_;
  const PlanPolicy& policy_;
  const std::vector<swy_bucket> buckets_;
  const CancelCheck& cancelled_;
  std::deque<Matcher> matchers_;                                 // per bucket
  std::vector<RangeBackend> ranges_;                             // per device
  std::unordered_map<std::string, std::vector<uint32_t>> able_;  // by shape_bytes
};

}  // namespace

Result<std::vector<uint32_t>> state_homes(Graph& graph, const std::vector<PlanDevice>& devices,
                                          const PlanPolicy& policy, const std::vector<VariantRule>& variants,
                                          const swy_bucket& pool, uint32_t max_rows, const CancelCheck& cancelled) {
  Groups groups(graph);
  Homes homes(graph, devices, policy, variants, buckets_of(pool, max_rows), cancelled);
  std::vector<uint32_t> device(graph.states.size());
  for (uint32_t s = 0; s < device.size(); ++s) {
    const std::vector<const GraphOp*>& ops = groups.ops(s);
    if (groups.root(s) != s || ops.empty()) continue;
    SWY_LET(device[s], homes.of(ops));
  }
  for (uint32_t s = 0; s < device.size(); ++s) device[s] = device[groups.root(s)];
  return device;
}

}  // namespace switchyard
