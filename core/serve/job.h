// SPDX-License-Identifier: Apache-2.0
// Job: a request inside the service, from the queue to its last event.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/serve/service.h"
#include "core/serve/ticket.h"

namespace switchyard {

struct Job {
  std::shared_ptr<Ticket::Shared> ticket;
  GenerationRequest request;
  std::unique_ptr<TextGeneration> text;                                // its pieces go to `ticket`
  uint64_t order = 0;                                                  // of submission
  uint64_t submitted_ns = 0, begun_ns = 0, first_ns = 0, last_ns = 0;  // begun: its first step; first, last: tokens
  uint64_t paused_ns = 0;  // since when it waits for its reader; 0: it does not
  bool queued = false;     // see QueueGauge
  Usage usage;
  std::vector<int32_t> ids;          // drawn so far
  std::shared_ptr<Session> session;  // while it runs; the caller's also before and after
  std::string aside;                 // its states, while it is set aside: Session::snapshot
  uint64_t id = 0;                   // in the batch; 0: it waits
  uint32_t common = 0;               // tokens in common with a text that the prefix cache knows
  PathChoice path;
  uint64_t read_bytes = 0, undecided = 0;  // of the batch requests that ended
  DraftCounts drafts;                      // likewise

  // Tokens of its whole text so far.
  size_t tokens() const { return request.history.size() + request.prompt.size() + ids.size(); }
  // The tokens from `from` on, up to `to`.
  std::vector<int32_t> part(size_t from, size_t to) const;
};

// Whether `a` begins before `b`.
bool before(const Job& a, const Job& b);

// The requests that wait for their first step.
struct QueueGauge {
  std::atomic<uint64_t> jobs = 0, tokens = 0;

  void enter(Job& job) {
    job.queued = true;
    ++jobs;
    tokens += job.request.prompt.size();
  }
  void leave(Job& job) {
    if (!std::exchange(job.queued, false)) return;
    --jobs;
    tokens -= job.request.prompt.size();
  }
};

// ServiceStats that one thread writes and others read.
class SharedStats {
 public:
  template <class Change>
  void update(Change change) {
    const std::lock_guard lock(mutex_);
    change(stats_);
  }
  ServiceStats read() const {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

 private:
  mutable std::mutex mutex_;
  ServiceStats stats_;
};

}  // namespace switchyard
