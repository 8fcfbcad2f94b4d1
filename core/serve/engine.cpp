// SPDX-License-Identifier: Apache-2.0
#include "switchyard/engine.h"

#include <atomic>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/engine/mtp_drafter.h"
#include "core/engine/prepare.h"
#include "core/generate/loaded_model.h"
#include "core/generate/session_file.h"
#include "core/plan/code_store.h"
#include "core/plan/tuning.h"
#include "core/sampling/recommended.h"
#include "core/serve/turn.h"
#include "core/text/chat_template.h"

namespace switchyard {
namespace {

// Tokens that a stream may be ahead of its reader.
constexpr uint32_t kEvents = 32;

TextOptions text_options(const GenerateOptions& o, const Program& program) {
  TextOptions t;
  t.max_tokens = o.max_tokens;
  SamplingParams& p = t.sampling;
  take_recommended(program.metadata, p);
  p.temperature = o.temperature.value_or(p.temperature);
  p.top_p = o.top_p.value_or(p.top_p);
  p.min_p = o.min_p.value_or(p.min_p);
  p.top_k = o.top_k.value_or(p.top_k);
  p.repetition_penalty = o.repetition_penalty.value_or(p.repetition_penalty);
  p.presence_penalty = o.presence_penalty.value_or(p.presence_penalty);
  p.frequency_penalty = o.frequency_penalty.value_or(p.frequency_penalty);
  p.seed = o.seed;
  p.top_logprobs = o.logprobs;
  // Ids below zero become ids beyond every vocabulary, which the sampler refuses by name.
  for (const auto& [id, bias] : o.logit_bias) p.biases.push_back({static_cast<uint32_t>(id), bias});
  t.stops = o.stops;
  t.allow_regex = o.allow_regex;
  t.json_schema = o.json_schema;
  t.grammar = o.grammar;
  t.ignore_eos = o.ignore_eos;
  return t;
}

}  // namespace

struct Engine::Impl {
  std::unique_ptr<Service> service;
};

struct TextSession::Impl {
  Service& service;
  std::shared_ptr<Session> session;  // used within Service::on_loop
  TextThread thread;
  std::atomic<uint32_t> position = 0;  // of the session, when the last call ended
  std::atomic<bool> busy = false;
  std::mutex mutex;  // of the two below
  std::shared_ptr<Ticket> running;
  bool cancelled = false;

  Impl(Service& s, std::unique_ptr<Session> own)
      : service(s), session(std::move(own)), thread(*session, *s.loaded().tokenizer) {}
  ~Impl() {
    const auto empty = [&](Model&) -> Status {
      session.reset();
      return {};
    };
    (void)service.on_loop(empty).ok();  // without a loop it goes with this object
  }
  Status claim() {
    if (!busy.exchange(true)) {
      const std::lock_guard lock(mutex);
      cancelled = false;
      return {};
    }
    return error(Code::usage, "the session is in use by another call; wait for it, or use a session for each thread");
  }
  void run(std::shared_ptr<Ticket> ticket) {
    const std::lock_guard lock(mutex);
    running = std::move(ticket);
    if (running != nullptr && cancelled) running->cancel();
  }
  void cancel() {
    const std::lock_guard lock(mutex);
    cancelled = true;
    if (running != nullptr) running->cancel();
  }
  // `work` on the loop, where the session may be used.
  template <class Work>
  Status with_session(Work work) {
    return service.on_loop([&](Model& model) -> Status {
      Status done = work(model);
      position.store(session->position());
      return done;
    });
  }
};

struct TextStream::Impl {
  TextSession::Impl& session;
  std::shared_ptr<Ticket> ticket = {};
  TextThread::Reading reading = {};  // what the session is fed
  Generated result = {};             // of the tokens that were taken
  Status status = {};

  explicit Impl(TextSession::Impl& s) : session(s) {}
  ~Impl() {
    if (ticket != nullptr) end("cancelled");
    session.busy.store(false);
  }

  Status begin(std::string_view prompt, const GenerateOptions& o) {
    TextThread& thread = session.thread;
    SWY_LET(reading, thread.read(thread.text() + std::string(prompt)));
    TextOptions options = text_options(o, *session.service.loaded().program);
    SWY_LET(options.path, parse_path(o.sampling));
    SWY_LET(ticket, begin_turn(session.service, session.session, thread, reading, options));
    session.run(ticket);
    return {};
  }

