// SPDX-License-Identifier: Apache-2.0
#include "bench/measure.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bench/clock.h"
#include "core/engine/profile.h"
#include "core/serve/local_loop.h"

namespace switchyard::bench {
namespace {

// While it lives, lists and barriers are counted.
class Watch {
 public:
  Watch(Model& model, Host& host, SubmitCounts& submits, TeamCounts& team) : model_(model), host_(host) {
    model.runner().watch(&submits);
    host.watch(&team);
  }
  ~Watch() {
    model_.runner().watch(nullptr);
    host_.watch(nullptr);
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  Model& model_;
  Host& host_;
};

// Ends a turn, however it is left.
class TurnOf {
 public:
  explicit TurnOf(Stepper& stepper) : stepper_(stepper) {}
  ~TurnOf() { stepper_.end(); }
  TurnOf(const TurnOf&) = delete;
  TurnOf& operator=(const TurnOf&) = delete;
  Status begin(uint32_t warm) {
    SWY_TRY(stepper_.begin());
    for (uint32_t i = 0; i < warm; ++i) SWY_TRY(stepper_.step());
    return {};
  }

 private:
  Stepper& stepper_;
};

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

constexpr uint32_t kSample = 64;  // tokens from whose time the rest is estimated

// Feeds all. The model's own layer, where it has one, sees every row, so that it can guess.
Status feed_all(Session& session, std::span<const int32_t> tokens) {
  Model& model = session.model();
  if (model.mtp() == nullptr || model.hidden_width() == 0) {
    return tokens.empty() ? Status() : session.feed(tokens).status();
  }
  std::vector<float> rows;
  while (!tokens.empty()) {
    const uint32_t position = session.position(), n = model.part(position, tokens.size(), model.chunk());
    SWY_TRY(session.feed(tokens.first(n)).status());
    rows.resize(size_t{n} * model.hidden_width());
    SWY_TRY(model.read_hidden(0, rows));
    session.trail().saw(position, tokens.first(n), rows);
    SWY_TRY(session.read_or_lose());
    tokens = tokens.subspan(n);
  }
  return {};
}

// Feeds all, unless the first part's time shows that it would take too long.
Status feed_within(Session& session, std::span<const int32_t> tokens, double seconds, double copies = 1) {
  if (tokens.size() > kSample) {
    const double begin = now();
    SWY_TRY(feed_all(session, tokens.first(kSample)));
    const double all = (now() - begin) / kSample * static_cast<double>(tokens.size()) * copies;
    if (all > seconds) {
      return error(Code::cancelled, "reading {} tokens would take about {:.0f} s, by the first {}",
                   static_cast<double>(tokens.size()) * copies, all, kSample);
    }
    tokens = tokens.subspan(kSample);
  }
  return feed_all(session, tokens);
}

class PromptStepper : public Stepper {
 public:
  PromptStepper(std::unique_ptr<Session> session, std::span<const int32_t> prompt)
      : session_(std::move(session)), prompt_(prompt) {}
  Status begin() override { return {}; }
  Status step() override {
    session_->reset();
    return session_->feed(prompt_).status();
  }
  uint32_t most_steps() const override { return UINT32_MAX; }

 private:
  std::unique_ptr<Session> session_;
  std::span<const int32_t> prompt_;
};

class TextStepper : public Stepper {
 public:
  TextStepper(Contexts& contexts, uint32_t most) : contexts_(contexts), most_(most) {}
  Status begin() override {
    SWY_LET(session_, contexts_.session(0).fork());
    text_ = contexts_.rest(0);
    return {};
  }
  Status step() override {
    SWY_TRY(session_->feed(text_.first(1)).status());
    text_ = text_.subspan(1);
    return {};
  }
  void end() override { session_.reset(); }
  uint32_t most_steps() const override { return most_; }

 private:
  Contexts& contexts_;
  uint32_t most_;
  std::unique_ptr<Session> session_;
  std::span<const int32_t> text_;
};

class DrawStepper : public Stepper {
 public:
  DrawStepper(Contexts& contexts, uint32_t requests, const SamplingParams& sampling, std::optional<SamplingPath> path,
              uint32_t most, const Drafting& drafting)
      : contexts_(contexts),
        requests_(requests),
        sampling_(sampling),
        path_(path),
        most_(most),
        drafting_(drafting),
        loop_(std::make_unique<LocalLoop>(contexts_.model(), nullptr, 0, drafting.model)) {}
  ~DrawStepper() override { end(); }

