// SPDX-License-Identifier: Apache-2.0
#include "tests/server/client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "core/program/program.h"

namespace switchyard::testing {

namespace {

LoadedModel demo(uint32_t sessions) {
  auto program = Program::load(Os::real(), SWITCHYARD_DEMO_MODEL);
  EXPECT_TRUE(program.ok()) << program.status().message();
  // A plugin keeps the host that it negotiated with last, so all models of a process share one.
  static const auto host = std::make_shared<Host>(2);
  DiscoveryOptions discovery;
  discovery.search_path = SWITCHYARD_TEST_BACKENDS;
  discovery.cpu_features = default_discovery().cpu_features;
  Registry registry = Registry::discover(Os::real(), discovery, *host);
  ModelOptions options;
  options.sessions = sessions;
  options.checkpoints = 4;
  options.deterministic = true;  // so that texts do not depend on what shares their steps
  auto loaded = load_model(host, std::move(registry), SWITCHYARD_TEST_BACKEND,
                           std::make_shared<const Program>(std::move(*program)), options);
  EXPECT_TRUE(loaded.ok()) << loaded.status().message();
  return std::move(*loaded);
}

}  // namespace

Server::Server(server::ApplicationOptions a, server::HttpOptions h, ServiceOptions s, uint32_t sessions) {
  auto made = Service::create(demo(sessions), s);
  EXPECT_TRUE(made.ok()) << made.status().message();
  service = std::move(*made);
  if (a.model_names.empty()) a.model_names = {"demo"};
  auto app = server::Application::create(*service, std::move(a));
  EXPECT_TRUE(app.ok()) << app.status().message();
  application = std::move(*app);
  h.port = 0;
  auto listening = server::HttpServer::start(*application, h);
  EXPECT_TRUE(listening.ok()) << listening.status().message();
  http = std::move(*listening);
}

Server::~Server() {
  http.reset();
  application.reset();
}

bool Server::idle() const {
  for (int i = 0; i < 6000; ++i) {
    const ServiceStats stats = service->stats();
    if (stats.running + stats.waiting + stats.paused + stats.set_aside == 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

Client::Client(const Server& server) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(server.http->port());
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
}

Client::~Client() {
  if (socket_ >= 0) ::close(socket_);
}

void Client::shrink_window() {
  const int bytes = 4096;
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

void Client::reset() {
  const linger now{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  ::close(socket_);
  socket_ = -1;
}

bool Client::send(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = ::send(socket_, text.data() + at, text.size() - at, MSG_NOSIGNAL);
    if (n <= 0) return false;
    at += static_cast<size_t>(n);
  }
  return true;
}

bool Client::read_some() {
  pollfd ready{.fd = socket_, .events = POLLIN, .revents = 0};
  if (::poll(&ready, 1, 30'000) <= 0) return false;
  char bytes[16384];
  const ssize_t n = ::recv(socket_, bytes, sizeof bytes, 0);
  if (n <= 0) return false;
  unread.append(bytes, static_cast<size_t>(n));
  return true;
}

bool Client::wait_for(const std::string& text) {
  while (unread.find(text) == std::string::npos) {
    if (!read_some()) return false;
  }
  return true;
}

bool Client::ended() {
  while (read_some()) {
  }
  pollfd ready{.fd = socket_, .events = POLLIN, .revents = 0};
  return ::poll(&ready, 1, 0) == 1;
}

Reply Client::reply() {
  Reply r;
  if (!wait_for("\r\n\r\n")) return r;
  const size_t end = unread.find("\r\n\r\n");
  r.status = std::stoi(unread.substr(9, 3));
  for (size_t at = unread.find("\r\n") + 2; at < end + 2;) {
    const size_t colon = unread.find(": ", at), line = unread.find("\r\n", at);
    std::string name = unread.substr(at, colon - at);
    for (char& c : name) c = static_cast<char>(std::tolower(c));
    r.headers[name] = unread.substr(colon + 2, line - colon - 2);
    at = line + 2;
  }
  unread.erase(0, end + 4);
  if (r.headers.contains("content-length")) {
    const size_t size = std::stoul(r.headers["content-length"]);
    while (unread.size() < size && read_some()) {
    }
    r.body = unread.substr(0, size);
    unread.erase(0, size);
  }
  while (r.headers.contains("transfer-encoding")) {
    if (!wait_for("\r\n")) break;
    const size_t size = std::stoul(unread, nullptr, 16), line = unread.find("\r\n") + 2;
    while (unread.size() < line + size + 2 && read_some()) {
    }
    r.body += unread.substr(line, size);
    unread.erase(0, line + size + 2);
    if (size == 0) break;
  }
  return r;
}

std::string Client::post_text(const std::string& path, const std::string& body, const std::string& headers) {
  return "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + headers +
         "\r\n" + body;
}

Reply Client::get(const std::string& path, const std::string& headers) {
  send("GET " + path + " HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n");
  return reply();
}

Reply Client::post(const std::string& path, const std::string& body, const std::string& headers) {
  send(post_text(path, body, headers));
  return reply();
}

Reply get(const Server& server, const std::string& path, const std::string& headers) {
  return Client(server).get(path, headers);
}
Reply post(const Server& server, const std::string& path, const std::string& body, const std::string& headers) {
  return Client(server).post(path, body, headers);
}

}  // namespace switchyard::testing
