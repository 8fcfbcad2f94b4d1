// SPDX-License-Identifier: Apache-2.0
// How the loop begins a request: as memory allows, with what the prefix cache knows of its prompt.
#include <algorithm>

#include "core/serve/loop.h"

namespace switchyard {
namespace {

constexpr uint32_t kPageTokens = StatePool::kPageSize;

uint32_t pages_holding(size_t tokens) { return static_cast<uint32_t>((tokens + kPageTokens - 1) / kPageTokens); }

}  // namespace

Loop::Jobs::iterator Loop::next_waiting() {
  auto best = waiting_.end();
  for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
    if ((*it)->paused_ns != 0) continue;  // set aside, and nobody reads what it has drawn
    if (best == waiting_.end() || before(**it, **best)) best = it;
  }
  return best;
}

// Whether the memory holds what the request has read or is to read, and a further page for everybody that runs. What it
// draws may need more: then somebody is set aside.
bool Loop::fits(const Job& job) {
  // With no active request, the sessions are held by a text that is being scored. It wakes the loop when it ends.
  if (job.request.session == nullptr && model_.states().sessions() >= model_.max_sessions()) return false;
  if (active_.empty()) return true;
  while (pages_needed(job) > model_.states().pages().free()) {
    if (!cache_.make_room()) return false;
  }
  return true;
}

size_t Loop::pages_needed(const Job& job) {
  size_t held = 0;
  if (const Session* own = job.request.session.get()) held = pages_holding(own->position());
  if (caches(job)) {
    const PrefixCache::Hit hit = cache_.find(job.request.cache_scope, job.request.prompt);
    held = std::min<size_t>(hit.pages, hit.position / kPageTokens);
  }
  return pages_holding(job.tokens() + 1) - held + active_.size();
}

// Whether its prompt is yet to be looked up, and its states may be kept.
bool Loop::caches(const Job& job) const {
  return options_.cache_bytes > 0 && job.request.cache && job.request.history.empty();
}

