// SPDX-License-Identifier: Apache-2.0
#include "switchyard/engine.h"

#include <atomic>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/engine/prepare.h"
#include "core/generate/loaded_model.h"
#include "core/generate/session_file.h"
#include "core/generate/text_generation.h"
#include "core/plan/code_store.h"
#include "core/plan/tuning.h"
#include "core/text/chat_template.h"

namespace switchyard {
namespace {

// A mutex that is taken in turns, so that whoever steps in a loop lets others in.
class TurnMutex {
 public:
  void lock() {
    const std::lock_guard turn(next_);
    mutex_.lock();
  }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex next_, mutex_;
};

using Lock = std::lock_guard<TurnMutex>;

TextOptions text_options(const GenerateOptions& o) {
  TextOptions t;
  t.max_tokens = o.max_tokens;
  SamplingParams& p = t.sampling;
  p.temperature = o.temperature;
  p.top_p = o.top_p;
  p.min_p = o.min_p;
  p.top_k = o.top_k;
  p.repetition_penalty = o.repetition_penalty;
  p.presence_penalty = o.presence_penalty;
  p.frequency_penalty = o.frequency_penalty;
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

GeneratedToken generated(const TextPiece& piece) {
  GeneratedToken t{piece.id, piece.text, piece.logprob, {}};
  for (size_t i = 0; i < piece.top_ids.size() && piece.top_ids[i] >= 0; ++i) {
    t.top.emplace_back(piece.top_ids[i], piece.top_logprobs[i]);
  }
  return t;
}

}  // namespace

struct Engine::Impl {
  TurnMutex mutex;  // of all below but `loaded.tokenizer`, which needs none
  LoadedModel loaded;
  std::unique_ptr<Batch> batch;
};

struct TextSession::Impl {
  Engine::Impl& engine;
  std::unique_ptr<Session> session;
  TextThread thread;
  std::atomic<bool> busy = false, cancelled = false;

  Impl(Engine::Impl& e, std::unique_ptr<Session> s)
      : engine(e), session(std::move(s)), thread(*session, *e.loaded.tokenizer) {}
  ~Impl() {
    const Lock lock(engine.mutex);
    session.reset();
  }
  Status claim() {
    if (!busy.exchange(true)) {
      cancelled.store(false);
      return {};
    }
    return error(Code::usage, "the session is in use by another call; wait for it, or use a session for each thread");
  }
};

struct TextStream::Impl {
  TextSession::Impl& session;
  std::unique_ptr<TextGeneration> text = {};
  Batch::Id id = 0;
  bool ended = false;
  TextThread::Reading reading = {};        // what the session is fed
  std::deque<GeneratedToken> tokens = {};  // sampled, and not taken yet
  Generated result = {};
  Status status = {};

  explicit Impl(TextSession::Impl& s) : session(s) {}
  ~Impl() {
    const Lock lock(session.engine.mutex);
    if (id != 0 && !ended) end(true);
    session.busy.store(false);
  }

  Status begin(std::string_view prompt, const GenerateOptions& o, std::function<bool(const GeneratedToken&)> on_token) {
    Engine::Impl& e = session.engine;
    TextThread& thread = session.thread;
    SWY_LET(reading, thread.read(thread.text() + std::string(prompt)));
    TextOptions options = text_options(o);
    SWY_LET(options.path, parse_path(o.sampling));
    const auto take = [this, on_token = std::move(on_token)](const TextPiece& piece) {
      if (on_token) return on_token(generated(piece));
      tokens.push_back(generated(piece));
      return true;
    };
    const Lock lock(e.mutex);
    SWY_LET(text, TextGeneration::create(*e.loaded.model, *e.loaded.tokenizer, std::move(options), take));
    thread.begin(reading);
    SWY_LET(id, e.batch->add(*session.session, text->request(reading.fresh, thread.seen())));
    return {};
  }

  std::optional<GeneratedToken> pop() {
    const Lock lock(session.engine.mutex);  // whoever steps may be adding to them
    if (tokens.empty()) return std::nullopt;
    std::optional<GeneratedToken> token(std::move(tokens.front()));
    tokens.pop_front();
    return token;
  }

  // One step for everybody; false when this generation has ended.
  bool step() {
    const Lock lock(session.engine.mutex);
    if (ended) return false;
    Batch& batch = *session.engine.batch;
    if (batch.running(id) && session.cancelled.load()) batch.cancel(id);
    if (batch.running(id)) (void)batch.step().ok();  // failures are reported by the outcome
    if (!batch.running(id)) end(false);
    return !ended;
  }

