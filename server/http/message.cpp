// SPDX-License-Identifier: Apache-2.0
#include "server/http/message.h"

#include <fmt/format.h>

#include <algorithm>

namespace switchyard::server {

namespace {

const char* reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return "Status";
  }
}

// Parts of a reply's headers come from requests: nothing in them may begin another header.
void add_header(std::string& out, std::string_view name, std::string_view value) {
  out += name;
  out += ": ";
  std::copy_if(value.begin(), value.end(), std::back_inserter(out),
               [](char c) { return static_cast<unsigned char>(c) >= 0x20 && c != 0x7F; });
  out += "\r\n";
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string reply_head(const HttpReply& reply, Framing framing, uint64_t bytes, bool keep_alive) {
  std::string out = fmt::format("HTTP/1.1 {} {}\r\n", reply.status, reason(reply.status));
  if (!reply.type.empty()) add_header(out, "Content-Type", reply.type);
  for (const auto& [name, value] : reply.headers) add_header(out, name, value);
  if (framing == Framing::length && reply.status != 204) add_header(out, "Content-Length", std::to_string(bytes));
  if (framing == Framing::chunks) add_header(out, "Transfer-Encoding", "chunked");
  add_header(out, "Connection", keep_alive ? "keep-alive" : "close");
  return out + "\r\n";
}

std::string chunk(std::string_view data) { return fmt::format("{:x}\r\n{}\r\n", data.size(), data); }

bool read_target(std::string_view target, std::string& path, std::string& query) {
  if (target.starts_with("http://")) {  // the form for proxies
    const size_t slash = target.find('/', 7);
    target = slash == std::string_view::npos ? "/" : target.substr(slash);
  }
  if (target.empty() || (target[0] != '/' && target != "*")) return false;
  const size_t mark = target.find('?');
  query = mark == std::string_view::npos ? "" : target.substr(mark + 1);
  path.clear();
  const std::string_view raw = target.substr(0, mark);
  for (size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '%') {
      path += raw[i];
      continue;
    }
    const int high = i + 2 < raw.size() ? hex_digit(raw[i + 1]) : -1, low = high < 0 ? -1 : hex_digit(raw[i + 2]);
    if (low < 0) return false;
    path += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return path.find('\0') == std::string::npos;
}

std::string usable_id(std::string_view id) {
  constexpr size_t kLongest = 128;
  const auto plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' ||
           c == '.' || c == ':';
  };
  return id.size() <= kLongest && std::all_of(id.begin(), id.end(), plain) ? std::string(id) : "";
}

}  // namespace switchyard::server