// A request whose client does not read holds no session that another one waits for: its states go to the host's memory.
// As many may be there as there are sessions; the next one ends. False: there is no such request.
bool Loop::make_way() {
  const auto unread = [](const auto& job) { return job->paused_ns != 0 && job->request.session == nullptr; };
  if (std::none_of(active_.begin(), active_.end(), unread)) return false;
  settle();
  collect_ended();
  const auto key = [&](const auto& job) { return unread(job) ? job->paused_ns : UINT64_MAX; };
  const auto longest =
      std::min_element(active_.begin(), active_.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
  if (longest == active_.end() || !unread(*longest)) return true;  // those that were there have ended
  std::unique_ptr<Job> job = std::move(*longest);
  active_.erase(longest);
  if (std::count_if(waiting_.begin(), waiting_.end(), unread) >= model_.max_sessions()) {
    end(*job, "slow", error(Code::cancelled, "the answer was not read while other requests waited, so it was ended"));
  } else if (const Status aside = set_aside(*job); aside.ok()) {
    waiting_.push_back(std::move(job));
  } else {
    end(*job, "failed", aside);
  }
  return true;
}

void Loop::admit() {
  for (auto next = next_waiting(); next != waiting_.end(); next = next_waiting()) {
    if (!fits(**next)) {
      if (!make_way()) break;
      continue;
    }
    const Status begun = begin(**next);
    if (begun.code() == Code::out_of_device_memory) {
      if (!active_.empty()) break;
      if (cache_.make_room()) continue;  // states that were set aside find their place again
    }
    std::unique_ptr<Job> job = std::move(*next);
    waiting_.erase(next);
    if (begun.ok()) {
      active_.push_back(std::move(job));
    } else {
      end(*job, "failed", begun);
    }
  }
}

Status Loop::begin(Job& job) {
  SWY_TRY(find_session(job));
  Status ready = resume(job);
  if (ready.ok()) ready = enter_batch(job);
  if (!ready.ok()) leave_session(job);
  return ready;
}

Status Loop::find_session(Job& job) {
  if (job.request.session != nullptr) {
    job.session = job.request.session;
    if (job.begun_ns == 0 && job.session->position() != job.request.history.size()) job.session->reset();
    return {};
  }
  SWY_LET(job.session, model_.session());
  return {};
}

void Loop::leave_session(Job& job) {
  if (job.request.session == nullptr && job.session != nullptr) job.session->reset();
  job.session.reset();
}

Status Loop::resume(Job& job) {
  if (job.begun_ns == 0 && caches(job)) resume_cached(job);
  if (job.aside.empty()) return {};
  SWY_TRY(job.session->restore(job.aside));
  std::string().swap(job.aside);
  return {};
}

// Without memory for states that were kept, the whole prompt is read.
void Loop::resume_cached(Job& job) {
  const GenerationRequest& r = job.request;
  const PrefixCache::Hit hit = cache_.find(r.cache_scope, r.prompt);
  job.common = hit.common;
  const auto seen = cache_.resume(r.cache_scope, r.prompt, *job.session);
  if (!seen.ok()) job.session->reset();
  if (seen.status().code() == Code::invalid_data && options_.warn) {
    options_.warn(std::string(seen.status().message()) + ", and the prompt is read");
  }
  job.usage.cached_tokens = job.session->position();
  stats_.update([&](ServiceStats& s) {
    ++s.cache_queries;
    s.cache_hits += job.usage.cached_tokens > 0 ? 1 : 0;
    s.cache_hit_tokens += job.usage.cached_tokens;
  });
}

// Where the states of a prompt are kept: where the request says so, where another text parted from this one, every
// checkpoint_tokens, before its last tokens, since the next turn of a conversation often has others there, and at its
// end. With --deterministic only where a prompt may be split, so that what follows is computed as it is without a
// cache.
std::vector<uint32_t> Loop::cuts(const Job& job, uint32_t seen) const {
  constexpr uint32_t kApart = 32;  // each cut is a further step
  const auto end = static_cast<uint32_t>(job.request.prompt.size());
  if (!caches(job) || seen >= end) return {};
  std::vector<uint32_t> wanted = job.request.checkpoints, all;
  wanted.push_back(job.common);
  wanted.push_back((end - 1) / kPageTokens * kPageTokens);
  const uint32_t every = options_.checkpoint_tokens;
  for (uint64_t at = every; every > 0 && at < end; at += every) wanted.push_back(static_cast<uint32_t>(at));
  for (uint32_t& at : wanted) at = model_.deterministic() ? at / kPageTokens * kPageTokens : at;
  std::sort(wanted.begin(), wanted.end());
  for (const uint32_t at : wanted) {
    if (at < end && at >= (all.empty() ? seen : all.back()) + kApart) all.push_back(at);
  }
  if (!model_.deterministic() || end % kPageTokens == 0) all.push_back(end);
  return all;
}

void Loop::keep(Job& job) {
  const uint32_t seen = job.session->position();
  cache_.keep(job.request.cache_scope, job.part(0, seen), *job.session);
}

Status Loop::enter_batch(Job& job) {
  const size_t seen = job.session->position(), all = job.tokens();
  Request request = job.text->request(job.part(seen, all), job.part(0, seen), job.session.get());
  request.drawn = job.ids;
  request.priority = job.request.priority;
  request.shares_states = job.request.session != nullptr || caches(job);
  request.cuts = cuts(job, static_cast<uint32_t>(seen));
  request.on_cut = [this, &job](uint32_t) { keep(job); };
  SWY_LET(job.id, batch_.add(*job.session, std::move(request)));
  job.path = batch_.outcome(job.id)->path;
  if (job.begun_ns != 0) return {};
  job.begun_ns = Os::real().now_ns();
  job.usage.queued_ns = job.begun_ns - job.submitted_ns;
  queue_.leave(job);
  stats_.update([&](ServiceStats& s) { s.queued.add(job.usage.queued_ns); });
  return {};
}

}  // namespace switchyard
