// SPDX-License-Identifier: Apache-2.0
// Who may use the server: keys, host names, pages of other sites.
#include <algorithm>

#include "core/base/printable.h"
#include "server/app/application.h"

namespace switchyard::server {

namespace {

// Takes the same time wherever the keys differ.
bool equal_in_constant_time(std::string_view a, std::string_view b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i] ^ (b.empty() ? 0 : b[i % b.size()]));
  }
  return difference == 0;
}

// A Host header's name, in lower case and without its port.
std::string host_name(std::string_view host) {
  const size_t bracket = host.starts_with('[') ? host.find(']') : std::string_view::npos;
  const size_t end = bracket == std::string_view::npos ? host.find(':') : bracket + 1;
  std::string name(host.substr(0, end));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c); });
  if (name.ends_with('.')) name.pop_back();
  return name;
}

// 127.0.0.0/8, in the only spelling that browsers send.
bool is_loopback_v4(std::string_view name) {
  int parts = 0;
  if (!name.starts_with("127.")) return false;
  for (size_t at = 0; at <= name.size(); ++parts) {
    const size_t dot = std::min(name.find('.', at), name.size());
    const std::string_view part = name.substr(at, dot - at);
    const bool digits = std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (part.empty() || part.size() > 3 || !digits) return false;
    at = dot + 1;
  }
  return parts == 4;
}

}  // namespace

bool is_loopback_name(std::string_view host) {
  const std::string name = host_name(host);
  return name == "localhost" || name.ends_with(".localhost") || name == "[::1]" || is_loopback_v4(name);
}

bool Application::key_fits(const HttpRequest& request) const {
  std::string_view key = request.header("authorization");
  constexpr std::string_view kBearer = "bearer ";
  const auto lower = [](char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c); };
  const bool bearer = key.size() >= kBearer.size() && std::equal(kBearer.begin(), kBearer.end(), key.begin(),
                                                                 [&](char a, char b) { return a == lower(b); });
  key = bearer ? key.substr(kBearer.size()) : request.header("x-api-key");
  bool fits = false;
  for (const std::string& known : options_.api_keys) fits = equal_in_constant_time(key, known) || fits;
  return fits;
}

// A page whose own name was made to lead to this machine (DNS rebinding) is of the server's origin for a browser, which
// still sends the page's name. No name at all comes from programs alone.
bool Application::host_fits(const HttpRequest& request) const {
  const std::string_view host = request.header("host");
  if (!options_.hosts || host.empty() || is_loopback_name(host)) return true;
  const std::string name = host_name(host);
  return std::any_of(options_.hosts->begin(), options_.hosts->end(),
                     [&](const std::string& known) { return known == "*" || host_name(known) == name; });
}

// Browsers say which site's page sends a request. Without this check, any page could use a server on its reader's
// machine.
bool Application::origin_fits(const HttpRequest& request) const {
  const std::string_view origin = request.header("origin");
  if (origin.empty()) return true;
  const size_t at = origin.find("://");
  if (at != std::string_view::npos && origin.substr(at + 3) == request.header("host")) return true;
  return std::any_of(options_.origins.begin(), options_.origins.end(),
                     [&](const std::string& known) { return known == "*" || known == origin; });
}

Refusal Application::check_place(const HttpRequest& request) const {
  ApiError error{.status = 403, .type = "permission_error", .message = {}};
  if (!host_fits(request)) {
    error.message = fmt::format("'{}' is no name of this server; its operator can allow it with --allow-host",
                                printable(request.header("host")));
    return error;
  }
  if (origin_fits(request)) return {};
  error.message = fmt::format("pages of {} may not use this server; its operator can allow it with --cors-origin",
                              printable(request.header("origin")));
  return error;
}

}  // namespace switchyard::server
