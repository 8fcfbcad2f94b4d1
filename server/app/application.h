// SPDX-License-Identifier: Apache-2.0
// Application: what the server's paths do. It turns requests into the service's, and tickets into replies.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/serve/service.h"
#include "server/app/chat_model.h"
#include "server/app/constraint_cache.h"
#include "server/app/generating.h"
#include "server/http/exchange.h"
#include "server/protocol/answer.h"
#include "server/protocol/ids.h"
#include "server/protocol/requests.h"

namespace switchyard::server {

struct RequestLog {
  const HttpRequest& request;
  int status;
  double seconds;
  uint64_t bytes;
  bool whole;  // false: the client went away
};

struct ApplicationOptions {
  std::vector<std::string> model_names = {};  // the first is the one that answers name; "*" takes every name
  Defaults defaults = {};                     // of requests
  std::string chat_template = {};             // instead of the model file's
  std::vector<std::string> api_keys = {};     // one of them must come with every request but /health and the page
  std::vector<std::string> origins = {};      // of other sites' pages that may use the server; "*": all
  // Names of this server besides those of the loopback, for a Host header; "*": all. None: the header is not looked at.
  std::optional<std::vector<std::string>> hosts = {};
  bool page = true;  // the web page at /
  std::function<void(const RequestLog&)> log = {};
  // Of new ids. Tests replace it.
  std::function<std::string(const char* prefix)> new_id = {};
  std::function<int64_t()> now = {};  // seconds since 1970
};

class Application final : public HttpHandler {
 public:
  // `service` outlives it. Errors: unsupported, for a model without a tokenizer; invalid_data, for a chat template that
  // cannot be read.
  static Result<std::unique_ptr<Application>> create(Service& service, ApplicationOptions options);

  std::optional<HttpReply> admit(const HttpRequest& head) override;
  HttpReply handle(HttpRequest request) override;
  HttpReply refuse(int status, const HttpRequest& head, const std::string& message) override;
  void add_headers(const HttpRequest& request, HttpReply& reply) override;
  void log(const HttpRequest& request, int status, double seconds, uint64_t bytes, bool whole) override;

  // From now on /ready says no, and new work is refused.
  void drain() { draining_ = true; }

 private:
  using Method = HttpReply (Application::*)(const HttpRequest&);
  struct Route {
    const char* method;
    const char* path;
    Method call;
    bool needs_key = true;
    bool works = false;  // takes new work, which a server that drains refuses
  };
  static const std::vector<Route>& routes();
  static const Route* find(std::string_view method, std::string_view path);

  explicit Application(Service& service, ApplicationOptions options, ChatModel model)
      : service_(service), options_(std::move(options)), model_(std::move(model)) {}

  HttpReply page(const HttpRequest& request);
  HttpReply openapi(const HttpRequest& request);
  HttpReply health(const HttpRequest& request);
  HttpReply ready(const HttpRequest& request);
  HttpReply metrics(const HttpRequest& request);
  HttpReply models(const HttpRequest& request);
  HttpReply chat(const HttpRequest& request);
  HttpReply completions(const HttpRequest& request);
  HttpReply responses(const HttpRequest& request);
  HttpReply messages(const HttpRequest& request);
  HttpReply count_tokens(const HttpRequest& request);
  HttpReply tokenize(const HttpRequest& request);
  HttpReply detokenize(const HttpRequest& request);
  HttpReply embeddings(const HttpRequest& request);

  HttpReply error_reply(const HttpRequest& request, const ApiError& error) const;
  Refusal read_body(const HttpRequest& request, nlohmann::ordered_json& to) const;
  Refusal check_model(const std::string& name) const;
  bool key_fits(const HttpRequest& request) const;
  bool host_fits(const HttpRequest& request) const;
  bool origin_fits(const HttpRequest& request) const;
  Refusal check_place(const HttpRequest& request) const;
  // What makes the constraint of each choice; it stays empty where nothing is limited.
  using Constraints = std::function<std::shared_ptr<TokenConstraint>()>;
  // Compiling may take seconds, so that a handler only looks for constraints that are there.
  struct Compiling {
    bool allowed = false;
    bool missing = false;  // something is yet to be compiled, and what was made is of no use
  };
  Result<std::shared_ptr<const Constraint>> constraint(ConstraintKind kind, const std::string& text,
                                                       const std::string& name, Compiling& compiling);
  Refusal constrain_chat(const ChatRequest& request, const ChatPrompt& prompt, Compiling& compiling, Constraints& to);
  Refusal constrain(const Generation& g, Reasoning reasoning, std::vector<std::shared_ptr<const Constraint>> answers,
                    Compiling& compiling, Constraints& to);
  Refusal compile_calls(const ChatRequest& request, Compiling& compiling, std::shared_ptr<const Constraint>& to);
  std::vector<int32_t> end_ids(const Generation& g) const;
  struct ChatTask;
  struct CompletionTask;
  HttpReply answer_chat(const HttpRequest& request, ChatRequest chat, Protocol protocol,
                        const nlohmann::ordered_json& repeated = {});
  // `work`: NULL on a thread for all requests, where nothing may be compiled or computed.
  HttpReply begin_chat(const ChatTask& task, const GoesOn* work);
  HttpReply begin_completions(const CompletionTask& task, const GoesOn* work);
  Refusal prompt_ids(const CompletionRequest::Prompt& prompt, std::vector<int32_t>& to);
  // Of every prompt; whether they fit is known before anything is computed or queued.
  Refusal all_prompt_ids(const CompletionRequest& completion, std::vector<std::vector<int32_t>>& to);
  // With log-probabilities it takes long: the model reads the prompt.
  Refusal echo_prompt(const CompletionRequest& completion, const CompletionRequest::Prompt& prompt,
                      const std::vector<int32_t>& ids, const GoesOn* work, Echo& to);
  // begin(task, NULL), and as HttpReply::work with what it needs if something is yet to be compiled or computed.
  template <class Task>
  HttpReply begin(HttpReply (Application::*how)(const Task&, const GoesOn*), Task task);
  // One choice after the other into `to`.
  Refusal submit(const Generation& g, const std::vector<int32_t>& ids, const std::vector<uint32_t>& checkpoints,
                 const Constraints& constraints, std::vector<GeneratingChoice>& to);
  AnswerHead head(const char* prefix, const Generation& g) const;
  static void name_ignored(const Generation& g, HttpReply& reply);

  Service& service_;
  const ApplicationOptions options_;
  const ChatModel model_;
  std::atomic<bool> draining_ = false;
  ConstraintCache constraints_;
  std::mutex counts_mutex_;
  std::map<std::pair<std::string, int>, uint64_t> counts_;  // replies by path and status
};

// Whether a Host header names the machine itself: localhost, a name that ends in .localhost, 127.x.x.x or [::1].
bool is_loopback_name(std::string_view host);

// The body of GET /metrics.
std::string metrics_text(const ServiceStats& stats, const std::string& model_name,
                         const std::map<std::pair<std::string, int>, uint64_t>& replies);

}  // namespace switchyard::server
