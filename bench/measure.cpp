#include "bench/measure.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "core/engine/profile.h"

namespace switchyard::bench {
namespace {

constexpr uint32_t kWarmTokens = 4;
constexpr uint32_t kWatchedTokens = 16;  // and as many with kernels traced
static_assert(kDecodeExtra == kWarmTokens + 2 * kWatchedTokens);

using Step = std::function<Status()>;

Status timed(const Step& step, double& seconds) {
  const uint64_t begin = Os::real().now_ns();
  Status status = step();
  seconds = static_cast<double>(Os::real().now_ns() - begin) / 1e9;
  return status;
}

Status sample(const Step& step, uint32_t count, const KeepGoing& keep_going, Samples& samples) {
  for (uint32_t i = 0; i < count; ++i) {
    if (!keep_going()) return error(Code::cancelled, "the benchmark was stopped");
    SWY_TRY(timed(step, samples.seconds.emplace_back()));
  }
  return {};
}

// While it lives, lists and barriers are counted.
class Watch {
 public:
  Watch(Model& model, Host& host, SubmitCounts& submits, TeamCounts& team) : model_(model), host_(host) {
    model.watch(&submits);
    host.watch(&team);
  }
  ~Watch() {
    model_.watch(nullptr);
    host_.watch(nullptr);
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  Model& model_;
  Host& host_;
};

Status watch(Model& model, Host& host, const Step& step, uint32_t steps, Overhead& o) {
  SubmitCounts submits;
  TeamCounts team;
  const Watch watch(model, host, submits, team);
  const uint64_t cpu = thread_cpu_ns(), begin = Os::real().now_ns();
  for (uint32_t i = 0; i < steps; ++i) SWY_TRY(step());
  const uint64_t end = Os::real().now_ns(), own = thread_cpu_ns() - cpu;
  o.seconds = static_cast<double>(end - begin) / 1e9 / steps;
  o.core_seconds = static_cast<double>(own - std::min(own, submits.cpu_ns)) / 1e9 / steps;
  o.wait_seconds = static_cast<double>(team.waited_ns + submits.wait_ns) / 1e9 / steps;
  o.lists = static_cast<double>(submits.lists) / steps;
  o.barriers = static_cast<double>(team.barriers) / steps;
  return {};
}

// Adds up kernels; the launches of one operation count as one call of its kernel.
class KernelTable final : public ProfileListener {
 public:
  explicit KernelTable(std::map<std::string, KernelTime>& kernels) : kernels_(kernels) {}
  void kernel(const KernelSpan& span) override {
    const bool further =
        span.node != nullptr && span.node->kernel != nullptr && std::string_view(span.name) != span.node->kernel->name;
    KernelTime& k = kernels_[further ? span.node->kernel->name : span.name];
    k.calls += further ? 0 : 1;
    k.seconds += static_cast<double>(span.end_ns - span.begin_ns) / 1e9;
  }

 private:
  std::map<std::string, KernelTime>& kernels_;
};

Status trace(Model& model, Host& host, const Step& step, uint32_t steps, Measurement& m) {
  KernelTable table(m.kernels);
  SWY_LET(const auto profile, Profile::start(model, host, table));
  for (m.kernel_steps = 0; m.kernel_steps < steps; ++m.kernel_steps) SWY_TRY(step());
  return profile->stop();
}

// Requests that draw a token each per step.
class Drawer {
 public:
  // Where ways take turns, none may have a step under way during another's.
  Drawer(Model& model, bool alone) : model_(model), batch_(model, {.run_ahead = alone}) {}

  // All but the last token of the prompt are fed here, so that afterwards every step is alike.
  Status add(std::span<const int32_t> prompt, const SamplingParams& sampling, std::optional<SamplingPath> path,
             uint32_t tokens) {
    SWY_LET(auto session, model_.session());
    Request request;
    request.history.assign(prompt.begin(), prompt.end() - 1);
    request.prompt = {prompt.back()};
    if (!request.history.empty()) SWY_TRY(session->feed(request.history).status());
    request.max_tokens = tokens;
    request.sampling = sampling;
    request.path = path;
    SWY_LET(ids_.emplace_back(), batch_.add(*session, std::move(request)));
    sessions_.push_back(std::move(session));
    return {};
  }
  Status step() {
    SWY_TRY(batch_.step().status());
    for (const Batch::Id id : ids_) SWY_TRY(batch_.outcome(id)->status);
    return {};
  }
  const Outcome& outcome() const { return *batch_.outcome(ids_.front()); }