  Status begin() override {
    drawn_ = wanted_ = 0;
    for (uint32_t i = 0; i < requests_; ++i) {
      GenerationRequest request;
      SWY_LET(request.session, contexts_.session(i).fork());
      const auto before = contexts_.rest(i).data() - contexts_.depth();
      request.history.assign(before, before + contexts_.depth());
      request.prompt = {contexts_.rest(i).front()};
      // So that none ends within a turn.
      request.text.max_tokens =
          drafting_.by == Speculation::off ? most_ + 1 : contexts_.model().context() - contexts_.depth() - 1;
      request.text.speculate = drafting_.by;
      request.text.sampling = sampling_;
      request.text.sampling.seed = sampling_.seed.value_or(0) + i;
      request.text.path = path_;
      request.text.ignore_eos = true;
      SWY_LET(tickets_.emplace_back(), loop_->submit(std::move(request)));
    }
    return {};
  }
  Status step() override {
    wanted_ += uint64_t{requests_} * drafting_.tokens_a_step();
    do {
      loop_->tick();
      for (const auto& ticket : tickets_) {
        while (const auto event = ticket->poll()) {
          if (event->finish) return ended(*event->finish);
          ++drawn_;
        }
      }
    } while (drafting_.by != Speculation::off && drawn_ < wanted_);
    return {};
  }
  void end() override {
    if (tickets_.empty()) return;
    drafts_ = {};
    for (const auto& ticket : tickets_) ticket->cancel();
    loop_->tick();
    for (const auto& ticket : tickets_) {
      std::optional<Event> event = ticket->poll();
      while (event && !event->finish) event = ticket->poll();
      if (!event) continue;
      drafts_.add(event->finish->drafts);
      if (ticket != tickets_.front()) continue;
      choice_ = event->finish->path;
      read_bytes_ = event->finish->read_bytes;
    }
    tickets_.clear();
  }
  uint32_t most_steps() const override { return most_; }
  uint64_t read_bytes() const override { return read_bytes_; }
  PathChoice path() const override { return choice_; }
  DraftCounts drafts() const override { return drafts_; }

 private:
  static Status ended(const Finish& finish) {
    SWY_TRY(finish.status);
    return error(Code::internal, "a request ended within a turn: {}", finish.reason);
  }

  Contexts& contexts_;
  uint32_t requests_;
  SamplingParams sampling_;
  std::optional<SamplingPath> path_;
  uint32_t most_;
  Drafting drafting_;
  std::unique_ptr<LocalLoop> loop_;
  uint64_t drawn_ = 0, wanted_ = 0;  // in this turn
  DraftCounts drafts_;
  std::vector<std::shared_ptr<Ticket>> tickets_;
  uint64_t read_bytes_ = 0;
  PathChoice choice_;
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

Status Contexts::read(uint32_t tokens, uint32_t count, double seconds, const KeepGoing& keep_going) {
  if (tokens != depth_) sessions_.clear();
  depth_ = tokens;
  while (sessions_.size() < count) {
    if (!keep_going()) return error(Code::cancelled, "the benchmark was stopped");
    SWY_LET(auto session, model_.session());
    const size_t first = sessions_.size() * kPromptsApart;
    if (first + tokens > text_.size()) {
      return error(Code::usage, "a context of {} tokens for {} requests needs {} tokens of text, and there are {}",
                   tokens, count, (count - 1) * kPromptsApart + tokens, text_.size());
    }
    const auto text = text_.subspan(first, tokens);
    SWY_TRY(feed_within(*session, text, seconds, static_cast<double>(count - sessions_.size())));
    sessions_.push_back(std::move(session));
  }
  return {};
}

Result<std::unique_ptr<Stepper>> prompt_stepper(Model& model, std::span<const int32_t> prompt, double seconds) {
  SWY_LET(auto session, model.session());
  SWY_TRY(feed_within(*session, prompt, seconds));
  return std::unique_ptr<Stepper>(std::make_unique<PromptStepper>(std::move(session), prompt));
}

std::unique_ptr<Stepper> text_stepper(Contexts& contexts, uint32_t most) {
  return std::make_unique<TextStepper>(contexts, most);
}

std::unique_ptr<Stepper> draw_stepper(Contexts& contexts, uint32_t requests, const SamplingParams& sampling,
                                      std::optional<SamplingPath> path, uint32_t most, const Drafting& drafting) {
  return std::make_unique<DrawStepper>(contexts, requests, sampling, path, most, drafting);
}

Status take_turn(Stepper& stepper, uint32_t warm, uint32_t count, std::vector<double>& seconds) {
  TurnOf turn(stepper);
  SWY_TRY(turn.begin(warm));
  for (uint32_t i = 0; i < count; ++i) {
    const double begin = now();
    SWY_TRY(stepper.step());
    seconds.push_back(now() - begin);
  }
  return {};
}

Status watch_turn(Stepper& stepper, Model& model, Host& host, uint32_t warm, uint32_t steps, Overhead& o) {
  TurnOf turn(stepper);
  SWY_TRY(turn.begin(warm));
  SubmitCounts submits;
  TeamCounts team;
  const Watch watch(model, host, submits, team);
  const uint64_t cpu = thread_cpu_ns();
  const double begin = now();
  for (uint32_t i = 0; i < steps; ++i) SWY_TRY(stepper.step());
  const double end = now();
  const uint64_t own = thread_cpu_ns() - cpu;
  o.seconds = (end - begin) / steps;
  o.core_seconds = static_cast<double>(own - std::min(own, submits.cpu_ns)) / 1e9 / steps;
  o.wait_seconds = static_cast<double>(team.waited_ns + submits.wait_ns) / 1e9 / steps;
  o.lists = static_cast<double>(submits.lists) / steps;
  o.barriers = static_cast<double>(team.barriers) / steps;
  return {};
}

Status trace_turn(Stepper& stepper, Model& model, Host& host, uint32_t warm, uint32_t steps,
                  std::map<std::string, KernelTime>& kernels) {
  TurnOf turn(stepper);
  SWY_TRY(turn.begin(warm));
  KernelTable table(kernels);
  SWY_LET(const auto profile, Profile::start(model, host, table));
  for (uint32_t i = 0; i < steps; ++i) SWY_TRY(stepper.step());
  return profile->stop();
}

}  // namespace switchyard::bench
