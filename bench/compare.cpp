// SPDX-License-Identifier: Apache-2.0
#include "bench/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "bench/report_grids.h"
#include "bench/statistics.h"
#include "bench/text.h"

namespace switchyard::bench {
namespace {

constexpr int kRatios = 2000;
constexpr size_t kMostUsed = 4096;  // samples of one cell
constexpr double kSameProbe = 0.1;  // by which a machine's rates may differ from one day to the next
constexpr double kRounding = 1e-6;  // below it a KL, or an operation's error, is rounding
constexpr double kGrowth = 1.5;     // of either that is no accident

// Seconds per token, of at most kMostUsed samples.
std::vector<double> times_of(const Cell& cell) {
  std::vector<double> times;
  const size_t step = cell.samples.size() / kMostUsed + 1;
  for (size_t i = 0; i < cell.samples.size(); i += step) times.push_back(cell.samples[i] / cell.tokens);
  return times;
}

// The median of samples drawn again. Neighbours are drawn together, since they often share a disturbance.
class Resampler {
 public:
  explicit Resampler(std::vector<double> from)
      : from_(std::move(from)),
        block_(std::max<size_t>(1, static_cast<size_t>(std::cbrt(static_cast<double>(from_.size()))))) {}
  double median() const { return median_of(from_); }
  double draw(std::mt19937_64& random) {
    drawn_.clear();
    while (drawn_.size() < from_.size()) {
      const size_t at = random() % from_.size();
      for (size_t i = 0; i < block_ && drawn_.size() < from_.size(); ++i) {
        drawn_.push_back(from_[(at + i) % from_.size()]);
      }
    }
    return median_of(drawn_);
  }

 private:
  std::vector<double> from_, drawn_;
  size_t block_;
};

RateChange change_of(const std::string& name, const Cell& before, const Cell& after, double threshold) {
  Resampler a(times_of(before)), b(times_of(after));
  RateChange c{name, before.metric, before.at, 1 / a.median(), 1 / b.median()};
  c.ratio = c.after / c.before;
  std::mt19937_64 random(20240229);
  std::vector<double> ratios;
  for (int i = 0; i < kRatios; ++i) {
    const double old_time = a.draw(random);
    ratios.push_back(old_time / b.draw(random));
  }
  std::sort(ratios.begin(), ratios.end());
  const auto outside = static_cast<size_t>(kOutside * kRatios);
  c.low = std::min(ratios[outside], c.ratio);
  c.high = std::max(ratios[kRatios - 1 - outside], c.ratio);
  c.verdict = c.low > 1 ? Verdict::faster : c.high < 1 ? Verdict::slower : Verdict::no_difference;
  c.regressed = c.verdict == Verdict::slower && c.ratio < 1 - threshold;
  return c;
}

bool grew(double before, double after) {
  if (!std::isfinite(after)) return std::isfinite(before);
  return after > before * kGrowth && after > before + kRounding;
}

class Comparer {
 public:
  Comparer(const Report& before, const Report& after, double threshold) : before_(before), after_(after) {
    changes_.threshold = threshold;
  }

  ReportChanges run() {
    compare_settings();
    for (const Configuration& a : before_.configurations) {
      const Configuration* b = after_.configuration(a.name);
      if (b == nullptr) {
        changes_.missing.push_back(a.name + ": only in the old report");
      } else {
        compare(a, *b);
      }
    }
    for (const Configuration& b : after_.configurations) {
      if (before_.configuration(b.name) == nullptr) changes_.missing.push_back(b.name + ": only in the new report");
    }
    return std::move(changes_);
  }

 private:
  void warn(const char* what, const std::string& a, const std::string& b) {
    if (a != b) changes_.warnings.push_back(fmt::format("{}: {} before, {} now", what, or_dash(a), or_dash(b)));
  }
  void warn(const char* what, uint64_t a, uint64_t b) { warn(what, fmt::format("{}", a), fmt::format("{}", b)); }

  void compare_settings() {
    warn("another processor", before_.machine.processor, after_.machine.processor);
    warn("another number of processors", before_.machine.cpus, after_.machine.cpus);
    warn("another kernel", before_.machine.kernel, after_.machine.kernel);
    warn("another number of threads", before_.probes.threads, after_.probes.threads);
    warn("another model", before_.model.name, after_.model.name);
    warn("another quantization", before_.model.quantization, after_.model.quantization);
    warn("another number of layers", before_.model.layers, after_.model.layers);
    warn("another number of parameters", before_.model.parameters, after_.model.parameters);
    warn("another context", before_.model.context, after_.model.context);
    warn("other prompts", before_.prompt, after_.prompt);
    const double a = before_.probes.read_gbs, b = after_.probes.read_gbs;
    if (std::isfinite(a) && std::isfinite(b) && std::abs(a - b) > kSameProbe * std::max(a, b)) {
      changes_.warnings.push_back(fmt::format(
          "memory was read at {} GB/s before, at {} now: the machine was not as free", rate_text(a), rate_text(b)));
    }
  }

