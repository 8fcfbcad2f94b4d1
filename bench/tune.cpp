// SPDX-License-Identifier: Apache-2.0
#include "bench/tune.h"

#include <algorithm>
#include <map>
#include <set>

#include "bench/clock.h"
#include "bench/op_cases.h"
#include "core/plan/op_shape.h"

namespace switchyard::bench {
namespace {

constexpr size_t kLeastRounds = 5, kMostRounds = 100;
constexpr double kHopeless = 8;    // a kernel so many times slower is not timed again
constexpr double kEqual = 1.03;    // less than this is noise
constexpr uint32_t kFewRows = 64;  // up to which a list repeats operations, so that starting the team does not count

// The kernels of one shape at one row count.
struct Group {
  std::vector<const OpCase*> cases;
};

class Tuner {
 public:
  Tuner(std::shared_ptr<const Program> program, const std::vector<std::shared_ptr<Device>>& devices,
        const PlanPolicy& policy, const TuneRequest& request)
      : program_(std::move(program)), devices_(devices), policy_(policy), request_(request) {
    policy_.tuning = nullptr;  // compared with the backends' estimates
  }

  Result<TuneResult> run(const OpProgress& progress) {
    SWY_TRY(collect());
    for (const auto& d : devices_) {
      out_.devices.push_back(tuned_device(d->plan(), request_.threads));
      out_.devices.back().date = request_.date;
    }
    size_t total = 0, done = 0;
    for (const auto& [cases, groups] : passes_) total += groups.size();
    for (const auto& [cases, groups] : passes_) {
      for (const Group& group : groups) {
        if (!progress(done++, total)) {
          out_.interrupted = true;
          return std::move(out_);
        }
        if (const Status s = measure(*cases, group); !s.ok()) fail(group, s);
      }
    }
    if (out_.measured == 0 && !out_.failures.empty()) return first_failure_;
    return std::move(out_);
  }

 private:
  struct Pass {
    std::unique_ptr<OpCases> cases;
    std::vector<Group> groups;
  };

  // All row counts at the first depth, and attention alone at the others.
  Status collect() {
    for (size_t i = 0; i < std::max<size_t>(request_.depths.size(), 1); ++i) {
      OpRequest r;
      r.rows = i == 0 ? request_.rows : std::vector<uint32_t>{1};
      r.op = i == 0 ? request_.op : "attention";
      r.depth = request_.depths.empty() ? 0 : request_.depths[i];
      r.variants = request_.variants;
      r.load_threads = request_.load_threads;
      r.rotate_bytes = request_.rotate_bytes;
      if (i > 0 && !request_.op.empty() && request_.op != r.op) continue;
      auto cases = std::make_unique<OpCases>(program_, devices_, policy_, std::move(r));
      if (Status found = cases->collect(); !found.ok()) {
        if (i == 0) return found;
        continue;  // a model without attention
      }
      std::vector<Group> groups = groups_of(*cases);
      passes_.push_back({std::move(cases), std::move(groups)});
    }
    return {};
  }

  // Shapes that a device has one kernel for leave nothing to choose.
  static std::vector<Group> groups_of(const OpCases& cases) {
    std::vector<Group> all;
    for (const OpCase& c : cases.all()) {
      const bool same = !all.empty() && all.back().cases.front()->shape == c.shape;
      if (!same) all.emplace_back();
      all.back().cases.push_back(&c);
    }
    std::erase_if(all, [](const Group& g) { return g.cases.size() < 2; });
    return all;
  }

  struct Timed {
    const OpCase* c = nullptr;
    std::unique_ptr<OpRun> run;
    Samples samples;
    double us = 0;
  };

  static Status named(const OpCase& c, const Status& s) {
    return s.ok() ? s : error(s.code(), "{}: {}", c.kernel->name, s.message());
  }

  static TunedPoint point_of(const OpCase& c) { return {c.rows(), tuned_context(*c.graph, c.first(), c.bucket), 0}; }

  // Nothing of the group is kept: the planner decides only where it knows all kernels.
  void fail(const Group& group, const Status& why) {
    const OpCase& first = *group.cases.front();
    const TunedPoint at = point_of(first);
    if (out_.failures.empty()) first_failure_ = why;
    out_.failures.push_back({devices_[first.shape->device]->plan().name, first.op(), first.shape->text, at.rows,
                             at.context, why.message()});
  }