  void end(bool cancel) {
    Batch& batch = *session.engine.batch;
    if (cancel) batch.cancel(id);
    text->finish();
    const Outcome outcome = *batch.take(id);
    ended = true;
    status = outcome.status;
    result.text = text->text();
    result.ids = outcome.ids;
    result.stopped = text->stopped(outcome);
    result.sampling = fmt::format("{} ({})", path_name(outcome.path.path), outcome.path.reason);
    result.seed = outcome.seed;
    result.prompt_seconds = static_cast<double>(outcome.prompt_ns) / 1e9;
    result.draw_seconds = static_cast<double>(outcome.draw_ns) / 1e9;
    session.thread.end(reading, outcome, result.text);
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
  options.load_threads = host->threads();
  options.tuning = load_tuning(Os::real(), default_tuning_path(), host->threads());
  options.code_folder = default_code_folder();
  SWY_LET(impl->loaded, load_model(host, std::move(registry), o.backend,
                                   std::make_shared<const Program>(std::move(program)), options));
  if (o.sessions > 1) SWY_TRY(prepare_steps(*impl->loaded.model, text_options({}).sampling));
  impl->batch = std::make_unique<Batch>(*impl->loaded.model);
  return Engine(std::move(impl));
}

Result<TextSession> Engine::session() {
  const Lock lock(impl_->mutex);
  SWY_TRY(impl_->loaded.text().status());
  SWY_LET(auto session, impl_->loaded.model->session());
  return TextSession(std::make_unique<TextSession::Impl>(*impl_, std::move(session)));
}

Result<std::vector<int32_t>> Engine::encode(std::string_view text) const {
  SWY_LET(const Tokenizer* tokenizer, impl_->loaded.text());
  return tokenizer->encode(text);
}

std::string Engine::decode(const std::vector<int32_t>& ids) const {
  return impl_->loaded.tokenizer == nullptr ? std::string() : impl_->loaded.tokenizer->decode(ids);
}

Result<std::string> Engine::chat_prompt(const std::vector<std::pair<std::string, std::string>>& messages) const {
  if (impl_->loaded.program->chat_template.empty()) {
    return error(Code::unsupported, "this model has no chat template");
  }
  SWY_LET(const ChatTemplate parsed, ChatTemplate::parse(impl_->loaded.program->chat_template));
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  SWY_LET(const Tokenizer* tokenizer, impl_->loaded.text());
  for (const auto& [role, content] : messages) {
    list.push_back({{"role", role}, {"content", tokenizer->quote_specials(content)}});
  }
  return parsed.render(list, true);
}

std::vector<std::string> Engine::devices() const { return impl_->loaded.model->device_names(); }
uint32_t Engine::vocab() const { return impl_->loaded.model->vocab(); }

TextStream::TextStream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TextStream::TextStream(TextStream&&) noexcept = default;
TextStream& TextStream::operator=(TextStream&&) noexcept = default;
TextStream::~TextStream() = default;

Result<std::optional<GeneratedToken>> TextStream::next() {
  for (bool more = true;; more = impl_->step()) {
    if (auto token = impl_->pop()) return token;
    if (!more) break;
  }
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
  SWY_TRY(stream.impl_->begin(prompt, options, {}));
  return stream;
}

Result<Generated> TextSession::generate(std::string_view prompt, const GenerateOptions& options,
                                        std::function<bool(const GeneratedToken&)> on_token) {
  if (!on_token) on_token = [](const GeneratedToken&) { return true; };
  SWY_TRY(impl_->claim());
  TextStream stream(std::make_unique<TextStream::Impl>(*impl_));
  SWY_TRY(stream.impl_->begin(prompt, options, std::move(on_token)));
  while (stream.impl_->step()) {
  }
  SWY_TRY(stream.impl_->status);
  return stream.result();
}

void TextSession::cancel() { impl_->cancelled.store(true); }

uint32_t TextSession::position() const {
  const Lock lock(impl_->engine.mutex);
  return impl_->session->position();
}

namespace {

// Runs `work` on a session that no other call uses.
template <class Work>
auto alone(TextSession::Impl& s, Work work) -> decltype(work()) {
  SWY_TRY(s.claim());
  const Lock lock(s.engine.mutex);
  auto done = work();
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
  return alone(*impl_, [&]() -> Result<TextSession> {
    SWY_LET(auto copy, impl_->session->fork());
    auto impl = std::make_unique<Impl>(impl_->engine, std::move(copy));
    impl->thread.resume(impl_->thread.text(), impl_->thread.seen(), impl_->thread.owed());
    return TextSession(std::move(impl));
  });
}

Status TextSession::save(const std::string& path) const {
  return alone(*impl_, [&] { return save_session(Os::real(), path, SessionFile::Kind::text, impl_->thread); });
}

Status TextSession::restore(const std::string& path) {
  return alone(*impl_, [&] { return load_session(Os::real(), path, SessionFile::Kind::text, impl_->thread).status(); });
}

}  // namespace switchyard
