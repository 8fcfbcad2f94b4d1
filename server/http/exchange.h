// SPDX-License-Identifier: Apache-2.0
// What goes between the transport (http_server.h) and the application: requests, and replies that are whole or come bit
// by bit. Nothing here knows sockets.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace switchyard::server {

struct HttpRequest {
  std::string method, path, query;             // the path is decoded
  std::map<std::string, std::string> headers;  // names in lower case; of several of a name the first
  std::string body;
  std::string id;    // X-Request-Id: the client's, or a new one
  std::string peer;  // its address

  std::string_view header(const std::string& name) const {
    const auto at = headers.find(name);
    return at == headers.end() ? std::string_view() : std::string_view(at->second);
  }
};

// A reply that is being made. Destroyed when it is complete, or its client has gone.
class Pending {
 public:
  enum class State { waiting, more, done };

  virtual ~Pending() = default;
  // Appends what can be sent now. `waiting`: nothing more until the next wake-up; `more`: there may be more by now, of
  // which no wake-up tells but that of the end. A reply that is no stream has its body in the last part. Called by one
  // thread at a time.
  virtual State pull(std::string& out) = 0;
  // `wake` is called from any thread when there may be something after `pull` said `waiting`; empty: none.
  virtual void on_ready(std::function<void()> wake) = 0;
  // Sent on a stream while nothing else is.
  virtual std::string ping() const = 0;
  virtual bool stream() const = 0;
  // Of a reply that is no stream, once it is done.
  virtual int status() const = 0;
};

// Whether somebody still waits for a reply. From any thread.
using GoesOn = std::function<bool()>;

struct HttpReply {
  int status = 200;
  std::string type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};
  std::unique_ptr<Pending> pending = {};  // instead of `body`
  bool close = false;                     // the connection after it
  // Instead of all this: makes the reply, and may take seconds. It runs on a thread for such work, and gives up when
  // nobody waits.
  std::function<HttpReply(const GoesOn&)> work = {};
  bool computes = false;  // the work has the model compute, which may take minutes: on another thread than other work
};

// What the transport does with requests. Called by several threads at the same time.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Before the body is read: a reply to a request that is refused, or needs no body. It must be quick.
  virtual std::optional<HttpReply> admit(const HttpRequest& head) = 0;
  // It runs on one of a few threads for all requests, and leaves to HttpReply::work what takes long.
  virtual HttpReply handle(HttpRequest request) = 0;
  // The reply to what the transport itself refuses: a body that is too large (413), a request that is no HTTP (400), a
  // client that is too slow (408), too many connections or bodies (503).
  virtual HttpReply refuse(int status, const HttpRequest& head, const std::string& message) = 0;
  // Headers that every reply to this request has.
  virtual void add_headers(const HttpRequest& request, HttpReply& reply) = 0;
  // After a reply has ended, or its client has gone (`whole`: false).
  virtual void log(const HttpRequest& request, int status, double seconds, uint64_t bytes, bool whole) = 0;
};

}  // namespace switchyard::server
