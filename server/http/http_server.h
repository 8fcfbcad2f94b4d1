// SPDX-License-Identifier: Apache-2.0
// HttpServer: HTTP/1.1 on a TCP port, on Boost.Beast. An event loop serves all connections; handlers run on threads of
// their own, so that a request that takes long to read delays no other connection.
//
// A client that does not read its reply is waited for: nothing is taken from the reply's source meanwhile. A client
// that closes its side of the connection counts as gone, and its reply is given up at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/base/status.h"
#include "server/http/exchange.h"

namespace switchyard::server {

struct HttpOptions {
  std::string address = "127.0.0.1";
  uint16_t port = 8080;     // 0: any free one
  uint32_t io_threads = 1;  // of the event loop
  uint32_t handler_threads = 2;
  uint32_t works = 16;          // HttpReply::work of each kind that clients wait for; more get 503
  uint32_t connections = 4096;  // at a time; more get 503
  uint32_t header_bytes = 16 << 10;
  uint64_t body_bytes = 16 << 20;
  uint64_t bodies_bytes = 256 << 20;  // of all requests that are being read or handled; more get 503
  uint32_t header_seconds = 10;       // from the first byte of a request to the end of its headers
  uint32_t body_seconds = 60;
  uint32_t idle_seconds = 75;              // of a connection between two requests
  uint32_t write_seconds = 60;             // for the client to take any byte
  uint32_t send_buffer_bytes = 256 << 10;  // that the system keeps for a client that does not read
  uint32_t ping_seconds = 15;              // of silence on a stream
};

class HttpServer {
 public:
  // Listens. `handler` outlives it. Errors: usage, for an address that is none; io, for a port that cannot be had.
  static Result<std::unique_ptr<HttpServer>> start(HttpHandler& handler, const HttpOptions& options);
  ~HttpServer();  // closes all connections

  uint16_t port() const;
  uint32_t connections() const;

  // Takes no more connections, closes those without a request, and lets the requests end. Returns when all have, or
  // after `seconds`; whether all have.
  bool drain(double seconds);

  struct Impl;

 private:
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace switchyard::server