 private:
  Model& model_;
  std::vector<std::unique_ptr<Session>> sessions_;
  Batch batch_;
  std::vector<Batch::Id> ids_;
};

}  // namespace

double Samples::at(double share) const {
  if (seconds.empty()) return 0;
  std::vector<double> sorted = seconds;
  std::sort(sorted.begin(), sorted.end());
  return sorted[static_cast<size_t>(std::lround(share * static_cast<double>(sorted.size() - 1)))];
}

double Samples::mean() const {
  if (seconds.empty()) return 0;
  return std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
}

Result<Measurement> measure_prefill(Model& model, Host& host, std::span<const int32_t> prompt, uint32_t runs,
                                    const KeepGoing& keep_going) {
  SWY_LET(const auto session, model.session());
  const Step step = [&]() -> Status {
    session->reset();
    return session->feed(prompt).status();
  };
  Measurement m;
  SWY_TRY(step());
  SWY_TRY(sample(step, runs, keep_going, m.samples));
  SWY_TRY(watch(model, host, step, 1, m.overhead));
  SWY_TRY(trace(model, host, step, 1, m));
  return m;
}

Result<Measurement> measure_decode(Model& model, Host& host, std::span<const int32_t> text, uint32_t depth,
                                   uint32_t tokens, const KeepGoing& keep_going) {
  SWY_LET(const auto session, model.session());
  if (depth != 0) SWY_TRY(session->feed(text.first(depth)).status());
  const Step step = [&]() -> Status { return session->feed(text.subspan(session->position(), 1)).status(); };
  Measurement m;
  for (uint32_t i = 0; i < kWarmTokens; ++i) SWY_TRY(step());
  SWY_TRY(sample(step, tokens, keep_going, m.samples));
  SWY_TRY(watch(model, host, step, kWatchedTokens, m.overhead));
  SWY_TRY(trace(model, host, step, kWatchedTokens, m));
  return m;
}

Status measure_drawing(Model& model, Host& host, std::span<const int32_t> text, uint32_t depth,
                       const SamplingParams& sampling, uint32_t tokens, std::span<Drawing> ways,
                       const KeepGoing& keep_going) {
  std::vector<std::unique_ptr<Drawer>> drawers;
  for (const Drawing& way : ways) {
    Drawer& d = *drawers.emplace_back(std::make_unique<Drawer>(model, ways.size() == 1));
    for (uint32_t i = 0; i < way.sessions; ++i) {
      if (!keep_going()) return error(Code::cancelled, "the benchmark was stopped");
      SamplingParams own = sampling;
      own.seed = sampling.seed.value_or(0) + i;
      SWY_TRY(d.add(text.subspan(uint64_t{i} * kPromptsApart, depth), own, way.path, tokens + kDecodeExtra));
    }
  }
  for (uint32_t i = 0; i < kWarmTokens + tokens; ++i) {
    for (size_t w = 0; w < ways.size(); ++w) {
      Samples warm;
      SWY_TRY(sample([&] { return drawers[w]->step(); }, 1, keep_going, i < kWarmTokens ? warm : ways[w].m.samples));
    }
  }
  for (size_t w = 0; w < ways.size(); ++w) {
    const Step step = [&] { return drawers[w]->step(); };
    const uint64_t before = drawers[w]->outcome().read_bytes;
    SWY_TRY(watch(model, host, step, kWatchedTokens, ways[w].m.overhead));
    ways[w].read_bytes = (drawers[w]->outcome().read_bytes - before) / kWatchedTokens;
    ways[w].choice = drawers[w]->outcome().path;
    SWY_TRY(trace(model, host, step, kWatchedTokens, ways[w].m));
  }
  return {};
}

}  // namespace switchyard::bench
