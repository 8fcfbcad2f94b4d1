// SPDX-License-Identifier: Apache-2.0
#include "bench/load/load.h"

#include <charconv>
#include <string_view>

namespace switchyard::bench {
namespace {

constexpr uint32_t kMostTokens = 1u << 20;

bool whole_number(std::string_view text, uint32_t& value) {
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  return ec == std::errc() && end == text.data() + text.size();
}

}  // namespace

Result<LengthRange> parse_lengths(const std::string& text, const std::string& option) {
  LengthRange r;
  const size_t dash = text.find('-');
  const bool both = dash != std::string::npos;
  const bool numbers = whole_number(std::string_view(text).substr(0, dash), r.least) &&
                       (!both || whole_number(std::string_view(text).substr(dash + 1), r.most));
  if (!both) r.most = r.least;
  if (!numbers || r.least == 0 || r.most < r.least || r.most > kMostTokens) {
    return error(Code::usage, "{} '{}' is not a number of tokens; write one such as 128, or a range such as 16-512",
                 option, text);
  }
  return r;
}

Result<Endpoint> parse_url(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  if (url.starts_with("https://")) {
    return error(Code::usage, "--serve {}: the load generator does not speak TLS; name the server behind the proxy",
                 url);
  }
  std::string_view rest = url;
  if (rest.starts_with(kScheme)) rest.remove_prefix(kScheme.size());
  Endpoint e;
  const size_t slash = rest.find('/');
  std::string_view authority = rest.substr(0, slash);
  std::string_view path = slash == std::string_view::npos ? "" : rest.substr(slash);
  while (path.ends_with('/')) path.remove_suffix(1);
  if (path.ends_with("/v1")) path.remove_suffix(3);
  e.path = path;
  size_t colon = authority.rfind(':');
  if (authority.starts_with('[')) {  // IPv6
    const size_t close = authority.find(']');
    e.host = authority.substr(1, close == std::string_view::npos ? 0 : close - 1);
    colon = close == std::string_view::npos ? close : authority.find(':', close);
  } else {
    e.host = authority.substr(0, colon);
  }
  if (colon != std::string_view::npos) e.port = authority.substr(colon + 1);
  uint32_t port = 0;
  const bool plain = url.find_first_of(" \t\r\n@?#") == std::string::npos && url.find("://") == url.rfind("://");
  if (e.host.empty() || !whole_number(e.port, port) || port == 0 || port > 65535 || !plain ||
      (rest.size() == url.size() && url.find("://") != std::string::npos)) {
    return error(Code::usage, "--serve '{}' is not the address of a server; write one such as http://127.0.0.1:8080",
                 url);
  }
  return e;
}

const char* fault_name(Fault fault) {
  constexpr const char* kNames[kFaults] = {
      "none", "connect", "status", "not an event stream", "malformed", "reported", "cut off", "timeout", "not sent"};
  return kNames[static_cast<size_t>(fault)];
}

}  // namespace switchyard::bench
