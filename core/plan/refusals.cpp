// SPDX-License-Identifier: Apache-2.0
#include "core/plan/refusals.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/plan/plan.h"

namespace switchyard {
namespace {

bool same_bucket(const swy_bucket& a, const swy_bucket& b) {
  const auto key = [](const swy_bucket& x) {
    return std::tie(x.rows, x.seqs, x.logit_rows, x.sample_rows, x.context, x.pages, x.slots, x.page_size, x.flags,
                    x.seq_rows);
  };
  return key(a) == key(b);
}

}  // namespace

void Refusals::add(const Refusal& refusal) {
  const std::lock_guard lock(mutex_);
  all_[{refusal.device, refusal.kernel, refusal.op}].push_back(refusal);
  ++count_;
}

std::string Refusals::find(uint32_t device, const std::string& kernel, const std::string& op,
                           const swy_bucket* bucket) const {
  if (count_ == 0) return {};
  const std::lock_guard lock(mutex_);
  const auto known = all_.find({device, kernel, op});
  if (known == all_.end()) return {};
  for (const Refusal& r : known->second) {
    if (bucket == nullptr || same_bucket(r.bucket, *bucket)) return "dropped: it " + r.reason;
  }
  return {};
}

bool Refusals::known(uint32_t device, const std::string& kernel) const {
  const std::lock_guard lock(mutex_);
  const auto first = all_.lower_bound({device, kernel, ""});
  return first != all_.end() && std::get<0>(first->first) == device && std::get<1>(first->first) == kernel;
}

void add_refusals(const PlanNode& node, const swy_bucket& bucket, const std::string& reason,
                  std::vector<Refusal>& refusals) {
  const auto add = [&](const GraphOp& op) {
    refusals.push_back({node.device, node.kernel_name(), op.name, bucket, reason});
  };
  if (node.range == nullptr) return add(node.op);
  for (const GraphOp& op : node.range_ops) add(op);
}

std::vector<std::string> describe(const std::vector<Refusal>& refusals, const std::vector<std::string>& devices) {
  struct Group {
    std::string line, first;
    size_t more = 0;
  };
  std::vector<Group> groups;
  for (const Refusal& r : refusals) {
    std::string line = fmt::format("{} {} {}", devices[r.device], r.kernel, r.reason);
    const auto known = std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return g.line == line; });
    if (known != groups.end()) {
      ++known->more;
    } else {
      groups.push_back({std::move(line), r.op});
    }
  }
  std::vector<std::string> lines;
  for (const Group& g : groups) {
    lines.push_back(fmt::format("{} ({}{})", g.line, g.first, g.more == 0 ? "" : fmt::format(" and {} more", g.more)));
  }
  return lines;
}

}  // namespace switchyard
