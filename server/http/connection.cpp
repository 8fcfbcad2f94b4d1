// SPDX-License-Identifier: Apache-2.0
#include "server/http/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "server/http/message.h"
#include "server/protocol/ids.h"

namespace switchyard::server {

namespace http = beast::http;
using std::chrono::seconds;

namespace {

// A completion token that gives the error, and throws nothing.
auto with(beast::error_code& ec) { return net::redirect_error(net::use_awaitable, ec); }

constexpr size_t kReadAhead = 64 << 10;  // bytes of later requests that are taken while a reply is sent

HttpRequest head_of(const Parser& parser, const std::string& peer) {
  const auto& message = parser.get();
  HttpRequest head;
  head.method = std::string(message.method_string());
  head.peer = peer;
  for (const auto& field : message) {
    std::string name(field.name_string());
    std::transform(name.begin(), name.end(), name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
    head.headers.emplace(std::move(name), std::string(field.value()));
  }
  return head;
}

// Of Connection::read_body.
std::string body_refusal(int status, const HttpOptions& options) {
  if (status == 413) return "the request's body is larger than " + std::to_string(options.body_bytes) + " bytes";
  if (status == 503) return "too many large requests at the same time";
  return "the request's body is not valid HTTP";
}

}  // namespace

struct Connection::Body {
  explicit Body(Shared& s) : shared(s) {}
  ~Body() { shared.body_bytes -= taken; }
  Body(const Body&) = delete;
  Body& operator=(const Body&) = delete;
  // False: all bodies together would take too much.
  bool grow(uint64_t to) {
    const uint64_t more = to - taken;
    taken = to;
    return (shared.body_bytes += more) <= shared.options.bodies_bytes;
  }
  Shared& shared;
  uint64_t taken = 0;
};

Connection::Connection(Shared& shared, net::ip::tcp::socket socket, std::string peer)
    : shared_(shared), stream_(std::move(socket)), peer_(std::move(peer)), timer_(stream_.get_executor()) {
  ++shared_.connections;
}

Connection::~Connection() { --shared_.connections; }

void Connection::close() {
  net::post(executor(), [self = shared_from_this()] {
    self->gone_ = true;
    self->timer_.cancel();
    self->stream_.close();
  });
}

void Connection::close_if_idle() {
  net::post(executor(), [self = shared_from_this()] {
    if (self->idle_) self->stream_.close();
  });
}

net::awaitable<void> Connection::run() {
  const auto self = shared_from_this();
  beast::error_code ec;
  stream_.socket().set_option(net::ip::tcp::no_delay(true), ec);
  stream_.socket().non_blocking(true, ec);
  stream_.socket().set_option(net::socket_base::send_buffer_size(static_cast<int>(shared_.options.send_buffer_bytes)),
                              ec);
  while (!gone_ && !shared_.stopping) {
    idle_ = true;
    const bool goes_on = co_await serve_one();
    if (!goes_on) break;
  }
  stream_.socket().shutdown(net::ip::tcp::socket::shutdown_both, ec);
  stream_.close();
}

// Waits for a request's first byte, and then for its headers.
net::awaitable<bool> Connection::read_head(Parser& parser) {
  beast::error_code ec;
  parser.header_limit(shared_.options.header_bytes);
  parser.body_limit(shared_.options.body_bytes);
  if (buffer_.size() == 0) {
    stream_.expires_after(seconds(shared_.options.idle_seconds));
    const size_t n = co_await stream_.async_read_some(buffer_.prepare(4096), with(ec));
    if (ec) co_return false;
    buffer_.commit(n);
  }
  idle_ = false;
  stream_.expires_after(seconds(shared_.options.header_seconds));
  co_await http::async_read_header(stream_, buffer_, parser, with(ec));
  if (!ec) co_return true;
  int status = 400;
  std::string message = "the request is not valid HTTP: " + ec.message();
  if (ec == http::error::header_limit) {
    status = 431;
    message = "the request's headers are larger than " + std::to_string(shared_.options.header_bytes) + " bytes";
  } else if (ec == http::error::body_limit) {
    status = 413;
    message = "the request's body is larger than " + std::to_string(shared_.options.body_bytes) + " bytes";
  } else if (ec == beast::error::timeout || ec == http::error::end_of_stream || ec == http::error::partial_message ||
             ec.category() != make_error_code(http::error::end_of_stream).category()) {
    co_return false;  // the client was too slow, and the stream is closed; or it has gone
  }
  const HttpRequest none;
  co_await refuse(none, status, message);
  co_return false;
}

// 0, or the status of a refusal; -1: the client has gone.
net::awaitable<int> Connection::read_body(Parser& parser, Body& body) {
  beast::error_code ec;
  if (const auto length = parser.content_length(); length && !body.grow(*length)) co_return 503;
  if (beast::iequals(parser.get()[http::field::expect], "100-continue")) {
    const std::string go_on = "HTTP/1.1 100 Continue\r\n\r\n";
    const bool written = co_await write(go_on);
    if (!written) co_return -1;
  }
  stream_.expires_after(seconds(shared_.options.body_seconds));
  while (!parser.is_done()) {
    co_await http::async_read_some(stream_, buffer_, parser, with(ec));
    if (ec == http::error::need_buffer) ec = {};
    if (ec == http::error::body_limit) co_return 413;
    if (ec == beast::error::timeout || ec == http::error::partial_message || ec == http::error::end_of_stream)
      co_return -1;
    if (ec) co_return ec.category() == make_error_code(http::error::bad_method).category() ? 400 : -1;
    if (const uint64_t size = parser.get().body().size(); size > body.taken && !body.grow(size)) co_return 503;
  }
  co_return 0;
}

net::awaitable<bool> Connection::refuse(const HttpRequest& head, int status, const std::string& message) {
  HttpReply reply = shared_.handler.refuse(status, head, message);
  begun_ = std::chrono::steady_clock::now();
  co_await finish(head, reply, false, false);
  co_await linger();
  co_return false;
}

// Reads for a moment what the client still sends: a connection that is closed with unread bytes is reset, and the
// client might not see the reply.
net::awaitable<void> Connection::linger() {
  beast::error_code ec;
  stream_.socket().shutdown(net::ip::tcp::socket::shutdown_send, ec);
  stream_.expires_after(seconds(1));
  for (uint64_t read = 0; !ec && read < (1u << 20);) {
    buffer_.clear();
    read += co_await stream_.async_read_some(buffer_.prepare(16 << 10), with(ec));
  }
}

net::awaitable<bool> Connection::serve_one() {
  Parser parser;
  const bool read = co_await read_head(parser);
  if (!read) co_return false;
  begun_ = std::chrono::steady_clock::now();
  ++shared_.busy;
  const std::shared_ptr<void> busy(nullptr, [this](void*) { --shared_.busy; });
  HttpRequest request = head_of(parser, peer_);
  request.id = usable_id(request.header("x-request-id"));
  if (request.id.empty()) request.id = random_id("req_");
  const auto target = parser.get().target();
  const bool old = parser.get().version() < 11;
  bool keep_alive = parser.get().keep_alive();
  std::string message;
  if (!read_target({target.data(), target.size()}, request.path, request.query)) {
    message = "the request's path is not valid";
    co_await refuse(request, 400, message);
    co_return false;
  }
  std::optional<HttpReply> early = shared_.handler.admit(request);
  if (early) {
    keep_alive = keep_alive && parser.is_done() && !early->close;  // else the body would be taken for a request
    const bool goes_on = co_await finish(request, *early, keep_alive, old);
    if (!keep_alive) co_await linger();
    co_return goes_on;
  }
  Body body(shared_);
  const int status = co_await read_body(parser, body);
  if (status < 0) co_return false;
  if (status > 0) {
    message = body_refusal(status, shared_.options);
    co_await refuse(request, status, message);
    co_return false;
  }
  request.body = std::move(parser.get().body());
  HttpReply reply = co_await reply_to(request);
  keep_alive = keep_alive && !reply.close;
  const bool goes_on = co_await finish(request, reply, keep_alive, old);
  co_return goes_on;
}

// What `make` returns, called on a thread of the pool.
net::awaitable<HttpReply> Connection::run(net::thread_pool& pool, const HttpRequest& request,
                                          const std::function<HttpReply()>& make) {
  const auto call = [&shared = shared_, &request, &make]() -> net::awaitable<HttpReply> {
    HttpReply reply;
    try {
      reply = shared.stopping ? shared.handler.refuse(503, request, "the server is stopping") : make();
    } catch (const std::bad_alloc&) {
      reply = shared.handler.refuse(503, request, "no memory for this request");
    }
    co_return reply;
  };
  HttpReply reply = co_await net::co_spawn(pool.get_executor(), call, net::use_awaitable);
  co_return reply;
}

net::awaitable<HttpReply> Connection::reply_to(HttpRequest& request) {
  const std::function<HttpReply()> handle = [this, &request] {
    HttpRequest whole = request;
    whole.body = std::move(request.body);
    return shared_.handler.handle(std::move(whole));
  };
  HttpReply reply = co_await run(shared_.handlers, request, handle);
  if (!reply.work) co_return reply;
  const GoesOn goes_on = [this] { return !gone_ && !shared_.stopping; };
  const std::function<HttpReply()> work = [&, make = std::move(reply.work)] {
    return goes_on() ? make(goes_on) : shared_.handler.refuse(503, request, "the client has disconnected");
  };
  WorkQueue& queue = reply.computes ? shared_.computing : shared_.compiling;
  place_ = queue.place(shared_.options.works);
  if (place_ == nullptr) {
    const std::string message = fmt::format("too many requests wait for their {}; try again later",
                                            reply.computes ? "prompt to be scored" : "format to be compiled");
    reply = shared_.handler.refuse(503, request, message);
    co_return reply;
  }
  begin_watch();
  reply = co_await run(queue.thread, request, work);
  co_await end_watch();
  place_.reset();
  co_return reply;
}

net::awaitable<bool> Connection::finish(const HttpRequest& request, HttpReply& reply, bool keep_alive, bool old) {
  shared_.handler.add_headers(request, reply);
  if (shared_.draining) keep_alive = false;
  Sent sent;
  if (reply.pending != nullptr) {
    if (reply.pending->stream() && old) keep_alive = false;
    sent = co_await send_pending(request, reply, keep_alive, old);
  } else {
    sent = co_await send(request, reply, keep_alive);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun_;
  shared_.handler.log(request, sent.status, took.count(), sent.bytes, sent.whole);
  co_return keep_alive&& sent.whole && !gone_ && !shared_.draining;
}

// A token's event nearly always fits into the socket's buffer: then no timer is set, and nothing waits.
net::awaitable<bool> Connection::write(const std::string& text) {
  beast::error_code ec;
  size_t at = gone_ ? 0 : stream_.socket().write_some(net::buffer(text), ec);
  if (ec == net::error::would_block || ec == net::error::try_again) ec = {};
  while (at < text.size() && !ec && !gone_) {
    stream_.expires_after(seconds(shared_.options.write_seconds));
    at += co_await stream_.async_write_some(net::buffer(text.data() + at, text.size() - at), with(ec));
  }
  if (ec) gone_ = true;
  co_return !gone_;
}

net::awaitable<Connection::Sent> Connection::send(const HttpRequest& request, const HttpReply& reply, bool keep_alive) {
  std::string text = reply_head(reply, Framing::length, reply.body.size(), keep_alive);
  if (request.method != "HEAD") text += reply.body;
  Sent sent{.status = reply.status, .bytes = reply.body.size()};
  sent.whole = co_await write(text);
  co_return sent;
}

void Connection::wake_on(Pending& pending) {
  pending.on_ready([weak = weak_from_this(), executor = executor()] {
    const auto self = weak.lock();
    if (self == nullptr || self->wake_posted_.exchange(true)) return;
    net::post(executor, [self] {
      self->wake_posted_ = false;
      self->woken_ = true;
      self->timer_.cancel();
    });
  });
}

// Of text that comes fast, several tokens go into one write, and nothing wakes this thread for each of them: the more
// streams there are, the longer a stream's text is collected. All streams look for text at the same times, so that one
// timer serves them. What comes after a longer silence is sent at once.
net::awaitable<void> Connection::rest(bool stream) {
  using std::chrono::microseconds;
  constexpr microseconds kWhole(20000), kLeast(4000), kEach(250);
  const auto gap = stream ? std::min(kLeast + kEach * (shared_.streams.load() - 1), kWhole) : kWhole;
  beast::error_code ec;
  if (woken_ || gone_) co_return;
  const auto now = std::chrono::duration_cast<microseconds>(net::steady_timer::clock_type::now().time_since_epoch());
  timer_.expires_at(net::steady_timer::time_point((now / gap + 1) * gap));
  co_await timer_.async_wait(with(ec));
}

// True: there may be more, or the client has gone; false: nothing came for so long.
net::awaitable<bool> Connection::wait_for_more(uint32_t for_seconds) {
  beast::error_code ec;
  if (woken_ || gone_) co_return true;
  timer_.expires_after(seconds(for_seconds));
  co_await timer_.async_wait(with(ec));
  co_return woken_ || gone_;
}

net::awaitable<Connection::Sent> Connection::send_pending(const HttpRequest& request, HttpReply& reply, bool keep_alive,
                                                          bool old) {
  const std::unique_ptr<Pending> pending = std::move(reply.pending);
  const bool stream = pending->stream();
  shared_.streams += stream ? 1 : 0;
  const std::shared_ptr<void> counted(nullptr, [this, stream](void*) { shared_.streams -= stream ? 1 : 0; });
  const Framing framing = !stream ? Framing::length : old ? Framing::until_close : Framing::chunks;
  Sent sent{.status = reply.status};
  begin_watch();
  wake_on(*pending);
  std::string out, whole;
  if (stream) out = reply_head(reply, framing, 0, keep_alive);
  auto state = Pending::State::more;
  while (!gone_ && state != Pending::State::done) {
    woken_ = false;
    std::string part;
    state = pending->pull(part);
    sent.bytes += part.size();
    if (!stream) {
      whole += part;
    } else if (!part.empty()) {
      out += framing == Framing::chunks ? chunk(part) : part;
    }
    if (state == Pending::State::done && framing == Framing::chunks) out += kLastChunk;
    if (!out.empty()) co_await write(out);
    out.clear();
    if (state == Pending::State::more) co_await rest(stream);
    if (state != Pending::State::waiting || gone_) continue;
    const bool more = co_await wait_for_more(shared_.options.ping_seconds);
    if (!more && stream) out = framing == Framing::chunks ? chunk(pending->ping()) : pending->ping();
  }
  pending->on_ready({});
  co_await end_watch();
  sent.whole = state == Pending::State::done && !gone_;
  sent.status = pending->status();
  if (!stream && sent.whole) {
    reply.status = sent.status;
    reply.body = std::move(whole);
    sent = co_await send(request, reply, keep_alive);
  }
  co_return sent;
}

// While a reply is made: notices that the client has gone. What it sends already belongs to its next request.
net::awaitable<void> Connection::watch() {
  const auto self = shared_from_this();
  beast::error_code ec;
  while (!ec && buffer_.size() < kReadAhead) {
    stream_.expires_never();
    const size_t n = co_await stream_.async_read_some(buffer_.prepare(4096), with(ec));
    buffer_.commit(n);
  }
  if (ec && ec != net::error::operation_aborted) {
    gone_ = true;
    place_.reset();   // its work ends as soon as it begins
    stream_.close();  // ends a write that waits for the client to read
  }
  watching_ = false;
  timer_.cancel();
}

void Connection::begin_watch() {
  watching_ = true;
  net::co_spawn(
      executor(), [self = shared_from_this()] { return self->watch(); }, net::detached);
}

net::awaitable<void> Connection::end_watch() {
  beast::error_code ec;
  if (watching_) stream_.cancel();
  while (watching_) {
    timer_.expires_at(net::steady_timer::time_point::max());
    co_await timer_.async_wait(with(ec));
  }
}

}  // namespace switchyard::server
