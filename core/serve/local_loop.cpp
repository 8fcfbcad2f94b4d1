// SPDX-License-Identifier: Apache-2.0
#include "core/serve/local_loop.h"

namespace switchyard {
namespace {

// Its requests never wait for a reader: the reader is the thread that computes.
ServiceOptions local_options(uint32_t prompt_rows) {
  ServiceOptions o;
  o.events = UINT32_MAX;
  o.slow_ns = UINT64_MAX;
  o.prompt_rows = prompt_rows;
  o.cache_bytes = 0;
  return o;
}

}  // namespace

LocalLoop::LocalLoop(Model& model, const Tokenizer* tokenizer, uint32_t prompt_rows, DraftModel* draft)
    : options_(local_options(prompt_rows)), intake_(model, tokenizer, draft), loop_(model, options_, stats_, queue_) {}

LocalLoop::~LocalLoop() { loop_.end_all("stopped", error(Code::cancelled, "the loop was ended")); }

Result<std::shared_ptr<Ticket>> LocalLoop::submit(GenerationRequest request) {
  auto job = std::make_unique<Job>();
  job->submitted_ns = Os::real().now_ns();
  job->ticket = std::make_shared<Ticket::Shared>(next_id_++, bell_, options_.events);
  Job& own = *job;
  const Rejection no =
      intake_.check(request, own, [this, &own](const TextPiece& piece) { return loop_.took(own, piece); });
  if (no.why != Rejection::Why::none) return no.status;
  job->request = std::move(request);
  job->order = job->ticket->id;
  auto ticket = std::make_shared<Ticket>(job->ticket);
  queue_.enter(*job);
  loop_.accept(std::move(job));
  return ticket;
}

}  // namespace switchyard
