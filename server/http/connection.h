// SPDX-License-Identifier: Apache-2.0
// One connection of an HttpServer. For http_server.cpp and connection.cpp, the only files that include Boost.
#pragma once

#include <atomic>
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <memory>
#include <string>

#include "server/http/http_server.h"

namespace switchyard::server {

namespace net = boost::asio;
namespace beast = boost::beast;
using Parser = beast::http::request_parser<beast::http::string_body>;

// A thread for one kind of HttpReply::work, and the places of requests that it works for or that wait for it.
struct WorkQueue {
  net::thread_pool thread{1};
  std::atomic<uint32_t> taken = 0;

  // A place until the result is destroyed; null if `most` are taken.
  std::shared_ptr<void> place(uint32_t most) {
    std::shared_ptr<void> own(this, [this](void*) { --taken; });
    if (++taken > most) own.reset();
    return own;
  }
};

// What all connections share.
struct Shared {
  HttpHandler& handler;
  const HttpOptions options;
  net::thread_pool handlers;
  WorkQueue compiling{}, computing{};               // HttpReply::computes: in the second
  std::atomic<uint32_t> connections = 0, busy = 0;  // busy: with a request
  std::atomic<uint32_t> streams = 0;                // under way
  std::atomic<uint64_t> body_bytes = 0;             // of all requests
  std::atomic<bool> draining = false;
  std::atomic<bool> stopping = false;  // what is not begun is refused
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Shared& shared, net::ip::tcp::socket socket, std::string peer);
  ~Connection();

  net::awaitable<void> run();
  // From any thread.
  void close_if_idle();
  void close();
  auto executor() { return stream_.get_executor(); }

 private:
  struct Body;  // bytes that a request's body takes of the shared budget
  // The reply's end, as far as the connection is concerned.
  struct Sent {
    int status = 0;
    uint64_t bytes = 0;
    bool whole = true;
  };

  net::awaitable<bool> serve_one();
  net::awaitable<HttpReply> reply_to(HttpRequest& request);
  net::awaitable<HttpReply> run(net::thread_pool& pool, const HttpRequest& request,
                                const std::function<HttpReply()>& make);
  net::awaitable<bool> read_head(Parser& parser);
  net::awaitable<int> read_body(Parser& parser, Body& body);
  // Arguments are references to named objects: g++ 12 destroys temporaries of a co_await expression twice.
  net::awaitable<bool> refuse(const HttpRequest& head, int status, const std::string& message);
  net::awaitable<bool> finish(const HttpRequest& request, HttpReply& reply, bool keep_alive, bool old);
  net::awaitable<Sent> send(const HttpRequest& request, const HttpReply& reply, bool keep_alive);
  net::awaitable<Sent> send_pending(const HttpRequest& request, HttpReply& reply, bool keep_alive, bool old);
  net::awaitable<bool> write(const std::string& text);
  net::awaitable<bool> wait_for_more(uint32_t seconds);
  net::awaitable<void> rest(bool stream);
  net::awaitable<void> watch();
  void begin_watch();
  net::awaitable<void> end_watch();
  void wake_on(Pending& pending);
  net::awaitable<void> linger();

  Shared& shared_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  std::string peer_;
  net::steady_timer timer_;  // wakes the coroutine that sends a pending reply
  std::atomic<bool> wake_posted_ = false;
  std::shared_ptr<void> place_;  // in a WorkQueue, while the client waits for HttpReply::work
  bool woken_ = false, watching_ = false, idle_ = true;
  std::atomic<bool> gone_ = false;                 // a worker looks, too
  std::chrono::steady_clock::time_point begun_{};  // when the request's headers were read
  std::string id_;
};

}  // namespace switchyard::server
