// SPDX-License-Identifier: Apache-2.0
#include "bench/load/connection.h"

#include <chrono>
#include <optional>

#include "bench/clock.h"
#include "bench/load/answer_reader.h"

namespace switchyard::bench {

namespace http = beast::http;

namespace {

constexpr uint32_t kMostHead = 64u << 10;
constexpr uint64_t kMostBody = 256u << 20;  // bytes

}  // namespace

void Connection::fail(Exchange& exchange, Fault fault, const std::string& what, const beast::error_code& ec) const {
  if (exchange.fault != Fault::none) return;
  const bool late = ec == beast::error::timeout;
  exchange.fault = late ? Fault::timeout : fault;
  exchange.message =
      late ? fmt::format("{} took longer than {} s", what, load_.timeout) : fmt::format("{}: {}", what, ec.message());
}

void Connection::close() {
  stream_.close();
  buffer_.clear();
  open_ = false;
}

Connection::Request Connection::request(http::verb verb, const std::string& path) const {
  const Endpoint& e = load_.endpoint;
  Request r{verb, e.path + path, 11};
  r.set(http::field::host, e.port == "80" ? e.host : e.host + ":" + e.port);
  r.set(http::field::user_agent, "switchyard-bench");
  if (!load_.api_key.empty()) r.set(http::field::authorization, "Bearer " + load_.api_key);
  return r;
}

net::awaitable<bool> Connection::connect(Exchange& exchange) {
  beast::error_code ec;
  co_await stream_.async_connect(addresses_, with(ec));
  if (ec) {
    fail(exchange, Fault::connect, fmt::format("connecting to {}:{}", load_.endpoint.host, load_.endpoint.port), ec);
    close();
    co_return false;
  }
  stream_.socket().set_option(net::ip::tcp::no_delay(true), ec);
  open_ = true;
  co_return true;
}

// A server may close a connection that was kept just when the next request is sent: that request is sent again.
net::awaitable<bool> Connection::open_reply(const Request& request, std::optional<Parser>& parser, Exchange& exchange) {
  stream_.expires_after(
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(load_.timeout)));
  for (;;) {
    const bool kept = open_;
    if (!kept) {
      const bool connected = co_await connect(exchange);
      if (!connected) co_return false;
    }
    beast::error_code ec;
    co_await http::async_write(stream_, request, with(ec));
    if (!ec) {
      parser.emplace();
      parser->header_limit(kMostHead);
      parser->body_limit(kMostBody);
      co_await http::async_read_header(stream_, buffer_, *parser, with(ec));
    }
    if (!ec) co_return true;
    close();
    if (!kept || ec == beast::error::timeout) {
      fail(exchange, Fault::cut, "the reply's head", ec);
      co_return false;
    }
  }
}

net::awaitable<void> Connection::converse(const std::string& body, Exchange& exchange) {
  Request r = request(http::verb::post, load_.chat ? "/v1/chat/completions" : "/v1/completions");
  r.set(http::field::content_type, "application/json");
  r.set(http::field::accept, "text/event-stream");
  r.body() = body;
  r.prepare_payload();
  std::optional<Parser> parser;
  const bool replied = co_await open_reply(r, parser, exchange);
  if (!replied) {
    exchange.end = now();
    co_return;
  }
  AnswerReader reader(exchange, load_.turns > 1);
  reader.head(parser->get().result_int(), std::string_view(parser->get()[http::field::content_type]));
  beast::error_code ec;
  bool wanted = true;
  for (size_t seen = 0; wanted && !ec && !parser->is_done();) {
    co_await http::async_read_some(stream_, buffer_, *parser, with(ec));
    const std::string_view all = parser->get().body();
    if (all.size() == seen) continue;
    wanted = reader.push(all.substr(seen), now());
    seen = all.size();
  }
  exchange.end = now();
  const bool whole = parser->is_done();
  if (ec == beast::error::timeout) fail(exchange, Fault::timeout, "the answer", ec);
  reader.finish(whole);
  if (!whole || !parser->keep_alive()) close();
}

net::awaitable<std::string> Connection::get(const std::string& path, Exchange& exchange) {
  const Request r = request(http::verb::get, path);
  std::optional<Parser> parser;
  const bool replied = co_await open_reply(r, parser, exchange);
  if (!replied) co_return std::string();
  beast::error_code ec;
  co_await http::async_read(stream_, buffer_, *parser, with(ec));
  if (ec) fail(exchange, Fault::cut, path, ec);
  exchange.status = static_cast<int>(parser->get().result_int());
  std::string body = parser->get().body();
  if (ec || !parser->keep_alive()) close();
  co_return body;
}

}  // namespace switchyard::bench