  // Waits for the next token; none when the generation has ended.
  std::optional<GeneratedToken> next() {
    if (ticket == nullptr) return std::nullopt;
    std::optional<Event> event = ticket->wait();
    if (!event || event->finish != nullptr) {
      finish(event ? *event->finish : Finish{}, {});
      return std::nullopt;
    }
    result.text += event->text;
    if (event->id >= 0) result.ids.push_back(event->id);
    return GeneratedToken{event->id, std::move(event->text), event->logprob, std::move(event->top)};
  }

  // Ends the generation after the tokens that were taken.
  void end(const char* why) {
    ticket->cancel();
    for (std::optional<Event> event = ticket->wait(); event; event = ticket->wait()) {
      if (event->finish == nullptr) continue;
      finish(*event->finish, why);
      return;
    }
  }

  void finish(const Finish& f, const std::string& why) {
    session.run(nullptr);
    ticket = nullptr;
    status = f.status;
    result.stopped = why.empty() ? f.reason : why;
    result.sampling = fmt::format("{} ({})", path_name(f.path.path), f.path.reason);
    result.seed = f.seed;
    result.cached_tokens = f.usage.cached_tokens;
    result.drafted = f.drafts.all_drafted();
    result.accepted = f.drafts.all_accepted();
    result.prompt_seconds = static_cast<double>(f.usage.prompt_ns) / 1e9;
    result.draw_seconds = static_cast<double>(f.usage.draw_ns) / 1e9;
    (void)end_turn(session.service, session.thread, reading, result.ids, result.text, f).ok();
    (void)session.with_session([](Model&) { return Status(); }).ok();  // for its position
  }
};

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

Result<Engine> Engine::load(const EngineOptions& o) {
  if (o.model.empty()) return error(Code::usage, "EngineOptions::model is empty; name a .swy file");
  if (o.sessions == 0) return error(Code::usage, "EngineOptions::sessions is 0; it must be at least 1");
  const uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
  if (o.threads > cores)
    return error(Code::usage, "EngineOptions::threads is {}; this machine has {} cores", o.threads, cores);
  auto impl = std::make_unique<Impl>();
  auto host = std::make_shared<Host>(o.threads == 0 ? cores : o.threads);
  DiscoveryOptions discovery = default_discovery();
  discovery.search_path = o.backend_path;
  Registry registry = Registry::discover(Os::real(), discovery, *host);
  SWY_LET(Program program, Program::load(Os::real(), o.model));
  ModelOptions options;
  options.context = o.context;
  options.sessions = o.sessions;
  options.state_bytes = o.state_bytes;
  options.deterministic = o.deterministic;
  options.checkpoints = o.cache_states;
  const auto speculation = parse_speculation(o.speculate);
  if (!speculation.ok()) {
    return error(Code::usage, "EngineOptions::speculate is '{}'; it must be auto, mtp, ngram, model:FILE or off",
                 o.speculate);
  }
  SWY_TRY(add_speculation(*speculation, program, options));
  options.load_threads = host->threads();
  options.tuning = load_tuning(Os::real(), default_tuning_path(), host->threads());
  options.code_folder = default_code_folder();
  const uint64_t free_bytes = Os::real().available_memory();
  SWY_LET(LoadedModel loaded, load_model(host, std::move(registry), o.backend,
                                         std::make_shared<const Program>(std::move(program)), options));
  if (const std::string file(draft_model_file(o.speculate)); !file.empty()) {
    SWY_LET(Program draft, Program::load(Os::real(), file));
    DraftModelSource source{file, std::make_shared<const Program>(std::move(draft)), free_bytes};
    SWY_TRY(add_draft_model(loaded, o.backend, std::move(source), options));
  }
  const SamplingParams sampling = text_options({}, *loaded.program).sampling;
  if (o.sessions > 1) {
    SWY_TRY(prepare_steps(*loaded.model, sampling));
  } else if (options.drafts > 0) {
    SWY_TRY(prepare_decoding(*loaded.model, sampling));
  }
  ServiceOptions serving;
  serving.queue = UINT32_MAX;  // each session has one request at most
  serving.queue_tokens = UINT64_MAX;
  serving.events = kEvents;
  serving.slow_ns = UINT64_MAX;  // a stream may be left alone
  serving.cache_bytes = o.cache_states == 0 && o.cache_bytes == 0 ? 0 : UINT64_MAX;
  serving.cache_host_bytes = o.cache_bytes;
  serving.speculate = *speculation;
  SWY_LET(impl->service, Service::create(std::move(loaded), serving));
  return Engine(std::move(impl));
}

Result<TextSession> Engine::session() {
  Service& service = *impl_->service;
  SWY_TRY(service.loaded().text().status());
  std::unique_ptr<Session> session;
  SWY_TRY(service.on_loop([&](Model& model) -> Status {
    SWY_LET(session, model.session());
    return {};
  }));
  return TextSession(std::make_unique<TextSession::Impl>(service, std::move(session)));
}

Result<std::vector<int32_t>> Engine::encode(std::string_view text) const {
  SWY_LET(const Tokenizer* tokenizer, impl_->service->loaded().text());
  return tokenizer->encode(text);
}

std::string Engine::decode(const std::vector<int32_t>& ids) const {
  return impl_->service->loaded().tokenizer == nullptr ? std::string()
                                                       : impl_->service->loaded().tokenizer->decode(ids);
}

Result<std::string> Engine::chat_prompt(const std::vector<std::pair<std::string, std::string>>& messages) const {
  if (impl_->service->loaded().program->chat_template.empty()) {
    return error(Code::unsupported, "this model has no chat template");
  }
  SWY_LET(const ChatTemplate parsed, ChatTemplate::parse(impl_->service->loaded().program->chat_template));
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  SWY_LET(const Tokenizer* tokenizer, impl_->service->loaded().text());
  for (const auto& [role, content] : messages) {
    list.push_back({{"role", role}, {"content", tokenizer->quote_specials(content)}});
  }
  return parsed.render(list, true);
}

std::vector<std::string> Engine::devices() const { return impl_->service->loaded().model->device_names(); }
uint32_t Engine::vocab() const { return impl_->service->loaded().model->vocab(); }

TextStream::TextStream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TextStream::TextStream(TextStream&&) noexcept = default;
TextStream& TextStream::operator=(TextStream&&) noexcept = default;
TextStream::~TextStream() = default;

Result<std::optional<GeneratedToken>> TextStream::next() {
  if (auto token = impl_->next()) return token;
  SWY_TRY(impl_->status);
  return std::optional<GeneratedToken>();
}

const Generated& TextStream::result() const { return impl_->result; }

TextSession::TextSession(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TextSession::TextSession(TextSession&&) noexcept = default;
TextSession& TextSession::operator=(TextSession&&) noexcept = default;
TextSession::~TextSession() = default;

Result<TextStream> TextSession::stream(std::string_view prompt, const GenerateOptions& options) {
  SWY_TRY(impl_->claim());
  TextStream stream(std::make_unique<TextStream::Impl>(*impl_));  // gives the claim back
  SWY_TRY(stream.impl_->begin(prompt, options));
  return stream;
}

Result<Generated> TextSession::generate(std::string_view prompt, const GenerateOptions& options,
                                        std::function<bool(const GeneratedToken&)> on_token) {
  SWY_TRY(impl_->claim());
  TextStream stream(std::make_unique<TextStream::Impl>(*impl_));
  SWY_TRY(stream.impl_->begin(prompt, options));
  while (const auto token = stream.impl_->next()) {
    if (on_token && !on_token(*token)) {
      stream.impl_->end("callback");
      break;
    }
  }
  SWY_TRY(stream.impl_->status);
  return stream.result();
}

void TextSession::cancel() { impl_->cancel(); }
uint32_t TextSession::position() const { return impl_->position.load(); }

namespace {

// Runs `work` on a session that no other call uses.
template <class Work>
Status alone(TextSession::Impl& s, Work work) {
  SWY_TRY(s.claim());
  Status done = s.with_session([&](Model&) { return work(); });
  s.busy.store(false);
  return done;
}

}  // namespace

Status TextSession::reset() {
  return alone(*impl_, [&]() -> Status {
    impl_->thread.clear();
    return {};
  });
}

Result<TextSession> TextSession::fork() {
  std::unique_ptr<Impl> copy;
  SWY_TRY(alone(*impl_, [&]() -> Status {
    SWY_LET(auto session, impl_->session->fork());
    copy = std::make_unique<Impl>(impl_->service, std::move(session));
    copy->position.store(copy->session->position());
    copy->thread.resume(impl_->thread.text(), impl_->thread.seen(), impl_->thread.owed());
    return {};
  }));
  return TextSession(std::move(copy));
}

Status TextSession::save(const std::string& path) const {
  return alone(*impl_, [&] { return save_session(Os::real(), path, SessionFile::Kind::text, impl_->thread); });
}

Status TextSession::restore(const std::string& path) {
  return alone(*impl_, [&] { return load_session(Os::real(), path, SessionFile::Kind::text, impl_->thread).status(); });
}

}  // namespace switchyard
