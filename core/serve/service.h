// SPDX-License-Identifier: Apache-2.0
// Service: one model for many callers at once. A thread of the service, the loop, runs every step. Requests reach it
// through a bounded queue, and each request's tokens leave through a bounded queue of its own, its Ticket.
//
//   auto service = Service::create(std::move(loaded), {});
//   Admission admitted = (*service)->submit({.prompt = ids, .text = options});
//   if (!admitted.ok()) return answer(admitted.rejection);
//   while (auto event = admitted.ticket->wait()) { ...; if (event->finish) break; }
//
// Threads: every function of Service and Ticket may be called from any thread, except where it says otherwise. A
// service outlives its tickets' use of it: a ticket that is left ends with an error when its service is destroyed.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/generate/loaded_model.h"
#include "core/generate/text_generation.h"
#include "core/generate/token_constraint.h"
#include "core/serve/stats.h"

namespace switchyard {

struct GenerationRequest {
  std::vector<int32_t> prompt;  // the whole text's token ids; at least one
  TextOptions text;             // max_tokens, sampling with its seed and logprobs, stop strings, pattern
  // Instead of `text.allow_regex`. The loop calls it; it must not call the service.
  std::shared_ptr<TokenConstraint> constraint = {};
  // A session of the caller's that has seen `history`, and goes on with the prompt; NULL: one of the service's. One
  // that has seen another number of tokens is emptied, and reads the history again. Nobody else uses it until the last
  // event has come, and then only within `on_loop`; there it is also destroyed.
  std::shared_ptr<Session> session = {};
  std::vector<int32_t> history = {};
  // Of several waiting requests the one with the highest priority begins first; equal ones in the order of their
  // submission. Where memory runs out, the one with the lowest is set aside first.
  int32_t priority = 0;
  uint64_t deadline_ns = 0;  // by Os::now_ns: the request ends with the reason "deadline"; 0: none
  // Positions at which a later prompt may part from this one: the end of the system message and the tools, the start of
  // the last user message. The prefix cache keeps the states there. Rising; the ends of prompt and answer are known.
  std::vector<uint32_t> checkpoints = {};
  // Prompts of different scopes share no cached states, so that no tenant learns from times what another one asked.
  std::string cache_scope = {};
  bool cache = true;  // false: reads no cached states, and leaves none
};

struct Usage {
  uint32_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;  // cached: of the prompt's
  uint32_t set_aside = 0;                                               // times that it made room for others
  uint64_t queued_ns = 0;                                               // from `submit` to the first step
  uint64_t prompt_ns = 0, draw_ns = 0;  // from there to the first token, and from there to the last
};

// The end of a request.
struct Finish {
  // "end" (a stop id), "stop" (a stop string), "pattern" (nothing can follow), "length", "context", "cancelled",
  // "deadline", "slow" (the ticket was not read), "stopped" (the service), "failed".
  std::string reason;
  Status status;  // an error for "slow", "stopped" and "failed"
  Usage usage;
  uint64_t seed = 0;
  PathChoice path;
  uint64_t read_bytes = 0, undecided = 0;  // as Outcome has them
  DraftCounts drafts;                      // likewise
  std::string text;                        // whole
  std::vector<int32_t> ids;                // whole, with the stop id
};

struct Event {
  int32_t id = -1;    // -1: no token; the text that was held back at the end
  std::string text;   // that became complete with this token; often empty
  float logprob = 0;  // with SamplingParams::logprob
  std::vector<std::pair<int32_t, float>> top = {};
  std::shared_ptr<const Finish> finish = {};  // set in the last event, which may have text but has no token
};

// One request's events. A ticket that is destroyed cancels what still runs.
class Ticket {
 public:
  struct Shared;  // with the loop
  explicit Ticket(std::shared_ptr<Shared> shared);
  ~Ticket();
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;

  uint64_t id() const;
  uint64_t seed() const;  // that its tokens are drawn with
  // The next event; none if there is none yet, or none left.
  std::optional<Event> poll();
  // Waits for it; none after the last event, or after `timeout_ns`.
  std::optional<Event> wait(uint64_t timeout_ns = UINT64_MAX);
  // Moves the events that are there to the end of `events`; whether there were any.
  bool take(std::deque<Event>& events);
  // Asks for `wake` when the next event has come; false: one is there already.
  bool arm();
  // `wake` is called when an event has come after `poll` had none to give or after `arm`, and with the last event. The
  // loop calls it or, if an event is there already, this function. It must be quick, and may post to another thread; it
  // may not call the service. Empty: none. After the call no earlier `wake` runs.
  void on_event(std::function<void()> wake);
  // Ends the request within a step; its last event comes.
  void cancel();

