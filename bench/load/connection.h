// SPDX-License-Identifier: Apache-2.0
// One connection to the server under load. For the files of this folder that include Boost.
#pragma once

#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <string>

#include "bench/load/load.h"

namespace switchyard::bench {

namespace net = boost::asio;
namespace beast = boost::beast;

// A completion token that gives the error, and throws nothing.
inline auto with(beast::error_code& ec) { return net::redirect_error(net::use_awaitable, ec); }

class Connection {
 public:
  using Addresses = net::ip::tcp::resolver::results_type;
  // All outlive it.
  Connection(net::io_context& io, const Load& load, const Addresses& addresses)
      : load_(load), addresses_(addresses), stream_(io) {}

  // Sends a request and reads the streamed answer into `exchange`, whose `begin` the caller sets. Opens the connection
  // where there is none, and keeps it for the next request if the server does.
  net::awaitable<void> converse(const std::string& body, Exchange& exchange);
  // A plain request; the body of the reply, or "" with `exchange` saying what went wrong.
  net::awaitable<std::string> get(const std::string& path, Exchange& exchange);

 private:
  using Parser = beast::http::response_parser<beast::http::string_body>;
  using Request = beast::http::request<beast::http::string_body>;

  Request request(beast::http::verb verb, const std::string& path) const;
  net::awaitable<bool> connect(Exchange& exchange);
  net::awaitable<bool> open_reply(const Request& request, std::optional<Parser>& parser, Exchange& exchange);
  void fail(Exchange& exchange, Fault fault, const std::string& what, const beast::error_code& ec) const;
  void close();

  const Load& load_;
  const Addresses& addresses_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  bool open_ = false;
};

}  // namespace switchyard::bench
