// SPDX-License-Identifier: Apache-2.0
// profile: swy.profile/1. Who offers it gives the spans of a submission, on a clock that maps to the host's.
#include <ctime>

#include "plugins_api/check/kit.h"
#include "plugins_api/check/suites.h"
#include "switchyard/extensions.h"

namespace switchyard::check {
namespace {

uint64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

struct Clocks {
  uint64_t host_ns = 0, ticks = 0, tick_ps = 0;
};

class Profile {
 public:
  explicit Profile(const Plugin& p) : p_(p), table_(static_cast<const swy_profile*>(p.extension(SWY_EXT_PROFILE))) {}
  Clocks correlate() const {
    Clocks c;
    PluginError e;
    e.expect_ok(table_->correlate(p_.device(), &c.host_ns, &c.ticks, &c.tick_ps, e.get()), "correlate");
    return c;
  }
  void enable(bool on) const {
    PluginError e;
    e.expect_ok(table_->enable(p_.device(), on ? 1 : 0, e.get()), "enable");
  }
  std::vector<swy_profile_span> collect(uint32_t capacity) const {
    std::vector<swy_profile_span> spans(capacity + 1);
    uint32_t count = capacity;
    PluginError e;
    e.expect_ok(table_->collect(p_.device(), spans.data(), &count, e.get()), "collect");
    if (count > capacity) throw Failure(text("collect wrote ", count, " spans where ", capacity, " fit"));
    spans.resize(count);
    return spans;
  }

 private:
  const Plugin& p_;
  const swy_profile* table_;
};

bool is_range(const std::string& name) { return name == SWY_EXT_RANGE || name == SWY_EXT_RANGE_2; }

// "moe_add.sorted/combine" is a launch of moe_add.sorted.
std::string kernel_of(const swy_profile_span& s) {
  const std::string name = s.kernel == nullptr ? "" : s.kernel;
  return is_range(name) ? name : name.substr(0, name.find('/'));
}

bool known(const Plugin& p, const std::string& name) {
  for (const swy_kernel* k : p.kernels()) {
    if (name == k->name) return true;
  }
  return is_range(name);
}

// Spans of a submission of `mine` between two instants.
std::string judge(const Plugin& p, const std::vector<swy_profile_span>& spans, const std::string& mine,
                  const Clocks& before, const Clocks& after) {
  constexpr uint64_t kSlackPs = 10'000'000;  // a clock may go in steps
  const uint64_t slack = before.tick_ps == 0 ? 0 : kSlackPs / before.tick_ps;
  bool there = false;
  uint64_t last = 0;
  for (const swy_profile_span& s : spans) {
    const std::string kernel = kernel_of(s);
    if (!known(p, kernel)) return text("a span is named '", kernel, "', which is no kernel");
    there = there || kernel == mine;
    if (s.end_ticks < s.begin_ticks) return text("a span of ", kernel, " ends before it begins");
    if (s.begin_ticks + slack < last) return text("a span of ", kernel, " begins before the one ahead of it");
    last = s.begin_ticks;
    if (s.begin_ticks + slack < before.ticks || s.end_ticks > after.ticks + slack) {
      return text("a span of ", kernel, " lies outside the time of its submission");
    }
  }
  return there ? "" : text("of ", spans.size(), " spans none is of ", mine, ", which ran");
}

std::string spans(const Kit& kit, const Check& check) {
  const Plugin& p = kit.plugin();
  const Profile profile(p);
  const Case c = kit.build(check);
  std::string problem;
  profile.enable(true);
  {
    Execution recorded_now(p, *check.kernel, c);
    const Clocks before = profile.correlate();
    recorded_now.run(c);
    const Clocks after = profile.correlate();
    problem = judge(p, profile.collect(4096), check.kernel->name, before, after);
    if (problem.empty() && !profile.collect(4096).empty()) problem = "spans are given twice";
    if (problem.empty()) {
      recorded_now.run(c);
      if (profile.collect(1).size() > 1) problem = "more spans are given than fit";
    }
  }
  profile.enable(false);
  profile.collect(4096);
  Execution(p, *check.kernel, c).run(c);
  if (problem.empty() && !profile.collect(4096).empty()) problem = "spans come in though timestamps are off";
  return problem.empty() ? "" : kit.line(check, problem);
}

std::string clocks_agree(const Profile& profile) {
  const uint64_t begin = now_ns();
  const Clocks a = profile.correlate();
  const timespec pause{0, 100'000'000};
  nanosleep(&pause, nullptr);
  const Clocks b = profile.correlate();
  if (a.host_ns + 1'000'000 < begin || b.host_ns > now_ns() + 1'000'000) return "host_ns is not CLOCK_MONOTONIC";
  if (a.tick_ps == 0 || a.tick_ps != b.tick_ps) return "the length of a tick is 0, or changes";
  const double host = static_cast<double>(b.host_ns - a.host_ns);
  const double device = static_cast<double>(b.ticks - a.ticks) * static_cast<double>(a.tick_ps) / 1000;
  return device > 0.8 * host && device < 1.25 * host
             ? ""
             : text("in ", host, " ns of the host the device counts ", device, " ns");
}

// One of three times is enough: between the two clocks of a correlation the thread may lose the processor.
std::string clocks(const Kit& kit) {
  const Profile profile(kit.plugin());
  std::string problem;
  for (int i = 0; i < 3; ++i) {
    problem = clocks_agree(profile);
    if (problem.empty()) break;
  }
  return problem;
}

std::vector<Task> list(Session& session, std::vector<Refusal>* refusals) {
  Kit& kit = session.kit();
  if (kit.plugin().extension(SWY_EXT_PROFILE) == nullptr) {
    refusals->push_back({"spans", "the plugin has no " SWY_EXT_PROFILE, {}});
    return {};
  }
  std::vector<Task> tasks = {{"clocks", [&kit] { return clocks(kit); }, {}}};
  for (const Check& c : sample_of(kit.claims(), kit.request().seed, {{1, 130}})) {
    tasks.push_back({c.name(), [&kit, c] { return spans(kit, c); }, {}});
  }
  return tasks;
}

}  // namespace

const Suite kProfileSuite = {"profile", "swy.profile/1: spans of submissions, clocks", true, false, {}, list};

}  // namespace switchyard::check