 private:
  std::shared_ptr<Shared> shared_;
};

// Why a request was not taken.
struct Rejection {
  enum class Why {
    none,
    invalid,     // a parameter, a token id: the client's error
    too_long,    // prompt_tokens do not fit into context_tokens
    queue_full,  // come again after retry_after_ms
    draining,    // the service ends
  };
  Why why = Why::none;
  Status status;
  uint32_t retry_after_ms = 0;
  uint64_t prompt_tokens = 0, context_tokens = 0;
};

struct Admission {
  std::shared_ptr<Ticket> ticket;  // NULL: refused
  Rejection rejection;
  bool ok() const { return ticket != nullptr; }
};

struct ServiceOptions {
  uint32_t queue = 1024;                   // waiting requests
  uint64_t queue_tokens = 1u << 24;        // of waiting prompts
  uint32_t events = 256;                   // in a ticket that is not read, before its request pauses
  uint64_t slow_ns = 60'000'000'000;       // a request that paused for so long ends with "slow"
  uint32_t prompt_rows = 256;              // BatchOptions::prompt_rows
  uint64_t cache_bytes = UINT64_MAX;       // of states on the devices that the prefix cache keeps; 0: no cache
  uint64_t cache_host_bytes = 1ull << 30;  // of the states that it keeps in host memory besides
  // Of every request, in place of TextOptions::speculate.
  Speculation speculate = Speculation::off;
  uint32_t checkpoint_tokens = 8192;  // the cache keeps the states of a long prompt this often; 0: never
  // What the digits of the states depend on besides the model, its devices and their backends: the program's version,
  // settings. Service::load_cache takes in no file of another one.
  std::string cache_identity = {};
  std::function<void(const std::string& message)> warn = {};  // called by the loop
};

// Of Service::save_cache and load_cache: states that are in the file.
struct SavedCache {
  uint32_t states = 0;
  uint64_t tokens = 0, bytes = 0;
};

class Service {
 public:
  // Starts the loop. A model that is made with ModelOptions::checkpoints keeps so many of the prefix cache's states on
  // its devices; others are in host memory alone. Errors: those of the model's devices.
  static Result<std::unique_ptr<Service>> create(LoadedModel loaded, const ServiceOptions& options = {});
  ~Service();  // stop()

  // The tokenizer and the program may be used from any thread, the model's constants (context, vocab) as well.
  const LoadedModel& loaded() const;

  // Why `submit` would not take a prompt, whatever else is asked for; it counts as refused then. [thread-safe]
  Rejection check_prompt(std::span<const int32_t> ids);
  // Checks the request and puts it into the queue, without waiting.
  Admission submit(GenerationRequest request);

  // Refuses new requests from now on, lets the others end, and returns when all have, or after `timeout_ns`; whether
  // all have.
  bool drain(uint64_t timeout_ns = UINT64_MAX);
  // Refuses new requests, ends the others with the reason "stopped", and ends the loop.
  void stop();

  // The prefix cache's states in a file, for the next process with this model, from the most recently used on and at
  // most `max_bytes`. The file is replaced atomically, and has the texts of prompts in it. Errors: io, those of the
  // devices; cancelled, when the service has stopped.
  Result<SavedCache> save_cache(const std::string& path, uint64_t max_bytes);
  // Takes such a file in, whose states are read when a prompt needs them. Those that turn out to be damaged then are
  // reported to ServiceOptions::warn, and the prompt is read instead. Errors: not_found; invalid_data, usage: nothing
  // is taken in of a file that is damaged, or of another model, program or backend, or after another file.
  Result<SavedCache> load_cache(const std::string& path);

  ServiceStats stats() const;

  // Runs `work` on the loop, between two steps, and waits for it. Not to be called on the loop. Errors: those of
  // `work`; cancelled, when the service has stopped: then its loop has ended, and `work` has not run.
  Status on_loop(const std::function<Status(Model&)>& work);
  // The same, but where `work` returns out_of_device_memory, the prefix cache gives memory up and `work` runs again,
  // until the cache has none left.
  Status on_loop_with_room(const std::function<Status(Model&)>& work);

 private:
  struct Impl;
  explicit Service(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace switchyard
