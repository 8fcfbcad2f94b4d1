// SPDX-License-Identifier: Apache-2.0
#include "bench/serving.h"

#include <algorithm>
#include <memory>
#include <random>

#include "bench/lengths.h"
#include "core/serve/local_loop.h"

namespace switchyard::bench {
namespace {

constexpr uint32_t kMostSessions = 64;
constexpr uint32_t kParts = 12;  // of the tokens, for the spread of the throughput

Status check(const Model& model, const ServingLoad& load, size_t text) {
  if (load.concurrency == 0 || load.concurrency > kMostSessions) {
    return error(Code::usage, "{} requests at the same time; serving is measured with 1 to {}", load.concurrency,
                 kMostSessions);
  }
  if (load.prompt_min == 0 || load.prompt_max < load.prompt_min || load.output_min == 0 ||
      load.output_max < load.output_min) {
    return error(Code::usage, "prompts of {} to {} tokens and answers of {} to {}: neither may be empty or reversed",
                 load.prompt_min, load.prompt_max, load.output_min, load.output_max);
  }
  if (load.context() > model.context()) {
    return error(Code::usage, "serving prompts of {} tokens and answers of {} does not fit the context of {}",
                 load.prompt_max, load.output_max, model.context());
  }
  if (load.concurrency > model.max_sessions()) {
    return error(Code::usage, "{} requests at the same time; the model was made for {}", load.concurrency,
                 model.max_sessions());
  }
  if (text < load.prompt_max) {
    return error(Code::usage, "a text of {} tokens is too short for prompts of {}", text, load.prompt_max);
  }
  return {};
}

class ClosedLoop {
 public:
  ClosedLoop(Model& model, const ServingLoad& load, std::span<const int32_t> text)
      : load_(load),
        text_(text),
        shapes_(request_shapes(load, load.concurrency + load.asked())),
        loop_(model, nullptr, load.prompt_rows) {}

  Result<Serving> run(const KeepGoing& keep_going) {
    const uint64_t limit = now() + static_cast<uint64_t>(load_.seconds * 1e9);
    for (uint32_t i = 0; i < load_.concurrency; ++i) {
      clients_.emplace_back();
      SWY_TRY(begin(i));
    }
    while (ended_ < load_.asked() && now() < limit) {
      if (!keep_going()) return error(Code::cancelled, "the benchmark was stopped");
      loop_.tick();
      for (uint32_t i = 0; i < load_.concurrency; ++i) SWY_TRY(read(i));
    }
    return result(now());
  }

 private:
  struct Client {
    std::shared_ptr<Ticket> ticket;
    bool counts = false;
    uint64_t begin_ns = 0, last_ns = 0;  // of the last token; 0: none yet
  };

  static uint64_t now() { return Os::real().now_ns(); }
  static double seconds(uint64_t from, uint64_t to) { return static_cast<double>(to - from) / 1e9; }

  Status begin(uint32_t i) {
    Client& c = clients_[i];
    const uint32_t index = begun_++;
    const RequestShape& shape = shapes_[index % shapes_.size()];
    const auto at = static_cast<size_t>(shape.place * static_cast<double>(text_.size() - shape.prompt));
    const auto prompt = text_.subspan(at, shape.prompt);
    GenerationRequest request;
    request.prompt.assign(prompt.begin(), prompt.end());
    request.text.max_tokens = shape.output;
    request.text.sampling = load_.sampling;
    request.text.sampling.seed = load_.seed + index;
    request.text.ignore_eos = true;
    c.counts = index >= load_.concurrency && index < load_.concurrency + load_.asked();
    c.begin_ns = now();
    c.last_ns = 0;
    if (c.counts && counting_ns_ == 0) counting_ns_ = c.begin_ns;
    SWY_LET(c.ticket, loop_.submit(std::move(request)));
    return {};
  }

  // Takes what came for client i; after its request's end the next one begins.
  Status read(uint32_t i) {
    Client& c = clients_[i];
    while (const auto event = c.ticket->poll()) {
      if (event->id >= 0) wrote(c);
      if (!event->finish) continue;
      SWY_TRY(event->finish->status);
      if (c.counts) ++ended_;
      return ended_ < load_.asked() ? begin(i) : Status{};
    }
    return {};
  }

  void wrote(Client& c) {
    const uint64_t t = now();
    if (counting_ns_ != 0) tokens_ns_.push_back(t);
    if (c.counts && c.last_ns == 0) ttft_.seconds.push_back(seconds(c.begin_ns, t));
    if (c.counts && c.last_ns != 0) itl_.seconds.push_back(seconds(c.last_ns, t));
    c.last_ns = t;
  }

  // A part holds the tokens of at least two steps, since the tokens of one step come at the same moment.
  Serving result(uint64_t end_ns) {
    Serving s;
    s.requests = ended_;
    s.ttft = std::move(ttft_);
    s.itl = std::move(itl_);
    const auto all = static_cast<uint32_t>(tokens_ns_.size());
    s.tokens = std::min(std::max(2 * load_.concurrency, all / kParts), all);
    if (s.tokens == 0) return s;
    if (s.tokens == all) tokens_ns_.back() = end_ns;
    uint64_t from = counting_ns_;
    for (uint32_t last = s.tokens - 1; last < all; last += s.tokens) {
      s.parts.seconds.push_back(seconds(from, tokens_ns_[last]));
      from = tokens_ns_[last];
    }
    return s;
  }

  const ServingLoad& load_;
  std::span<const int32_t> text_;
  const std::vector<RequestShape> shapes_;
  std::vector<Client> clients_;
  LocalLoop loop_;
  uint32_t begun_ = 0, ended_ = 0;  // ended: of those that are counted
  uint64_t counting_ns_ = 0;        // when the first request that counts began
  std::vector<uint64_t> tokens_ns_;
  Samples ttft_, itl_;
};

}  // namespace

std::vector<RequestShape> request_shapes(const ServingLoad& load, uint32_t count) {
  std::mt19937_64 random(load.seed);
  std::vector<RequestShape> shapes(count);
  for (RequestShape& s : shapes) {
    s.prompt = log_uniform(random, load.prompt_min, load.prompt_max);
    s.output = log_uniform(random, load.output_min, load.output_max);
    s.place = uniform(random);
  }
  return shapes;
}

Result<Serving> measure_serving(Model& model, const ServingLoad& load, std::span<const int32_t> text,
                                const KeepGoing& keep_going) {
  SWY_TRY(check(model, load, text.size()));
  return ClosedLoop(model, load, text).run(keep_going);
}

}  // namespace switchyard::bench
