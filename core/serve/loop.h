// SPDX-License-Identifier: Apache-2.0
// Loop: what the thread of a service does between two waits: it begins requests as memory allows, runs steps, sets
// requests aside where memory runs out, and ends what was cancelled, is late or is not read. Not thread-safe.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "core/engine/batch.h"
#include "core/serve/job.h"
#include "core/serve/prefix_cache.h"

namespace switchyard {

class Loop {
 public:
  Loop(Model& model, const ServiceOptions& options, SharedStats& stats, QueueGauge& queue);
  ~Loop();

  // A request's text, as it is drawn; false ends the request.
  bool took(Job& job, const TextPiece& piece);

  void accept(std::unique_ptr<Job> job);
  // Ends what has to end, begins what can begin, and runs a step if there is something to compute. Returns how long it
  // may be left alone; 0: there is more to do.
  uint64_t tick();
  // Ends every request.
  void end_all(const std::string& reason, const Status& status);
  PrefixCache& cache() { return cache_; }
  // Nothing of it is on the way to a device afterwards.
  void settle();
  size_t jobs() const { return waiting_.size() + active_.size(); }

 private:
  using Jobs = std::vector<std::unique_ptr<Job>>;

  // What ends a request before its time; "" for nothing.
  std::string verdict(const Job& job, uint64_t now) const;
  void review(uint64_t now);
  void review_readers(uint64_t now);

  Jobs::iterator next_waiting();
  bool fits(const Job& job);
  bool caches(const Job& job) const;
  size_t pages_needed(const Job& job);
  void admit();
  bool make_way();
  Status begin(Job& job);
  Status find_session(Job& job);
  void leave_session(Job& job);
  Status resume(Job& job);
  void resume_cached(Job& job);
  std::vector<uint32_t> cuts(const Job& job, uint32_t seen) const;
  void keep(Job& job);
  Status enter_batch(Job& job);

  void run_step();
  void collect_ended();
  void make_room();
  Jobs::iterator victim();
  Status set_aside(Job& job);

  static std::string reason_of(const Job& job, const Outcome& outcome);
  void take_outcome(Job& job, const Outcome& outcome);
  // Its last event waits for `publish`.
  void end(Job& job, std::string reason, Status status = {});
  void publish(bool stepped);
  uint64_t idle_ns(uint64_t now) const;

  Model& model_;
  const ServiceOptions options_;
  SharedStats& stats_;
  QueueGauge& queue_;
  PrefixCache cache_;
  Batch batch_;
  Jobs waiting_, active_;                                                 // waiting: also those set aside
  std::vector<std::pair<std::shared_ptr<Ticket::Shared>, Event>> ended_;  // last events that are not told yet
};

}  // namespace switchyard
