// SPDX-License-Identifier: Apache-2.0
#include "server/http/http_server.h"

#include <algorithm>
#include <mutex>
#include <thread>
#include <vector>

#include "server/http/connection.h"
#include "server/http/message.h"

namespace switchyard::server {

namespace {

using net::ip::tcp;

constexpr auto kAcceptPause = std::chrono::milliseconds(100);  // where the process has no file descriptor left

constexpr auto kTick = std::chrono::milliseconds(500);

}  // namespace

struct HttpServer::Impl {
  Impl(HttpHandler& handler, const HttpOptions& options)
      : shared{handler, options, net::thread_pool(std::max(1U, options.handler_threads))},
        io(static_cast<int>(std::max(1U, options.io_threads))),
        acceptor(net::make_strand(io)),
        ticker(acceptor.get_executor()) {}

  Status listen();
  net::awaitable<void> accept();
  net::awaitable<void> tick();
  void greet(tcp::socket socket);
  void each(void (Connection::*act)());

  Shared shared;
  net::io_context io;
  tcp::acceptor acceptor;    // on a strand of its own, with its coroutines
  net::steady_timer ticker;  // on the same strand
  std::mutex mutex;
  std::vector<std::weak_ptr<Connection>> all;
  std::vector<std::thread> threads;
  uint16_t port = 0;
};

Status HttpServer::Impl::listen() {
  const HttpOptions& o = shared.options;
  beast::error_code ec;
  const auto address = net::ip::make_address(o.address, ec);
  if (ec) {
    return error(Code::usage, "--host '{}' is not an address; give one such as 127.0.0.1, 0.0.0.0 or ::", o.address);
  }
  const tcp::endpoint endpoint(address, o.port);
  const auto failed = [&] {
    return error(Code::io, "cannot listen on {} port {}: {}", o.address, o.port, ec.message());
  };
  acceptor.open(endpoint.protocol(), ec);
  if (ec) return failed();
  acceptor.set_option(net::socket_base::reuse_address(true), ec);
  acceptor.bind(endpoint, ec);
  if (ec) return failed();
  acceptor.listen(net::socket_base::max_listen_connections, ec);
  if (ec) return failed();
  port = acceptor.local_endpoint(ec).port();
  return {};
}

net::awaitable<void> HttpServer::Impl::accept() {
  net::steady_timer pause(acceptor.get_executor());
  while (acceptor.is_open()) {
    beast::error_code ec;
    tcp::socket socket(net::make_strand(io));
    co_await acceptor.async_accept(socket, net::redirect_error(net::use_awaitable, ec));
    if (!ec) {
      greet(std::move(socket));
    } else if (acceptor.is_open() && ec != net::error::operation_aborted) {
      pause.expires_after(kAcceptPause);
      co_await pause.async_wait(net::redirect_error(net::use_awaitable, ec));
    }
  }
}

// A connection sets a timer for every token that it waits for. Only the earliest timer of the queue takes a system
// call, so one that is earlier than all of them spares each token one.
net::awaitable<void> HttpServer::Impl::tick() {
  beast::error_code ec;
  while (acceptor.is_open()) {
    ticker.expires_after(kTick);
    co_await ticker.async_wait(net::redirect_error(net::use_awaitable, ec));
  }
}

void HttpServer::Impl::greet(tcp::socket socket) {
  beast::error_code ec;
  if (shared.connections >= shared.options.connections) {
    HttpReply reply = shared.handler.refuse(503, {}, "too many connections");
    const std::string text = reply_head(reply, Framing::length, reply.body.size(), false) + reply.body;
    socket.non_blocking(true, ec);
    socket.write_some(net::buffer(text), ec);
    socket.shutdown(tcp::socket::shutdown_send, ec);
    return;
  }
  const auto executor = socket.get_executor();
  std::string peer = socket.remote_endpoint(ec).address().to_string();
  const auto connection = std::make_shared<Connection>(shared, std::move(socket), std::move(peer));
  {
    const std::lock_guard lock(mutex);
    if (all.size() >= 2 * shared.connections + 64) {
      std::erase_if(all, [](const std::weak_ptr<Connection>& c) { return c.expired(); });
    }
    all.push_back(connection);
  }
  net::co_spawn(
      executor, [connection] { return connection->run(); }, net::detached);
}

void HttpServer::Impl::each(void (Connection::*act)()) {
  const std::lock_guard lock(mutex);
  for (const auto& weak : all) {
    if (const auto connection = weak.lock()) ((*connection).*act)();
  }
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<HttpServer>> HttpServer::start(HttpHandler& handler, const HttpOptions& options) {
  auto impl = std::make_unique<Impl>(handler, options);
  SWY_TRY(impl->listen());
  net::co_spawn(
      impl->acceptor.get_executor(), [i = impl.get()] { return i->accept(); }, net::detached);
  net::co_spawn(
      impl->acceptor.get_executor(), [i = impl.get()] { return i->tick(); }, net::detached);
  for (uint32_t n = 0; n < std::max(1U, options.io_threads); ++n) {
    impl->threads.emplace_back([i = impl.get()] { i->io.run(); });
  }
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

// The event loop ends when nothing waits any more: then every connection has ended by itself. One whose request is in a
// pool comes back from there first, so the pools run until then; what has not begun there is refused, and not waited
// for. A loop that was stopped would leave connections behind that belong to the loop and to a pool.
HttpServer::~HttpServer() {
  impl_->shared.stopping = true;
  drain(0);
  impl_->each(&Connection::close);
  for (std::thread& thread : impl_->threads) thread.join();
  impl_->shared.handlers.join();
  impl_->shared.compiling.thread.join();
  impl_->shared.computing.thread.join();
}

uint16_t HttpServer::port() const { return impl_->port; }
uint32_t HttpServer::connections() const { return impl_->shared.connections; }

bool HttpServer::drain(double seconds) {
  impl_->shared.draining = true;
  net::post(impl_->acceptor.get_executor(), [i = impl_.get()] {
    beast::error_code ec;
    i->acceptor.close(ec);
    i->ticker.cancel();
  });
  impl_->each(&Connection::close_if_idle);
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (impl_->shared.busy != 0 && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return impl_->shared.busy == 0;
}

}  // namespace switchyard::server
