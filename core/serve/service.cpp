// SPDX-License-Identifier: Apache-2.0
#include "core/serve/service.h"

#include <algorithm>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "core/serve/intake.h"
#include "core/serve/loop.h"

namespace switchyard {

struct Service::Impl {
  struct Work {
    const std::function<Status(Model&)>& run;
    std::promise<Status> done;
  };

  Impl(LoadedModel model, const ServiceOptions& o)
      : loaded(std::move(model)),
        options(o),
        intake(*loaded.model, loaded.tokenizer.get(), loaded.draft.get()),
        loop(*loaded.model, options, stats, queue) {}

  void run();
  bool take_in();  // whether the loop ends
  Rejection enter(std::unique_ptr<Job> job);
  Rejection counted(Rejection rejection);
  uint32_t retry_after_ms() const;

  LoadedModel loaded;
  const ServiceOptions options;
  const Intake intake;
  SharedStats stats;
  QueueGauge queue;
  const std::shared_ptr<Bell> bell = std::make_shared<Bell>();
  std::atomic<uint64_t> next_id = 1;

  std::mutex mutex;  // of the fields up to `empty`
  std::vector<std::unique_ptr<Job>> inbox;
  std::vector<Work*> works;
  bool draining = false, stopping = false, ended = false;  // ended: the loop has
  size_t unfinished = 0;                                   // requests
  std::condition_variable emptied;

