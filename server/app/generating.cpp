// SPDX-License-Identifier: Apache-2.0
#include "server/app/generating.h"

#include <algorithm>

namespace switchyard::server {

namespace {

// Bytes that one pull collects, so that a reply to a slow client stays small and other connections get their turn.
constexpr size_t kPullBytes = 64 << 10;

const char* finish_reason(const std::string& stopped, bool calls) {
  if (stopped == "length" || stopped == "context") return "length";
  return calls ? "tool_calls" : "stop";
}

ApiError error_of(const Finish& finish) {
  if (finish.reason == "stopped") return overloaded("the server is stopping", 1000);
  if (finish.reason == "slow") {
    return {.status = 408, .type = "timeout_error", .message = "the answer was not read for too long"};
  }
  if (finish.reason == "deadline")
    return {.status = 408, .type = "timeout_error", .message = "the request took too long"};
  if (finish.reason == "cancelled")
    return {.status = 499, .type = "cancelled_error", .message = "the request was cancelled"};
  return failed(finish.status);
}

}  // namespace

Generating::Generating(std::unique_ptr<Answer> answer, std::vector<GeneratingChoice> choices,
                       const Tokenizer& tokenizer, Protocol protocol, bool stream, bool logprobs)
    : answer_(std::move(answer)),
      choices_(std::move(choices)),
      tokenizer_(tokenizer),
      protocol_(protocol),
      stream_(stream),
      logprobs_(logprobs) {}

void Generating::on_ready(std::function<void()> wake) {
  for (GeneratingChoice& choice : choices_) choice.ticket->on_event(wake);
}

Pending::State Generating::pull(std::string& out) {
  if (done_) return State::done;
  if (!std::exchange(started_, true)) out += answer_->start();
  const auto armed = [](const GeneratingChoice& c) { return c.ended || c.ticket->arm(); };
  do {
    bool any = false;
    for (uint32_t i = 0; i < choices_.size() && out.size() < kPullBytes; ++i) {
      const Progress progress = pull_choice(i, out);
      if (progress == Progress::failed) return State::done;
      any = any || progress == Progress::some;
    }
    if (std::all_of(choices_.begin(), choices_.end(), [](const auto& c) { return c.ended; })) {
      out += answer_->finish();
      done_ = true;
      return State::done;
    }
    if (any || out.size() >= kPullBytes) return State::more;        // full: later choices were not looked at
  } while (!std::all_of(choices_.begin(), choices_.end(), armed));  // else an event came meanwhile
  return State::waiting;
}

Generating::Progress Generating::pull_choice(uint32_t index, std::string& out) {
  GeneratingChoice& choice = choices_[index];
  Part part{.choice = index, .deltas = {}, .logprobs = {}};
  const auto add = [&] {
    if (!part.deltas.empty() || !part.logprobs.empty()) out += answer_->add(part);
    part = {.choice = index, .deltas = {}, .logprobs = {}};
  };
  bool any = false;
  while (!choice.ended && out.size() < kPullBytes) {
    if (choice.events.empty() && !choice.ticket->take(choice.events)) break;
    any = true;
    const Event event = std::move(choice.events.front());
    choice.events.pop_front();
    const bool enough = take(choice, event, part);
    if (enough || event.finish || logprobs_) add();  // log-probabilities stand beside the text of their token
    if (event.finish || enough) {
      const Progress ended = end(index, event, out);
      if (ended == Progress::failed) return ended;
    }
  }
  add();
  return any ? Progress::some : Progress::none;
}

namespace {

// What came before goes on in the same event.
bool goes_on(const Delta& before, const Delta& delta) {
  const bool text = delta.kind == Delta::Kind::content || delta.kind == Delta::Kind::reasoning ||
                    delta.kind == Delta::Kind::arguments;
  return text && before.kind == delta.kind && before.call == delta.call;
}

}  // namespace

// True: the choice has all that was asked for, and ends before its text does.
bool Generating::take(GeneratingChoice& choice, const Event& event, Part& part) {
  std::vector<Delta> deltas;
  if (choice.parser != nullptr) {
    if (event.id >= 0 && choice.parser->reasons()) ++choice.reasoning_tokens;
    choice.parser->push(event.text, deltas);
    if (event.finish) choice.parser->flush(deltas);
  } else if (!event.text.empty()) {
    deltas.push_back({Delta::Kind::content, 0, event.text});
  }
  if (event.id >= 0) ++choice.tokens;
  if (logprobs_ && event.id >= 0 && !(event.text.empty() && tokenizer_.is_special(event.id)))
    part.logprobs.push_back(logprob_of(event));
  for (Delta& delta : deltas) {
    if (!part.deltas.empty() && goes_on(part.deltas.back(), delta)) {
      part.deltas.back().text += delta.text;
    } else {
      part.deltas.push_back(std::move(delta));
    }
    if (choice.one_call && part.deltas.back().kind == Delta::Kind::call_end) return true;
  }
  return false;
}

Generating::Progress Generating::end(uint32_t index, const Event& event, std::string& out) {
  GeneratingChoice& choice = choices_[index];
  if (event.finish) {
    const std::string& reason = event.finish->reason;
    if (!event.finish->status.ok() || reason == "cancelled" || reason == "deadline") {
      fail(error_of(*event.finish), out);
      return Progress::failed;
    }
    end(index, *event.finish, out);
  } else {
    choice.ticket->cancel();
    Finish finish;
    finish.reason = "end";
    finish.seed = choice.ticket->seed();
    finish.usage.generated_tokens = choice.tokens;
    end(index, finish, out);
  }
  return Progress::some;
}

void Generating::end(uint32_t index, const Finish& finish, std::string& out) {
  GeneratingChoice& choice = choices_[index];
  choice.ended = true;
  const bool calls = choice.parser != nullptr && choice.parser->completed_calls() > 0;
  ChoiceEnd end{.reason = finish_reason(finish.reason, calls),
                .stopped = finish.reason,
                .usage = finish.usage,
                .reasoning_tokens = choice.reasoning_tokens,
                .seed = finish.seed};
  out += answer_->end(index, end);
}

void Generating::fail(const ApiError& error, std::string& out) {
  status_ = error.status;
  out += answer_->fail(error);
  done_ = true;
}

TokenLogprob Generating::logprob_of(const Event& event) const {
  TokenLogprob token{.bytes = std::string(tokenizer_.piece(event.id)), .logprob = event.logprob};
  for (const auto& [id, logprob] : event.top) token.top.emplace_back(std::string(tokenizer_.piece(id)), logprob);
  return token;
}

}  // namespace switchyard::server
