// SPDX-License-Identifier: Apache-2.0
#include "core/serve/loop.h"

#include <algorithm>

namespace switchyard {
namespace {

uint64_t clock_ns() { return Os::real().now_ns(); }

}  // namespace

Loop::Loop(Model& model, const ServiceOptions& options, SharedStats& stats, QueueGauge& queue)
    : model_(model),
      options_(options),
      stats_(stats),
      queue_(queue),
      cache_(model, {options.cache_bytes, options.cache_host_bytes}, options.cache_identity),
      batch_(model, {.prompt_rows = options.prompt_rows, .wait_for_memory = true}) {}

Loop::~Loop() = default;

void Loop::accept(std::unique_ptr<Job> job) { waiting_.push_back(std::move(job)); }

uint64_t Loop::tick() {
  review(clock_ns());
  admit();
  if (!ended_.empty()) publish(false);
  const auto runs = [](const auto& job) { return job->paused_ns == 0; };
  const bool runnable = batch_.in_flight() || std::any_of(active_.begin(), active_.end(), runs);
  if (runnable) run_step();
  publish(runnable);
  return runnable ? 0 : idle_ns(clock_ns());
}

// ---- what ends or pauses a request ----

std::string Loop::verdict(const Job& job, uint64_t now) const {
  if (job.ticket->cancelled.load()) return "cancelled";
  if (job.request.deadline_ns != 0 && now >= job.request.deadline_ns) return "deadline";
  if (job.paused_ns != 0 && now - job.paused_ns > options_.slow_ns) return "slow";
  return {};
}

void Loop::review(uint64_t now) {
  review_readers(now);
  for (Jobs* jobs : {&active_, &waiting_}) {
    std::erase_if(*jobs, [&](const std::unique_ptr<Job>& job) {
      std::string reason = verdict(*job, now);
      if (reason.empty()) return false;
      Status status;
      if (reason == "slow") {
        status =
            error(Code::cancelled, "the answer was not read for {} s, so it was ended", options_.slow_ns / 1000000000);
      }
      end(*job, std::move(reason), std::move(status));
      return true;
    });
  }
}

// A request whose events are not taken pauses, and goes on when half of them were.
void Loop::review_readers(uint64_t now) {
  for (const Jobs* jobs : {&active_, &waiting_}) {
    for (const auto& job : *jobs) {
      const size_t unread = job->ticket->waiting.load();
      const bool pauses = job->paused_ns == 0 && unread >= job->ticket->limit;
      const bool resumes = job->paused_ns != 0 && unread <= job->ticket->limit / 2;
      if (!pauses && !resumes) continue;
      job->paused_ns = pauses ? now : 0;
      if (job->id != 0) batch_.pause(job->id, pauses);
    }
  }
}

void Loop::end_all(const std::string& reason, const Status& status) {
  for (Jobs* jobs : {&active_, &waiting_}) {
    for (const auto& job : *jobs) end(*job, reason, status);
    jobs->clear();
  }
  publish(false);
}

void Loop::settle() {
  (void)batch_.settle().ok();  // requests that failed are collected by the next tick
}

// ---- steps ----

bool Loop::took(Job& job, const TextPiece& piece) {
  Event event{piece.id, piece.text, piece.logprob, {}, {}};
  for (size_t i = 0; i < piece.top_ids.size() && piece.top_ids[i] >= 0; ++i) {
    event.top.emplace_back(piece.top_ids[i], piece.top_logprobs[i]);
  }
  if (piece.id >= 0) {
    job.ids.push_back(piece.id);
    const uint64_t now = clock_ns();
    stats_.update([&](ServiceStats& s) {
      ++s.generated_tokens;
      if (job.last_ns == 0) {
        s.first_token.add(now - job.submitted_ns);
      } else {
        s.between_tokens.add(now - job.last_ns);
      }
    });
    if (job.first_ns == 0) job.first_ns = now;
    job.last_ns = now;
  }
  job.ticket->push(std::move(event));
  return !job.ticket->cancelled.load();
}

void Loop::run_step() {
  (void)batch_.step().ok();  // a failure is that of every request, whose outcomes have it
  const size_t running = active_.size();
  collect_ended();
  if (active_.size() < running) return;  // what these held may be enough
  if (!batch_.starved().empty()) make_room();
}

void Loop::collect_ended() {
  std::erase_if(active_, [&](const std::unique_ptr<Job>& job) {
    if (batch_.running(job->id)) return false;
    const Outcome outcome = *batch_.take(job->id);
    take_outcome(*job, outcome);
    end(*job, reason_of(*job, outcome), job->text->failure(outcome));
    return true;
  });
}

std::string Loop::reason_of(const Job& job, const Outcome& outcome) {
  std::string reason = job.text->stopped(outcome);
  return reason == "callback" ? "cancelled" : reason;  // only a reader who left ends it in this way
}

void Loop::take_outcome(Job& job, const Outcome& outcome) {
  job.id = 0;
  job.read_bytes += outcome.read_bytes;
  job.undecided += outcome.undecided;
  job.drafts.add(outcome.drafts);
  stats_.update([&](ServiceStats& s) { s.drafts.add(outcome.drafts); });
}

// Some request found no memory for its next rows: another one makes room, or this one comes back later.
void Loop::make_room() {
  if (cache_.make_room()) return;
  const size_t running = active_.size();
  settle();
  collect_ended();
  if (active_.size() < running || active_.empty()) return;
  if (active_.size() == 1) {
    Job& job = *active_.front();
    end(job, "failed",
        error(Code::out_of_device_memory,
              "the memory for states is full: its {} pages of {} tokens and {} slots are all in use; end a session, or "
              "make the model with more",
              model_.states().pages().count(), StatePool::kPageSize, model_.states().slots().count()));
    active_.clear();
    return;
  }
  const auto chosen = victim();
  std::unique_ptr<Job> job = std::move(*chosen);
  active_.erase(chosen);
  if (const Status aside = set_aside(*job); aside.ok()) {
    waiting_.push_back(std::move(job));
  } else {
    end(*job, "failed", aside);
  }
}

// A request that waits for its reader, then the one that began to wait last, of those with the lowest priority.
Loop::Jobs::iterator Loop::victim() {
  return std::min_element(active_.begin(), active_.end(), [](const auto& a, const auto& b) {
    if ((a->paused_ns != 0) != (b->paused_ns != 0)) return a->paused_ns != 0;
    return before(*b, *a);
  });
}

// Its states go to the host's memory. No step is in flight.
Status Loop::set_aside(Job& job) {
  batch_.cancel(job.id);
  take_outcome(job, *batch_.take(job.id));
  SWY_LET(job.aside, job.session->snapshot());
  job.session->reset();
  leave_session(job);
  ++job.usage.set_aside;
  stats_.update([](ServiceStats& s) { ++s.set_asides; });
  return {};
}

// ---- the end ----

void Loop::end(Job& job, std::string reason, Status status) {
  if (job.id != 0) {
    batch_.cancel(job.id);
    if (const auto outcome = batch_.take(job.id)) take_outcome(job, *outcome);
  }
  queue_.leave(job);
  // Drawn tokens are computed one by one, which is not what --deterministic promises for a prompt.
  const bool keeps = caches(job) && job.session != nullptr && reason != "failed" && !model_.deterministic();
  if (keeps) keep(job);
  leave_session(job);
  job.text->finish();
  const uint64_t now = clock_ns();
  auto f = std::make_shared<Finish>();
  Usage& u = job.usage;
  u.prompt_tokens = static_cast<uint32_t>(job.request.prompt.size());
  u.generated_tokens = static_cast<uint32_t>(job.ids.size());
  if (job.begun_ns == 0) u.queued_ns = now - job.submitted_ns;
  if (job.first_ns != 0) {
    u.prompt_ns = job.first_ns - job.begun_ns;
    u.draw_ns = job.last_ns - job.first_ns;
  }
  stats_.update([&](ServiceStats& s) {
    ++s.finished[reason];
    s.whole.add(now - job.submitted_ns);
    if (job.first_ns == 0) return;
    s.prompt_tokens += u.prompt_tokens;
    s.computed_prompt_tokens += u.prompt_tokens - u.cached_tokens;
    s.prompt.add(u.prompt_ns);
    s.draw.add(u.draw_ns);
  });
  f->reason = std::move(reason);
  f->status = std::move(status);
  f->usage = u;
  f->seed = job.ticket->seed;
  f->path = job.path;
  f->read_bytes = job.read_bytes;
  f->undecided = job.undecided;
  f->drafts = job.drafts;
  f->text = job.text->text();
  f->ids = std::move(job.ids);
  Event last;
  last.finish = std::move(f);
  ended_.emplace_back(job.ticket, std::move(last));
}

// What has ended is told last: who reads the counters after a request's last event finds it counted as ended.
void Loop::publish(bool stepped) {
  const auto paused = [](const auto& job) { return job->paused_ns != 0; };
  const auto aside = [](const auto& job) { return job->begun_ns != 0; };
  const uint64_t now = clock_ns();
  stats_.update([&](ServiceStats& s) {
    s.running = static_cast<uint32_t>(active_.size());
    s.paused = static_cast<uint32_t>(std::count_if(active_.begin(), active_.end(), paused));
    s.set_aside = static_cast<uint32_t>(std::count_if(waiting_.begin(), waiting_.end(), aside));
    s.pages = model_.states().pages().count();
    s.pages_used = s.pages - model_.states().pages().free();
    s.page_tokens = StatePool::kPageSize;
    s.slots = model_.states().slots().count();
    s.slots_used = s.slots - model_.states().slots().free();
    s.checkpoints = cache_.totals().checkpoints;
    s.cached_tokens = cache_.totals().tokens;
    s.cached_bytes = cache_.totals().bytes;
    s.cached_host_bytes = cache_.totals().host_bytes;
    s.cache_evictions = cache_.totals().evictions;
    s.steps = batch_.steps();
    s.step_sizes = static_cast<uint32_t>(model_.runner().sizes());
    s.step_sizes_recorded = model_.runner().recorded();
    if (stepped) s.last_step_ns = now;
  });
  for (auto& [ticket, last] : ended_) ticket->push(std::move(last));
  ended_.clear();
}

// Until the next deadline, or until a reader is too slow.
uint64_t Loop::idle_ns(uint64_t now) const {
  uint64_t next = UINT64_MAX;
  for (const Jobs* jobs : {&active_, &waiting_}) {
    for (const auto& job : *jobs) {
      if (job->request.deadline_ns != 0) next = std::min(next, job->request.deadline_ns);
      if (job->paused_ns != 0 && options_.slow_ns < UINT64_MAX / 2) {
        next = std::min(next, job->paused_ns + options_.slow_ns + 1);
      }
    }
  }
  return next == UINT64_MAX ? next : next > now ? next - now : 1;
}

}  // namespace switchyard
