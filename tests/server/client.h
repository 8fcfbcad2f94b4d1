// SPDX-License-Identifier: Apache-2.0
// A server with the demo model in this process, and a client that can also behave badly.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "core/serve/service.h"
#include "server/app/application.h"
#include "server/http/http_server.h"

namespace switchyard::testing {

// One server for all tests of the program that want its options.
struct Server {
  explicit Server(server::ApplicationOptions application = {}, server::HttpOptions http = {},
                  ServiceOptions service = {}, uint32_t sessions = 4);
  ~Server();
  // Waits until nothing runs. False: something did for a minute.
  bool idle() const;

  std::unique_ptr<Service> service;
  std::unique_ptr<server::Application> application;
  std::unique_ptr<server::HttpServer> http;
};

struct Reply {
  int status = 0;                              // 0: the connection ended before a reply
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

// One connection. Reads give up after thirty seconds.
class Client {
 public:
  explicit Client(const Server& server);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool send(const std::string& text);
  // Reads until the connection's unread text holds `text`; false at the end.
  bool wait_for(const std::string& text);
  Reply reply();         // the next whole reply
  bool ended();          // whether the server closes the connection
  void reset();          // ends it by RST
  void shrink_window();  // so that few unread bytes fit; before anything is sent

  // A request, and its reply.
  Reply get(const std::string& path, const std::string& headers = "");
  Reply post(const std::string& path, const std::string& body, const std::string& headers = "");
  static std::string post_text(const std::string& path, const std::string& body, const std::string& headers = "");

  std::string unread;

 private:
  bool read_some();
  int socket_ = -1;
};

Reply get(const Server& server, const std::string& path, const std::string& headers = "");
Reply post(const Server& server, const std::string& path, const std::string& body, const std::string& headers = "");

}  // namespace switchyard::testing
