// SPDX-License-Identifier: Apache-2.0
// Generating: a reply whose choices are tickets of the service. Destroying it cancels them. Tokens that have come
// between two pulls are one event of a stream, unless it has log-probabilities.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "core/serve/service.h"
#include "server/http/exchange.h"
#include "server/protocol/answer.h"
#include "server/protocol/output_parser.h"

namespace switchyard::server {

struct GeneratingChoice {
  std::shared_ptr<Ticket> ticket;
  std::unique_ptr<OutputParser> parser;  // NULL: the text is the answer as it is
  bool one_call = false;                 // it ends after its first call
  bool ended = false;
  std::deque<Event> events = {};  // taken from the ticket, and yet to be sent
  uint32_t tokens = 0, reasoning_tokens = 0;
};

class Generating final : public Pending {
 public:
  // `tokenizer` outlives it.
  Generating(std::unique_ptr<Answer> answer, std::vector<GeneratingChoice> choices, const Tokenizer& tokenizer,
             Protocol protocol, bool stream, bool logprobs);

  State pull(std::string& out) override;
  void on_ready(std::function<void()> wake) override;
  std::string ping() const override { return server::ping(protocol_); }
  bool stream() const override { return stream_; }
  int status() const override { return status_; }

 private:
  enum class Progress { none, some, failed };
  Progress pull_choice(uint32_t index, std::string& out);
  bool take(GeneratingChoice& choice, const Event& event, Part& part);
  Progress end(uint32_t index, const Event& event, std::string& out);
  void end(uint32_t index, const Finish& finish, std::string& out);
  void fail(const ApiError& error, std::string& out);
  TokenLogprob logprob_of(const Event& event) const;

  std::unique_ptr<Answer> answer_;
  std::vector<GeneratingChoice> choices_;
  const Tokenizer& tokenizer_;
  Protocol protocol_;
  bool stream_, logprobs_;
  bool started_ = false, done_ = false;
  int status_ = 200;
};

}  // namespace switchyard::server
