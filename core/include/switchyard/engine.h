// SPDX-License-Identifier: Apache-2.0
// The engine: text from a model, in a program of your own.
//
//   auto engine = switchyard::Engine::load({.model = "model.swy"});
//   auto session = engine->session();
//   auto answer = session->generate("Once upon a time", {.max_tokens = 100});
//
// Every function that can fail returns a Status or a Result (status.h); nothing throws.
//
// Threads. An Engine may be used from any thread, and so may different sessions of it at the same time: a thread of the
// Engine runs the steps, which sessions that generate at once share. One session belongs to one call at a time; a
// second one is refused. `TextSession::cancel` alone may be called at any time. An Engine outlives its sessions, and
// they their streams. A process may have several Engines.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "switchyard/status.h"

#if defined(__GNUC__)
#define SWITCHYARD_API __attribute__((visibility("default")))
#else
#define SWITCHYARD_API
#endif

namespace switchyard {

struct EngineOptions {
  // Path of a .swy file. It is mapped: whoever makes it shorter while an Engine has it makes the process end by SIGBUS.
  std::string model = {};
  std::string backend = "auto";   // as --backend: "cpu", "cuda:1", "mine,cpu", "auto"
  std::string backend_path = {};  // folders with backends, searched first; absolute, separated by ':'
  uint32_t threads = 0;           // 0: all cores
  uint32_t context = 0;           // tokens per session; 0: the model's, at most 4,096
  uint32_t sessions = 1;          // at a time; of several, `load` prepares the steps that they will share
  uint64_t state_bytes = 0;       // memory for all sessions' states; 0: enough for every session's whole context
  bool deterministic = false;     // a session's tokens do not depend on other sessions, bit for bit
  // The prefix cache: states of prompts that were read, so that an empty session whose prompt begins like one of them
  // reads the rest alone. How many are kept on the devices; and in host memory, up to so many bytes. 0 and 0: none.
  uint32_t cache_states = 0;
  uint64_t cache_bytes = 0;
  std::string speculate =
      "off";  // "auto", "mtp", "ngram", "model:FILE": several guessed tokens are verified at a time, and change none
};

struct GenerateOptions {
  uint32_t max_tokens = 128;
  // Without a value: what the model recommends, or else the number in brackets.
  std::optional<float> temperature = {};                   // [0.8] 0: always the most likely token
  std::optional<float> top_p = {};                         // [0.95] in (0, 1]
  std::optional<float> min_p = {};                         // [0] in [0, 1]
  std::optional<int32_t> top_k = {};                       // [0] 0: off
  std::optional<float> repetition_penalty = {};            // [1]
  std::optional<float> presence_penalty = {};              // [0]
  std::optional<float> frequency_penalty = {};             // [0]
  std::vector<std::pair<int32_t, float>> logit_bias = {};  // token id, and the number added to its logit
  std::optional<uint64_t> seed = {};                       // none: a random one, reported in Generated
  uint32_t logprobs = 0;                                   // this many most likely tokens with each; 0: none
  std::vector<std::string> stops = {};                     // the text ends before the first of these
  // What the text is, as far as it comes; at most one of them (docs/structured-output.md).
  std::string allow_regex = {};  // the whole text matches this pattern
  std::string json_schema = {};  // it is a value of this JSON Schema
  std::string grammar = {};      // it belongs to this grammar: GBNF, or in the style of Lark
  bool ignore_eos = false;
  std::string sampling = "auto";  // where tokens are sampled: "auto", "fused", "candidates", "logits"
};

struct GeneratedToken {
  int32_t id = 0;     // -1: the last piece, text that was held back
  std::string text;   // that became complete with this token; often empty
  float logprob = 0;  // with GenerateOptions::logprobs
  std::vector<std::pair<int32_t, float>> top = {};
};

struct Generated {
  std::string text;
  std::vector<int32_t> ids;
  std::string stopped;   // "end", "stop", "pattern", "length", "context", "cancelled" or "callback"
  std::string sampling;  // "fused", "candidates" or "logits", and why
  uint64_t seed = 0;
  uint32_t cached_tokens = 0;          // of the prompt, that were in the prefix cache
  uint64_t drafted = 0, accepted = 0;  // guessed tokens, and those of them that are in `ids`
  double prompt_seconds = 0;           // to the first token
  double draw_seconds = 0;             // from there to the last
};

class TextSession;

class SWITCHYARD_API Engine {
 public:
  // Errors: not_found, invalid_data for the file; usage for an option; unsupported, naming what no backend can run; out
  // of memory, with the size needed.
  static Result<Engine> load(const EngineOptions& options);
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;
  ~Engine();

  // An empty session. Errors: out_of_device_memory, when there are as many as the engine was made for.
  Result<TextSession> session();

  Result<std::vector<int32_t>> encode(std::string_view text) const;
  std::string decode(const std::vector<int32_t>& ids) const;
  // A conversation of (role, content) as the model's chat template writes it, ready for the answer. A control token
  // that was written into a message is marked, by U+FDD0 before it, and `generate` takes it for plain letters.
  Result<std::string> chat_prompt(const std::vector<std::pair<std::string, std::string>>& messages) const;
  std::vector<std::string> devices() const;
  uint32_t vocab() const;

  struct Impl;

 private:
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Tokens of one generation, one by one.
class SWITCHYARD_API TextStream {
 public:
  TextStream(TextStream&&) noexcept;
  TextStream& operator=(TextStream&&) noexcept;
  ~TextStream();  // cancels what still runs

  // The next token; none when the generation has ended. Errors: those that ended it.
  Result<std::optional<GeneratedToken>> next();
  // The result, once `next` has returned none.
  const Generated& result() const;

  struct Impl;

 private:
  friend class TextSession;
  explicit TextStream(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class SWITCHYARD_API TextSession {
 public:
  TextSession(TextSession&&) noexcept;
  TextSession& operator=(TextSession&&) noexcept;
  ~TextSession();

  // Continues the session's text with `prompt` and generates. Where the text was cut within a token (by a stop string),
  // or a prompt was cancelled while it was read, the whole text is read again. `on_token` gets every token, on the
  // thread that called; returning false ends the generation after that token. It may call the engine, but not this
  // session but for `cancel`. Errors: usage, for a parameter out of range, before anything is done.
  Result<Generated> generate(std::string_view prompt, const GenerateOptions& options = {},
                             std::function<bool(const GeneratedToken&)> on_token = {});
  // The tokens one by one. The engine draws a few ahead of the reader, and waits for it then.
  Result<TextStream> stream(std::string_view prompt, const GenerateOptions& options = {});

  void cancel();               // stops the session's generation within a step. [any thread]
  Status reset();              // forgets everything
  uint32_t position() const;   // tokens in the states as the last call ended; the last drawn come with the next prompt
  Result<TextSession> fork();  // a second session that has seen the same
  // Saves the session's text and states to a file, and restores them; any backend restores them. Errors: usage, for a
  // file of another model.
  Status save(const std::string& path) const;
  Status restore(const std::string& path);

  struct Impl;

 private:
  friend class Engine;
  explicit TextSession(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace switchyard
