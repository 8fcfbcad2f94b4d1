// SPDX-License-Identifier: Apache-2.0
// LocalLoop: the loop of a service on the caller's thread, for measurements that time single steps. Requests, their
// tickets and their steps are those of a Service; only the thread and the inbox are missing.
#pragma once

#include <memory>

#include "core/serve/intake.h"
#include "core/serve/loop.h"

namespace switchyard {

// Not thread-safe.
class LocalLoop {
 public:
  // `model` and `tokenizer` outlive it. Without a tokenizer the events have ids alone. It has no prefix cache.
  // `draft`: the model that guesses, or NULL.
  LocalLoop(Model& model, const Tokenizer* tokenizer, uint32_t prompt_rows, DraftModel* draft = nullptr);
  ~LocalLoop();
  LocalLoop(const LocalLoop&) = delete;
  LocalLoop& operator=(const LocalLoop&) = delete;

  // The request begins with the next `tick`. Errors: as a Rejection has them.
  Result<std::shared_ptr<Ticket>> submit(GenerationRequest request);
  // One turn of the loop, which runs a step if there is something to compute. Failures are in the tickets' last events.
  void tick() { loop_.tick(); }

 private:
  const ServiceOptions options_;
  const Intake intake_;
  const std::shared_ptr<Bell> bell_ = std::make_shared<Bell>();
  SharedStats stats_;
  QueueGauge queue_;
  Loop loop_;
  uint64_t next_id_ = 1;
};

}  // namespace switchyard
