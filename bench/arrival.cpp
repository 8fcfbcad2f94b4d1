// SPDX-License-Identifier: Apache-2.0
#include "bench/arrival.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "core/serve/local_loop.h"

namespace switchyard::bench {
namespace {

constexpr uint32_t kMostSessions = 64, kWarmUp = 4;  // tokens of everybody that are not counted

Status check(const Model& model, const ArrivalLoad& load, size_t text) {
  if (load.sessions == 0 || load.sessions > kMostSessions) {
    return error(Code::usage, "{} sessions decode; an arrival is measured beside 1 to {}", load.sessions,
                 kMostSessions);
  }
  if (load.context == 0 || load.prompt == 0 || load.arrivals == 0 || load.apart == 0) {
    return error(Code::usage, "contexts of {} tokens and {} prompts of {}, {} tokens apart: none of these may be 0",
                 load.context, load.arrivals, load.prompt, load.apart);
  }
  if (load.tokens(model.chunk()) > model.context()) {
    return error(Code::usage, "an arrival takes {} tokens of a session, the context is {}", load.tokens(model.chunk()),
                 model.context());
  }
  if (load.all_sessions() > model.max_sessions()) {
    return error(Code::usage, "{} sessions and a prompt; the model was made for {}", load.sessions,
                 model.max_sessions());
  }
  if (text < uint64_t{load.context} + load.prompt) {
    return error(Code::usage, "a text of {} tokens is too short for contexts of {} and prompts of {}", text,
                 load.context, load.prompt);
  }
  return {};
}

class Meeting {
 public:
  Meeting(Model& model, const ArrivalLoad& load, std::span<const int32_t> text, const KeepGoing& keep_going)
      : model_(model), load_(load), text_(text), keep_going_(keep_going), loop_(model, nullptr, load.prompt_rows) {}

  Result<Arrival> run() {
    for (uint32_t i = 0; i < load_.sessions; ++i) {
      SWY_LET(speakers_.emplace_back().ticket, loop_.submit(speech(i)));
    }
    SWY_TRY(until_all_spoke(kWarmUp));
    for (uint32_t n = 0; n < load_.arrivals; ++n) {
      gaps_ = &out_.alone;
      SWY_TRY(until_all_spoke(load_.apart));
      gaps_ = &out_.beside;
      SWY_TRY(receive());
      SWY_TRY(until_all_spoke(1));
    }
    return std::move(out_);
  }

 private:
  struct Speaker {
    std::shared_ptr<Ticket> ticket;
    uint64_t last_ns = 0;  // of the last token; 0: none yet
    uint32_t spoken = 0;
  };

  static uint64_t now() { return Os::real().now_ns(); }

  GenerationRequest request(size_t from, uint32_t tokens, uint32_t drawn) const {
    GenerationRequest r;
    const auto ids = text_.subspan(from, tokens);
    r.prompt.assign(ids.begin(), ids.end());
    r.text.max_tokens = drawn;
    r.text.sampling = load_.sampling;
    r.text.ignore_eos = true;
    return r;
  }
  GenerationRequest speech(uint32_t i) const {
    const size_t room = text_.size() - load_.context;
    GenerationRequest r = request(std::min<size_t>(size_t{i} * Contexts::kPromptsApart, room), load_.context,
                                  model_.context() - load_.context);
    r.text.sampling.seed = load_.sampling.seed.value_or(1) + i;
    return r;
  }

  void spoke(Speaker& s) {
    const uint64_t t = now();
    if (gaps_ != nullptr && s.last_ns != 0) gaps_->seconds.push_back(static_cast<double>(t - s.last_ns) / 1e9);
    s.last_ns = t;
    ++s.spoken;
  }
  Status step() {
    if (!keep_going_()) return error(Code::cancelled, "the benchmark was stopped");
    loop_.tick();
    for (Speaker& s : speakers_) {
      while (const auto event = s.ticket->poll()) {
        if (event->id >= 0) spoke(s);
        if (!event->finish) continue;
        SWY_TRY(event->finish->status);
        return error(Code::internal, "a session ended while others were measured");
      }
    }
    return {};
  }
  Status until_all_spoke(uint32_t tokens) {
    for (Speaker& s : speakers_) s.spoken = 0;
    const auto done = [&](const Speaker& s) { return s.spoken >= tokens; };
    while (!std::all_of(speakers_.begin(), speakers_.end(), done)) SWY_TRY(step());
    return {};
  }
  // The prompt comes, and is read until its first token.
  Status receive() {
    const uint64_t begin = now();
    SWY_LET(const auto guest, loop_.submit(request(text_.size() - load_.prompt, load_.prompt, 1)));
    for (uint64_t first = 0;;) {
      SWY_TRY(step());
      while (const auto event = guest->poll()) {
        if (event->id >= 0) first = now();
        if (!event->finish) continue;
        SWY_TRY(event->finish->status);
        if (first == 0) return error(Code::internal, "the prompt drew no token");
        out_.ttft.seconds.push_back(static_cast<double>(first - begin) / 1e9);
        return {};
      }
    }
  }

  Model& model_;
  const ArrivalLoad& load_;
  std::span<const int32_t> text_;
  const KeepGoing& keep_going_;
  std::vector<Speaker> speakers_;
  Samples* gaps_ = nullptr;  // where gaps are counted now; null: nowhere
  Arrival out_;
  LocalLoop loop_;
};

}  // namespace

// Every step gives every session a token; one that ran ahead may come late.
uint32_t ArrivalLoad::tokens(uint32_t chunk) const {
  constexpr uint32_t kLate = 4;
  const uint32_t rows = prompt_rows == 0 ? chunk : std::min(prompt_rows, chunk);
  const auto steps = [&](uint64_t n) { return (n + rows - 1) / rows + kLate; };
  const uint64_t first = steps(uint64_t{sessions} * context);  // contexts are read while earlier sessions decode
  const uint64_t drawn = first + kWarmUp + arrivals * (apart + steps(prompt));
  const uint64_t held = std::max<uint64_t>(context + drawn, prompt + 1);
  return static_cast<uint32_t>(held + StatePool::kPageSize);  // the loop keeps a page free for each that runs
}

Result<Arrival> measure_arrival(Model& model, const ArrivalLoad& load, std::span<const int32_t> text,
                                const KeepGoing& keep_going) {
  SWY_TRY(check(model, load, text.size()));
  return Meeting(model, load, text, keep_going).run();
}

}  // namespace switchyard::bench