  Status measure(OpCases& cases, const Group& group) {
    const OpCase& first = *group.cases.front();
    const TunedPoint at = point_of(first);
    const uint64_t key = shape_hash(*first.graph, first.first());
    if (!seen_.emplace(first.shape->device, key, at.rows, at.context).second) return {};
    std::vector<Timed> all;
    for (const OpCase* c : group.cases) {
      Timed& t = all.emplace_back();
      t.c = c;
      if (hopeless(*c, group, key)) continue;
      auto run = cases.record(*c, c->bucket.rows < kFewRows ? kLeastOps : 1);
      if (!run.ok()) return named(*c, run.status());
      t.run = std::move(*run);
      SWY_TRY(named(*c, t.run->run()));
    }
    SWY_TRY(take_turns(all));
    keep(all, at, key);
    ++out_.measured;
    return {};
  }

  // Whether it lost by far at fewer rows, and the backend agrees that it will.
  bool hopeless(const OpCase& c, const Group& group, uint64_t key) const {
    const auto lost = lost_.find({c.shape->device, key, c.kernel->name});
    if (lost == lost_.end() || lost->second.rows >= c.rows()) return false;
    double least = c.estimate_us;
    for (const OpCase* other : group.cases) least = std::min(least, other->estimate_us);
    return c.estimate_us > kHopeless / 2 * least;
  }

  Status take_turns(std::vector<Timed>& all) const {
    const double begin = now(), seconds = request_.seconds * static_cast<double>(all.size());
    double best = 0;
    for (size_t round = 0; round < kMostRounds; ++round) {
      for (Timed& t : all) {
        if (t.run == nullptr || (round > 0 && t.samples.best() > kHopeless * best)) continue;
        const double start = now();
        SWY_TRY(named(*t.c, t.run->run()));
        t.samples.seconds.push_back((now() - start) / t.run->ops());
        if (best == 0 || t.samples.seconds.back() < best) best = t.samples.seconds.back();
      }
      const double spent = now() - begin;
      if ((round + 1 >= kLeastRounds && spent >= seconds) || spent >= kPatience * seconds) break;
    }
    return {};
  }

  // Puts the times into the result.
  void keep(std::vector<Timed>& all, TunedPoint at, uint64_t key) {
    Timed *best = nullptr, *estimated = nullptr;
    for (Timed& t : all) {
      const auto lost = std::tuple(t.c->shape->device, key, std::string(t.c->kernel->name));
      if (t.run != nullptr) {
        t.us = t.samples.median() * 1e6;
      } else {
        const TunedPoint& before = lost_.at(lost);
        t.us = before.us * static_cast<double>(at.rows) / static_cast<double>(before.rows);
      }
      if (best == nullptr || t.us < best->us) best = &t;
      if (estimated == nullptr || t.c->estimate_us < estimated->c->estimate_us) estimated = &t;
    }
    for (Timed& t : all) {
      const auto lost = std::tuple(t.c->shape->device, key, std::string(t.c->kernel->name));
      if (t.us > kHopeless * best->us) {
        lost_[lost] = {at.rows, at.context, t.us};
      } else {
        lost_.erase(lost);
      }
    }
    if (estimated->us < kEqual * best->us) {
      estimated->us = best->us;
    } else {
      out_.changes.push_back({devices_[best->c->shape->device]->plan().name, best->c->op(), best->c->shape->text,
                              at.rows, at.context, estimated->c->kernel->name, best->c->kernel->name, estimated->us,
                              best->us, static_cast<double>(best->c->shape->ops.size())});
    }
    for (const Timed& t : all) add(t, at, key);
  }

  void add(const Timed& t, TunedPoint at, uint64_t key) {
    at.us = t.us;
    std::vector<TunedKernel>& kernels = out_.devices[t.c->shape->device].kernels;
    for (TunedKernel& k : kernels) {
      if (k.key == key && k.kernel == t.c->kernel->name) return k.points.push_back(at);
    }
    kernels.push_back({t.c->op(), t.c->shape->text, t.c->kernel->name, key, {at}});
  }

  std::shared_ptr<const Program> program_;
  const std::vector<std::shared_ptr<Device>>& devices_;
  PlanPolicy policy_;
  const TuneRequest& request_;
  std::vector<Pass> passes_;
  std::set<std::tuple<uint32_t, uint64_t, uint64_t, uint64_t>> seen_;  // device, shape, rows, context
  std::map<std::tuple<uint32_t, uint64_t, std::string>, TunedPoint> lost_;
  TuneResult out_;
  Status first_failure_;
};

}  // namespace

Result<TuneResult> tune(std::shared_ptr<const Program> program, const std::vector<std::shared_ptr<Device>>& devices,
                        const PlanPolicy& policy, const TuneRequest& request, const OpProgress& progress) {
  return Tuner(std::move(program), devices, policy, request).run(progress);
}

}  // namespace switchyard::bench
