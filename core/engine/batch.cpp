// SPDX-License-Identifier: Apache-2.0
#include "core/engine/batch.h"

#include "core/engine/room.h"

#include <algorithm>

#include "core/engine/batch_request.h"

namespace switchyard {

const char* stop_name(StopReason reason) {
  switch (reason) {
    case StopReason::none:
      return "none";
    case StopReason::end:
      return "end";
    case StopReason::length:
      return "length";
    case StopReason::context:
      return "context";
    case StopReason::cancelled:
      return "cancelled";
    case StopReason::callback:
      return "callback";
    default:
      return "failed";
  }
}

Batch::Batch(Model& model, const BatchOptions& options) : model_(model), options_(options) {
  const uint32_t most = model.max_sessions();
  if (options_.prompt_rows == 0) options_.prompt_rows = model.chunk();
  running_.reserve(most);
  order_.reserve(most);
  starved_.reserve(most);
  sequences_.reserve(most);
  for (uint32_t i = most; i-- > 0;) free_entries_.push_back(i);
  for (size_t i = 0; i < StepRunner::kInFlight; ++i) {
    flight_room_.push_back(std::make_unique<Flight>());
    flight_room_.back()->parts.reserve(most);
    idle_.push_back(flight_room_.back().get());
  }
}

Batch::~Batch() {
  for (const auto& r : running_) r->session.abandon();
  drop_flights();
}

Batch::Running* Batch::find(Id id) const {
  for (const auto& r : running_) {
    if (r->id == id) return r.get();
  }
  return nullptr;
}

bool Batch::running(Id id) const { return find(id) != nullptr; }

const Outcome* Batch::outcome(Id id) const {
  if (const Running* r = find(id)) return &r->outcome;
  for (const auto& r : ended_) {
    if (r->id == id) return &r->outcome;
  }
  return nullptr;
}

std::optional<Outcome> Batch::take(Id id) {
  if (const Running* r = find(id)) return r->outcome;
  for (auto it = ended_.begin(); it != ended_.end(); ++it) {
    if ((*it)->id != id) continue;
    Outcome outcome = std::move((*it)->outcome);
    ended_.erase(it);
    return outcome;
  }
  return std::nullopt;
}

Result<Batch::Id> Batch::add(Session& session, Request request) {
  if (&session.model() != &model_) return error(Code::usage, "the session belongs to another model");
  const auto busy = [&](const auto& r) { return &r->session == &session; };
  if (session.prepared() || std::any_of(running_.begin(), running_.end(), busy)) {
    return error(Code::usage, "the session has a request already; end it first");
  }
  if (request.prompt.empty()) return error(Code::usage, "the prompt has no tokens");
  if (request.max_tokens == 0) return error(Code::usage, "max_tokens is 0; it must be at least 1");
  SWY_TRY(model_.check_tokens(request.prompt));
  SWY_TRY(model_.check_tokens(request.history));
  const uint32_t free = model_.context() - session.position();
  SWY_TRY(check_room(model_, session.position(), request.prompt.size()));
  if (row_sampler_ == nullptr) row_sampler_ = std::make_shared<swy::RowSampler>(model_.vocab());
  SWY_LET(Sampler sampler, Sampler::create(request.sampling, model_.vocab(), row_sampler_));
  SWY_LET(PathChoice path, choose_path(request.path, sampler, request.mask != nullptr, model_.device_sampling()));
  const size_t all = request.history.size() + request.prompt.size();
  if (request.drawn.size() > all || request.drawn.size() >= request.max_tokens) {
    return error(Code::internal, "a request goes on after {} tokens of {}", request.drawn.size(), all);
  }
  const size_t given = all - request.drawn.size(), seen = std::min(given, request.history.size());
  for (size_t i = 0; i < seen; ++i) sampler.saw_prompt(request.history[i]);
  for (size_t i = 0; i < given - seen; ++i) sampler.saw_prompt(request.prompt[i]);
  for (const int32_t id : request.drawn) sampler.saw_output(id);
  if (model_.drafts() == 0) request.drafters.clear();
  drop_what_cannot_pay(request);
  for (const auto& d : request.drafters) {
    if (d->wants_hidden() && model_.hidden_width() == 0) {
      return error(Code::internal, "a drafter needs hidden rows, and the model was made without");
    }
    d->saw(request.history);
    d->saw(request.prompt);
  }

  if (free_entries_.empty()) return error(Code::internal, "as many requests run as the model has sessions");

  auto r = std::make_unique<Running>(Running{next_id_++, session, std::move(request), std::move(sampler)});
  r->outcome.path = std::move(path);
  r->outcome.seed = r->sampler.seed();
  r->outcome.ids = std::move(r->request.drawn);
  r->outcome.ids.reserve(std::min<size_t>(r->request.max_tokens, r->outcome.ids.size() + free + 1));
  r->first = r->outcome.ids.size();
  r->begin = session.position();
  const size_t drafts = r->request.drafters.empty() ? 0 : model_.drafts();
  if (r->request.mask) r->mask.resize(mask_words() * (1 + drafts));
  r->rows.reserve(drafts == 0 ? 1 : 16 + 2 * drafts);
  r->sampled.reserve(1 + drafts);
  r->guesses = std::make_unique<RequestGuesses>(*this, *r);
  for (const auto& d : r->request.drafters) {
    Acceptance& usual = model_.draft_policy().usual(d->name(), d->expected_acceptance());
    r->records.push_back({Acceptance(), &usual});
    r->records.back().own.start(usual);
  }
  r->begin_ns = Os::real().now_ns();
  r->entry = free_entries_.back();
  free_entries_.pop_back();
  running_.push_back(std::move(r));
  return next_id_ - 1;
}

void Batch::cancel(Id id) {
  if (Running* r = find(id)) end(*r, StopReason::cancelled);
  sweep();
}

void Batch::pause(Id id, bool paused) {
  if (Running* r = find(id)) r->paused = paused;
}

Status Batch::settle() {
  while (!flights_.empty()) {
    if (Status s = finish_step(); !s.ok()) return fail_all(std::move(s));
  }
  sweep();
  return {};
}

// The request stays in `running_` until `sweep`, so that loops over `running_` are not disturbed.
void Batch::end(Running& r, StopReason reason, Status status) {
  if (r.outcome.stopped != StopReason::none) return;
  r.outcome.stopped = reason;
  r.outcome.status = std::move(status);
  r.session.abandon();
  for (const auto& f : flight_room_) f->forget(r);
  const uint64_t now = Os::real().now_ns();
  (r.first_ns == 0 ? r.outcome.prompt_ns : r.outcome.draw_ns) = now - (r.first_ns == 0 ? r.begin_ns : r.first_ns);
}

// Waits for the steps in flight, whose results are not wanted any more.
void Batch::drop_flights() {
  for (size_t i = 0; i < flights_.size(); ++i) (void)model_.runner().collect().ok();
  idle_.insert(idle_.end(), flights_.begin(), flights_.end());
  flights_.clear();
}

// When no request is left, nothing stays in flight, so that the model is free for other batches.
void Batch::sweep() {
  for (auto it = running_.begin(); it != running_.end();) {
    if ((*it)->outcome.stopped == StopReason::none) {
      ++it;
      continue;
    }
    free_entries_.push_back((*it)->entry);
    (*it)->request.drafters.clear();  // and what they hold
    ended_.push_back(std::move(*it));
    it = running_.erase(it);
  }
  if (running_.empty()) drop_flights();
}

Status Batch::fail_all(Status status) {
  for (const auto& r : running_) {
    end(*r, StopReason::failed, status);
    r->session.reset();  // how far its states have come cannot be known
  }
  drop_flights();
  sweep();
  return status;
}

Status Batch::run(Id id) {
  while (running(id)) {
    SWY_LET(const bool more, step());
    if (!more) break;
  }
  return {};
}

}  // namespace switchyard