  void compare(const Configuration& a, const Configuration& b) {
    const auto differ = [&](const char* what, const std::string& x, const std::string& y) {
      warn(fmt::format("{}: {}", a.name, what).c_str(), x, y);
    };
    differ("other threads", fmt::format("{}", a.threads), fmt::format("{}", b.threads));
    differ("another sampling path", a.sampling, b.sampling);
    differ("another quantization", a.quantization, b.quantization);
    differ("another batch", fmt::format("{}", a.batch), fmt::format("{}", b.batch));
    differ("other devices", fmt::format("{}", fmt::join(a.devices, ", ")),
           fmt::format("{}", fmt::join(b.devices, ", ")));
    compare_states(a.name, "all", {a.state, a.reason, ""}, {b.state, b.reason, ""});
    for (const Cell& cell : a.cells) compare(a.name, cell, b.cell(cell.metric, cell.at));
    for (const Cell& cell : b.cells) {
      if (a.cell(cell.metric, cell.at) == nullptr) miss(a.name, cell, "only in the new report");
    }
    compare_correctness(a, b);
  }

  struct Ended {
    State state;
    std::string reason, value;
    std::string text() const { return state == State::measured ? or_dash(value) : failure_text(state, reason); }
  };

  void compare_states(const std::string& name, const std::string& what, const Ended& a, const Ended& b) {
    if (a.state == b.state) return;
    // The user stopped it: not a fault of the measured backend.
    const bool regressed = a.state == State::measured && b.state != State::interrupted;
    changes_.others.push_back({name, what, a.text(), b.text(), regressed});
  }

  void miss(const std::string& name, const Cell& cell, const std::string& why) {
    changes_.missing.push_back(fmt::format("{}, {}: {}", name, cell_name(cell.metric, cell.at), why));
  }

  void compare(const std::string& name, const Cell& a, const Cell* b) {
    if (b == nullptr) return miss(name, a, "only in the old report");
    const auto rate = [](const Cell& c) { return c.rate ? rate_text(c.rate->median) + " tok/s" : "measured"; };
    compare_states(name, cell_name(a.metric, a.at), {a.state, a.reason, rate(a)}, {b->state, b->reason, rate(*b)});
    if (a.state != State::measured || b->state != State::measured) return;
    if (a.samples.size() < kFewestSamples || b->samples.size() < kFewestSamples) {
      return miss(name, a,
                  fmt::format("{} and {} samples are too few to compare", a.samples.size(), b->samples.size()));
    }
    changes_.rates.push_back(change_of(name, a, *b, changes_.threshold));
  }

  void compare_correctness(const Configuration& a, const Configuration& b) {
    if (!a.correctness || !b.correctness) {
      if (a.correctness) changes_.missing.push_back(a.name + ", correctness: only in the old report");
      return;
    }
    const Correctness &x = *a.correctness, &y = *b.correctness;
    compare_states(a.name, "correctness", {x.state, x.reason, "measured"}, {y.state, y.reason, "measured"});
    if (x.state != State::measured || y.state != State::measured) return;
    const auto kl = [&](const char* what, double before, double after) {
      changes_.others.push_back({a.name, what, small_text(before), small_text(after), grew(before, after)});
    };
    kl("KL mean", x.kl_mean, y.kl_mean);
    kl("KL worst", x.kl_worst, y.kl_worst);
    const double position = 1.0 / static_cast<double>(std::max<uint64_t>(std::min(x.positions, y.positions), 1));
    const bool fell = std::isnan(y.top1) ? !std::isnan(x.top1) : y.top1 < x.top1 - 1.001 * position;
    changes_.others.push_back({a.name, "top-1", percent_text(x.top1), percent_text(y.top1), fell});
    compare_operations(a.name, x, y);
  }

  void compare_operations(const std::string& name, const Correctness& x, const Correctness& y) {
    for (const OpError& now : y.ops) {
      const auto before = std::find_if(x.ops.begin(), x.ops.end(),
                                       [&](const OpError& e) { return e.op == now.op && e.kernel == now.kernel; });
      const bool was_over = before != x.ops.end() && over_budget(*before);
      const bool worse = before != x.ops.end() && grew(before->worst_row, now.worst_row);
      if (!over_budget(now) && !was_over && !worse) continue;
      const std::string old = before == x.ops.end() ? "-" : small_text(before->worst_row);
      changes_.others.push_back({name, "error of " + (now.kernel.empty() ? now.op : now.kernel), old,
                                 small_text(now.worst_row), worse || (over_budget(now) && !was_over)});
    }
  }

  const Report &before_, &after_;
  ReportChanges changes_;
};

}  // namespace

size_t ReportChanges::regressions() const {
  const auto regressed = [](const auto& c) { return c.regressed; };
  return static_cast<size_t>(std::count_if(rates.begin(), rates.end(), regressed) +
                             std::count_if(others.begin(), others.end(), regressed));
}

ReportChanges compare_reports(const Report& before, const Report& after, double threshold) {
  return Comparer(before, after, threshold).run();
}

}  // namespace switchyard::bench