  std::mutex joining;
  Loop loop;  // used by the thread alone
  std::thread thread;
};

bool Service::Impl::take_in() {
  std::vector<std::unique_ptr<Job>> jobs;
  std::vector<Work*> work;
  bool ends = false;
  {
    const std::lock_guard lock(mutex);
    jobs.swap(inbox);
    work.swap(works);
    ends = stopping;
    unfinished = loop.jobs() + jobs.size();
    if (unfinished == 0 || ends) emptied.notify_all();
  }
  for (auto& job : jobs) loop.accept(std::move(job));
  for (Work* w : work) {
    loop.settle();
    std::promise<Status> done = std::move(w->done);  // `w` goes as soon as its owner has the result
    done.set_value(w->run(*loaded.model));
  }
  return ends;
}

void Service::Impl::run() {
  while (!take_in()) {
    if (const uint64_t idle = loop.tick(); idle > 0) {
      {
        const std::lock_guard lock(mutex);
        unfinished = loop.jobs() + inbox.size();
        if (unfinished == 0) emptied.notify_all();
      }
      bell->wait(idle);
    }
  }
  loop.end_all("stopped", error(Code::cancelled, "the service was stopped before the answer was complete"));
  const std::lock_guard lock(mutex);
  unfinished = 0;
  ended = true;
  emptied.notify_all();
}

// ---- requests ----

namespace {

const char* why_name(Rejection::Why why) {
  switch (why) {
    case Rejection::Why::invalid:
      return "invalid";
    case Rejection::Why::too_long:
      return "too_long";
    case Rejection::Why::queue_full:
      return "queue_full";
    default:
      return "draining";
  }
}

}  // namespace

// As long as the waiting requests take, if those before them are a measure.
uint32_t Service::Impl::retry_after_ms() const {
  const ServiceStats s = stats.read();
  const double each = s.whole.count == 0 ? 1 : s.whole.sum_seconds / static_cast<double>(s.whole.count);
  const double rounds = static_cast<double>(queue.jobs.load()) / loaded.model->max_sessions();
  return static_cast<uint32_t>(std::clamp(each * rounds, 1.0, 60.0) * 1000);
}

Rejection Service::Impl::enter(std::unique_ptr<Job> job) {
  const uint32_t later = retry_after_ms();
  const std::lock_guard lock(mutex);
  if (draining || stopping) {
    return {Rejection::Why::draining, error(Code::cancelled, "the service is shutting down"), later, 0, 0};
  }
  if (queue.jobs.load() >= options.queue || queue.tokens.load() + job->request.prompt.size() > options.queue_tokens) {
    Status full = error(Code::out_of_host_memory, "{} requests wait already; try again in {} s", queue.jobs.load(),
                        (later + 999) / 1000);
    return {Rejection::Why::queue_full, std::move(full), later, 0, 0};
  }
  queue.enter(*job);
  job->order = job->ticket->id;
  inbox.push_back(std::move(job));
  ++unfinished;
  return {};
}

// Counts a refusal.
Rejection Service::Impl::counted(Rejection rejection) {
  if (rejection.why != Rejection::Why::none) {
    stats.update([&](ServiceStats& all) { ++all.refused[why_name(rejection.why)]; });
  }
  return rejection;
}

Rejection Service::check_prompt(std::span<const int32_t> ids) {
  return impl_->counted(impl_->intake.check_prompt(ids));
}

Admission Service::submit(GenerationRequest request) {
  Impl& s = *impl_;
  auto job = std::make_unique<Job>();
  job->submitted_ns = Os::real().now_ns();
  job->ticket = std::make_shared<Ticket::Shared>(s.next_id++, s.bell, std::max(1u, s.options.events));
  Job& own = *job;
  Rejection rejection{Rejection::Why::invalid, s.loaded.text().status(), 0, 0, 0};
  if (rejection.status.ok()) {
    request.text.speculate = s.options.speculate;
    rejection = s.intake.check(request, own, [&s, &own](const TextPiece& piece) { return s.loop.took(own, piece); });
  }
  job->request = std::move(request);
  const auto ticket = job->ticket;
  if (rejection.why == Rejection::Why::none) rejection = s.enter(std::move(job));
  if (rejection.why != Rejection::Why::none) return {nullptr, s.counted(std::move(rejection))};
  s.stats.update([](ServiceStats& stats) { ++stats.submitted; });
  s.bell->ring();
  return {std::make_shared<Ticket>(ticket), {}};
}

// ---- life ----

Service::Service(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Service>> Service::create(LoadedModel loaded, const ServiceOptions& options) {
  auto impl = std::make_unique<Impl>(std::move(loaded), options);
  Impl* const own = impl.get();
  try {
    impl->thread = std::thread([own] { own->run(); });
  } catch (const std::system_error& e) {
    return error(Code::io, "the system refuses a thread for the service: {}", e.what());
  }
  return std::unique_ptr<Service>(new Service(std::move(impl)));
}

Service::~Service() { stop(); }

const LoadedModel& Service::loaded() const { return impl_->loaded; }

bool Service::drain(uint64_t timeout_ns) {
  Impl& s = *impl_;
  constexpr uint64_t kMost = uint64_t{365} * 86400 * 1'000'000'000;
  std::unique_lock lock(s.mutex);
  s.draining = true;
  return s.emptied.wait_for(lock, std::chrono::nanoseconds(std::min(timeout_ns, kMost)),
                            [&] { return s.unfinished == 0; });
}

void Service::stop() {
  Impl& s = *impl_;
  {
    const std::lock_guard lock(s.mutex);
    s.stopping = true;
  }
  s.bell->ring();
  const std::lock_guard joining(s.joining);
  if (s.thread.joinable()) s.thread.join();
}

ServiceStats Service::stats() const {
  ServiceStats stats = impl_->stats.read();
  stats.waiting = static_cast<uint32_t>(impl_->queue.jobs.load());
  stats.waiting_tokens = impl_->queue.tokens.load();
  const std::lock_guard lock(impl_->mutex);
  stats.draining = impl_->draining || impl_->stopping;
  return stats;
}

Result<SavedCache> Service::save_cache(const std::string& path, uint64_t max_bytes) {
  SavedCache saved;
  SWY_TRY(on_loop([&](Model&) -> Status {
    SWY_LET(saved, impl_->loop.cache().save(Os::real(), path, max_bytes));
    return {};
  }));
  return saved;
}

Result<SavedCache> Service::load_cache(const std::string& path) {
  SavedCache loaded;
  SWY_TRY(on_loop([&](Model&) -> Status {
    SWY_LET(loaded, impl_->loop.cache().load(Os::real(), path));
    return {};
  }));
  return loaded;
}

Status Service::on_loop_with_room(const std::function<Status(Model&)>& work) {
  return on_loop([&](Model& model) {
    Status status = work(model);
    while (status.code() == Code::out_of_device_memory && impl_->loop.cache().make_room()) status = work(model);
    return status;
  });
}

Status Service::on_loop(const std::function<Status(Model&)>& work) {
  Impl& s = *impl_;
  Impl::Work posted{work, {}};
  std::future<Status> done = posted.done.get_future();
  {
    std::unique_lock lock(s.mutex);
    if (s.stopping) {
      // The caller may give up a session by itself now, which the loop's last step must not see.
      s.emptied.wait(lock, [&] { return s.ended; });
      return error(Code::cancelled, "the service was stopped");
    }
    s.works.push_back(&posted);
  }
  s.bell->ring();
  return done.get();
}

}  // namespace switchyard
