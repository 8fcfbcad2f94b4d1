// SPDX-License-Identifier: Apache-2.0
#include "bench/load/driver.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "bench/clock.h"
#include "bench/lengths.h"
#include "bench/load/connection.h"
#include "bench/load/prompts.h"
#include "bench/machine.h"
#include "core/base/json.h"

namespace switchyard::bench {
namespace {

constexpr uint32_t kMostOpen = 4096;  // requests at a time of an open loop
constexpr uint64_t kMostExchanges = 1u << 20;
constexpr auto kLook = std::chrono::milliseconds(100);   // between questions whether to go on
constexpr auto kPause = std::chrono::milliseconds(100);  // of a client whose request failed
constexpr size_t kMostModels = 1u << 20;                 // bytes

auto steady(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

// Of the list that /v1/models gives; "" where there is none.
std::string first_model(const std::string& body) {
  const auto read = read_json(body, "/v1/models", {.bytes = kMostModels});
  if (!read.ok() || !read->is_object()) return {};
  const auto data = read->find("data");
  if (data == read->end() || !data->is_array() || data->empty() || !data->front().is_object()) return {};
  const auto id = data->front().find("id");
  return id != data->front().end() && id->is_string() ? id->get<std::string>() : std::string();
}

class Driver {
 public:
  Driver(Load load, const std::function<bool()>& keep_going)
      : load_(std::move(load)), keep_going_(keep_going), random_(load_.seed) {}

  Result<LoadResult> run();

 private:
  Status check() const;
  Status resolve();
  Status prepare();
  net::awaitable<void> ask();
  std::string count_body(uint32_t count) const;
  net::awaitable<uint32_t> count_tokens(Connection& connection, uint32_t count);
  net::awaitable<void> watch();

  bool more() const;
  net::awaitable<void> client();
  net::awaitable<void> arrivals();
  net::awaitable<void> visit(uint32_t index, double arrival);
  net::awaitable<bool> converse(Connection& connection, uint32_t index, double arrival);
  void counting_begins();
  void idle();
  uint64_t pieces() const;
  void spawn(net::awaitable<void> what);

  std::unique_ptr<Connection> connection() { return std::make_unique<Connection>(io_, load_, addresses_); }
  uint32_t conversations() const { return load_.warm_up + (load_.requests + load_.turns - 1) / load_.turns; }

  Load load_;
  const std::function<bool()>& keep_going_;
  std::mt19937_64 random_;  // of arrivals
  TokenRate rate_;
  bool counts_tokens_ = false;
  Status refused_;
  LoadResult result_;
  uint32_t next_ = 0, busy_ = 0, open_ = 0;
  double started_ = 0;
  uint64_t ended_pieces_ = 0, pieces_before_ = 0;
  double processor_before_ = 0;
  std::vector<const Exchange*> running_;
  Connection::Addresses addresses_;
  net::io_context io_{1};  // its end destroys what waits, which uses all above
  std::vector<std::unique_ptr<Connection>> idle_;
};

Status Driver::check() const {
  if (load_.requests == 0 && load_.seconds == 0) {
    return error(Code::usage, "the load has no end; give --requests, --duration or both");
  }
  if (load_.clients == 0 || load_.clients > kMostOpen || load_.turns == 0) {
    return error(Code::usage, "{} clients with {} turns: give 1 to {} clients and at least one turn", load_.clients,
                 load_.turns, kMostOpen);
  }
  return {};
}

Status Driver::resolve() {
  beast::error_code ec;
  net::ip::tcp::resolver resolver(io_);
  addresses_ = resolver.resolve(load_.endpoint.host, load_.endpoint.port, ec);
  if (ec) return error(Code::usage, "--serve: the host '{}' is not known: {}", load_.endpoint.host, ec.message());
  return {};
}

// ---- before the load: the model's name, and tokens per word ----

std::string Driver::count_body(uint32_t count) const {
  std::mt19937_64 random(count);
  return request_body(load_, {{"user", words(random, count)}}, 1);
}

net::awaitable<uint32_t> Driver::count_tokens(Connection& connection, uint32_t count) {
  const std::string body = count_body(count);
  Exchange e;
  co_await connection.converse(body, e);
  // The one token may be no text.
  if (!e.ok() && !(e.fault == Fault::malformed && e.prompt_tokens != 0)) {
    refused_ = error(Code::io, "the server's first answer failed ({}{}): {}", fault_name(e.fault),
                     e.fault == Fault::status ? fmt::format(" {}", e.status) : "", e.message);
  }
  co_return e.prompt_tokens;
}

net::awaitable<void> Driver::ask() {
  const auto c = connection();
  if (load_.model.empty()) {
    Exchange e;
    const std::string path = "/v1/models";
    const std::string body = co_await c->get(path, e);
    load_.model = first_model(body);
    if (load_.model.empty()) {
      refused_ = e.ok()
                     ? error(Code::io, "/v1/models names no model (status {}); name one with --served-model", e.status)
                     : error(Code::io, "{}", e.message);
      co_return;
    }
  }
  const uint32_t few = co_await count_tokens(*c, TokenRate::kFew);
  if (!refused_.ok()) co_return;
  const uint32_t many = co_await count_tokens(*c, TokenRate::kMany);
  rate_ = TokenRate::of(few, many);
  counts_tokens_ = many > few && few != 0;
}

Status Driver::prepare() {
  SWY_TRY(check());
  SWY_TRY(resolve());
  spawn(ask());
  spawn(watch());
  io_.run();
  io_.restart();
  if (result_.interrupted) return error(Code::cancelled, "stopped before the load began");
  return refused_;
}

// ---- the load ----

void Driver::spawn(net::awaitable<void> what) {
  ++busy_;
  net::co_spawn(io_, std::move(what), [this](const std::exception_ptr& thrown) {
    --busy_;
    if (thrown) refused_ = error(Code::out_of_host_memory, "the load generator ran out of memory");
  });
}

net::awaitable<void> Driver::watch() {
  net::steady_timer timer(io_);
  beast::error_code ec;
  while (busy_ > 1) {
    timer.expires_after(kLook);
    co_await timer.async_wait(with(ec));
    if (keep_going_()) continue;
    result_.interrupted = true;
    io_.stop();
  }
}

bool Driver::more() const {
  if (load_.requests != 0 && next_ >= conversations()) return false;
  if (result_.exchanges.size() + running_.size() >= kMostExchanges) return false;
  return load_.seconds == 0 || now() - started_ < load_.seconds;
}

uint64_t Driver::pieces() const {
  uint64_t n = ended_pieces_;
  for (const Exchange* e : running_) n += e->pieces;
  return n;
}

void Driver::counting_begins() {
  result_.begin = now();
  pieces_before_ = pieces();
  processor_before_ = processor_seconds();
}

// A client has nothing more to send.
void Driver::idle() {
  if (result_.steady_end != 0) return;
  result_.steady_end = now();
  result_.steady_pieces = pieces() - pieces_before_;
}

// False: a request failed, and the conversation ends with it.
net::awaitable<bool> Driver::converse(Connection& connection, uint32_t index, double arrival) {
  const bool counts = index >= load_.warm_up;
  if (counts && result_.begin == 0) counting_begins();
  Conversation conversation(load_, rate_, index);
  for (uint32_t turn = 0; turn < load_.turns; ++turn) {
    const std::string body = conversation.next_body();
    Exchange e;
    e.turn = turn;
    e.begin = turn == 0 && arrival != 0 ? arrival : now();
    running_.push_back(&e);
    co_await connection.converse(body, e);
    std::erase(running_, &e);
    ended_pieces_ += e.pieces;
    conversation.answered(e.text);
    std::string().swap(e.text);
    const bool ok = e.ok();
    if (counts) result_.exchanges.push_back(std::move(e));
    if (!ok) co_return false;  // the next turn would need this one's answer
  }
  co_return true;
}

net::awaitable<void> Driver::client() {
  const auto c = connection();
  net::steady_timer timer(io_);
  beast::error_code ec;
  while (more()) {
    const bool ok = co_await converse(*c, next_++, 0);
    if (ok) continue;
    timer.expires_after(kPause);
    co_await timer.async_wait(with(ec));
  }
  idle();
}

net::awaitable<void> Driver::visit(uint32_t index, double arrival) {
  std::unique_ptr<Connection> c;
  if (idle_.empty()) {
    c = connection();
  } else {
    c = std::move(idle_.back());
    idle_.pop_back();
  }
  (void)co_await converse(*c, index, arrival);
  idle_.push_back(std::move(c));
  --open_;
}

net::awaitable<void> Driver::arrivals() {
  net::steady_timer timer(io_);
  beast::error_code ec;
  for (double at = now(); more();) {
    at -= std::log(1 - uniform(random_)) / load_.rate;
    timer.expires_after(steady(std::max(0.0, at - now())));
    co_await timer.async_wait(with(ec));
    const uint32_t index = next_++;
    if (open_ < kMostOpen) {
      ++open_;
      spawn(visit(index, at));
      continue;
    }
    Exchange e;
    e.begin = e.end = at;
    e.fault = Fault::crowded;
    e.message = fmt::format("{} requests are open already", kMostOpen);
    if (index >= load_.warm_up) result_.exchanges.push_back(std::move(e));
  }
}

Result<LoadResult> Driver::run() {
  SWY_TRY(prepare());
  result_.tokens_per_word = counts_tokens_ ? rate_.per_word : 0;
  started_ = now();
  if (load_.rate > 0) {
    spawn(arrivals());
  } else {
    for (uint32_t i = 0; i < load_.clients; ++i) spawn(client());
  }
  spawn(watch());
  io_.run();
  SWY_TRY(refused_);
  result_.model = load_.model;
  if (result_.begin == 0) result_.begin = now();
  for (const Exchange& e : result_.exchanges) result_.end = std::max(result_.end, e.end);
  result_.processor_seconds = processor_seconds() - processor_before_;
  if (load_.rate > 0) result_.steady_end = 0;
  return std::move(result_);
}

}  // namespace

Result<LoadResult> run_load(Load load, const std::function<bool()>& keep_going) {
  return Driver(std::move(load), keep_going).run();
}

}  // namespace switchyard::bench
