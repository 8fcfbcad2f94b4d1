// SPDX-License-Identifier: Apache-2.0
#include "core/hub/http.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <ctime>
#include <memory>
#include <optional>
#include <thread>

#include "core/base/printable.h"
#include "core/hub/curl.h"

namespace switchyard::hub {
namespace {

constexpr int kMostRedirects = 10;
constexpr long kOk = 200, kPartial = 206, kRedirect = 300, kUnauthorized = 401, kForbidden = 403, kNotFound = 404,
               kTimeout = 408, kTooMany = 429, kServerFault = 500;

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// An address, taken apart by libcurl.
class Url {
 public:
  explicit Url(const Curl& curl) : curl_(curl), url_(curl.url()) {}
  Url(const Url&) = delete;
  Url& operator=(const Url&) = delete;
  ~Url() { curl_.url_cleanup(url_); }
  // Relative to what it was before, where there was something.
  bool set(const std::string& text) {
    return url_ != nullptr && curl_.url_set(url_, CURLUPART_URL, text.c_str(), 0) == CURLUE_OK;
  }
  std::string part(CURLUPart which, unsigned flags = 0) const {
    char* text = nullptr;
    if (url_ == nullptr || curl_.url_get(url_, which, &text, flags) != CURLUE_OK) return "";
    const std::string out = text;
    curl_.free(text);
    return out;
  }
  std::string scheme() const { return lower(part(CURLUPART_SCHEME)); }
  std::string host() const { return lower(part(CURLUPART_HOST)); }
  // Scheme, host and port: whom a token is meant for.
  std::string origin() const { return scheme() + "://" + host() + ":" + part(CURLUPART_PORT, CURLU_DEFAULT_PORT); }

 private:
  const Curl& curl_;
  CURLU* url_;
};

// One exchange: what libcurl's callbacks work on.
struct Exchange {
  const Curl& curl;
  const HttpRequest& request;
  HttpHead head = {};
  bool of_hub = false;
  bool begun = false;   // `begin` was asked
  Status refused = {};  // by `begin` or `body`, or because it was cancelled
  bool cancelled = false;

  bool leads_elsewhere() const { return head.status >= kRedirect && head.status < 400 && head.status != 304; }
  bool is_content() const { return head.status == kOk || head.status == kPartial; }
  Status begin() {
    if (std::exchange(begun, true) || (!is_content() && !leads_elsewhere())) return {};
    if (of_hub && request.named) SWY_TRY(request.named(head));
    return is_content() && request.begin ? request.begin(head) : Status();
  }
};

size_t on_header(const char* text, size_t, size_t bytes, void* self) {
  auto& x = *static_cast<Exchange*>(self);
  constexpr size_t kMostHeaders = 256;
  std::string line(text, bytes);
  while (!line.empty() && (line.back() == '\r' || line.back() == '\n')) line.pop_back();
  if (line.starts_with("HTTP/")) {
    x.head = {};
    const size_t space = line.find(' ');
    if (space != std::string::npos) std::from_chars(line.data() + space + 1, line.data() + line.size(), x.head.status);
    return bytes;
  }
  const size_t colon = line.find(':');
  if (colon == std::string::npos || x.head.headers.size() >= kMostHeaders) return bytes;
  const size_t value = line.find_first_not_of(" \t", colon + 1);
  x.head.headers[lower(line.substr(0, colon))] = value == std::string::npos ? "" : line.substr(value);
  return bytes;
}

size_t on_body(const char* data, size_t, size_t bytes, void* self) {
  auto& x = *static_cast<Exchange*>(self);
  if (!x.is_content()) return bytes;  // a page for people
  x.refused = x.begin();
  if (x.refused.ok() && x.request.body) x.refused = x.request.body(std::as_bytes(std::span(data, bytes)));
  return x.refused.ok() ? bytes : 0;
}

int on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  auto& x = *static_cast<Exchange*>(self);
  x.cancelled = x.request.cancelled && x.request.cancelled();
  return x.cancelled ? 1 : 0;
}

// Performs one request. The result is libcurl's; the answer is in `x`.
CURLcode perform(Exchange& x, const std::string& url, const std::string& token, const HubSettings& s) {
  constexpr long kSlowest = 1000;  // bytes a second; below it the server has stalled
  const Curl& c = x.curl;
  const std::unique_ptr<CURL, decltype(c.easy_cleanup)> easy(c.easy_init(), c.easy_cleanup);
  if (easy == nullptr) return CURLE_OUT_OF_MEMORY;
  curl_slist* lines = nullptr;
  if (!token.empty()) lines = c.slist_append(lines, ("Authorization: Bearer " + token).c_str());
  const std::unique_ptr<curl_slist, decltype(c.slist_free_all)> headers(lines, c.slist_free_all);
  const std::string range = fmt::format("{}-", x.request.from);
  const auto set = [&](CURLoption option, auto value) { c.easy_setopt(easy.get(), option, value); };
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_USERAGENT, "switchyard");
  set(CURLOPT_HTTPHEADER, headers.get());
  if (x.request.from > 0) set(CURLOPT_RANGE, range.c_str());
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_CONNECTTIMEOUT, static_cast<long>(s.stall_seconds));
  set(CURLOPT_LOW_SPEED_LIMIT, kSlowest);
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(s.stall_seconds));
  set(CURLOPT_HEADERFUNCTION, &on_header);
  set(CURLOPT_HEADERDATA, static_cast<void*>(&x));
  set(CURLOPT_WRITEFUNCTION, &on_body);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&x));
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &on_progress);
  set(CURLOPT_XFERINFODATA, static_cast<void*>(&x));
  return c.easy_perform(easy.get());
}

// Seconds, or a date.
uint32_t retry_after(const Curl& curl, const HttpHead& head) {
  constexpr uint32_t kMost = 86400;
  const std::string text = head.header("retry-after");
  if (text.empty()) return 0;
  uint32_t seconds = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (fault == std::errc() && end == text.data() + text.size()) return std::min(seconds, kMost);
  const time_t when = curl.getdate(text.c_str(), nullptr), now = std::time(nullptr);
  return when > now ? static_cast<uint32_t>(std::min<time_t>(when - now, kMost)) : 0;
}

// What an answer without content means.
HttpFault fault_of(const Exchange& x, const HubSettings& s) {
  const long status = x.head.status;
  const std::string& what = x.request.what;
  const std::string code = lower(x.head.header("x-error-code"));
  const std::string token =
      s.token.empty() ? "no token is set (HF_TOKEN)" : "the token in " + s.token_source + " does not open it";
  if (code == "gatedrepo" || status == kForbidden) {
    return {error(Code::unsupported,
                  "{} is gated (HTTP {}), and {}; accept its conditions on its page, with the account "
                  "of the token",
                  what, status, token)};
  }
  if (status == kUnauthorized) {
    return {error(Code::not_found, "{} is not there, or is private (HTTP 401), and {}; check the name", what, token)};
  }
  if (status == kNotFound) return {error(Code::not_found, "{} is not there (HTTP 404); check the name", what)};
  const uint32_t wait = retry_after(x.curl, x.head);
  if (status == kTooMany) {
    return {error(Code::io, "{}: the hub refuses further requests for now (HTTP 429){}", what,
                  wait > 0 ? fmt::format("; try again in {} s", wait) : "; try again later"),
            true, wait};
  }
  const bool again = status >= kServerFault || status == kTimeout;
  return {
      error(Code::io, "{}: the server answers with HTTP status {}{}", what, status, again ? "; try again later" : ""),
      again, wait};
}

}  // namespace

std::string HttpHead::header(const std::string& name) const {
  const auto it = headers.find(name);
  return it == headers.end() ? "" : it->second;
}

std::string url_path(const std::string& path) {
  std::string out;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = std::isalnum(byte) != 0 || c == '/' || c == '-' || c == '_' || c == '.' || c == '~';
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  return out;
}

HttpFault Http::attempt(const HttpRequest& request) const {
  const auto opened = Curl::open(os_);
  if (!opened.ok()) return {opened.status()};
  const Curl& curl = **opened;
  Url url(curl), home(curl);
  if (!url.set(request.url) || !home.set(settings_.endpoint)) {
    return {error(Code::usage, "'{}' is no address", printable(settings_.endpoint))};
  }
  for (int redirects = 0;; ++redirects) {
    Exchange x{curl, request};
    x.of_hub = url.origin() == home.origin();
    const std::string token = x.of_hub ? settings_.token : "";
    const CURLcode done = perform(x, url.part(CURLUPART_URL), token, settings_);
    if (x.cancelled) return {error(Code::cancelled, "stopped; the same command continues")};
    if (!x.refused.ok()) return {x.refused};
    if (done != CURLE_OK) {
      const bool certain = done == CURLE_PEER_FAILED_VERIFICATION || done == CURLE_SSL_CACERT_BADFILE;
      return {error(Code::io, "{}: {} ({})", request.what, curl.easy_strerror(done), printable(url.host())), !certain};
    }
    if (!x.leads_elsewhere()) {
      if (!x.is_content()) return fault_of(x, settings_);
      return {x.begin()};  // of an answer without a body
    }
    if (Status s = x.begin(); !s.ok()) return {s};
    if (redirects == kMostRedirects) {
      return {error(Code::io, "{}: the server redirects more than {} times", request.what, kMostRedirects)};
    }
    const bool secure = url.scheme() == "https";
    const std::string location = x.head.header("location");
    if (location.empty() || !url.set(location) || (url.scheme() != "https" && (secure || url.scheme() != "http"))) {
      return {error(Code::io, "{}: the server redirects to '{}', where nothing is fetched from", request.what,
                    printable(location))};
    }
  }
}

Status Http::wait(const HttpFault& fault, uint32_t number, const CancelCheck& cancelled,
                  const std::function<void(const std::string&)>& retrying) const {
  constexpr uint32_t kLongest = 120;  // seconds that are waited for rather than told of
  constexpr uint64_t kFirst_ms = 500, kMost_ms = 30000;
  using std::chrono::milliseconds;
  if (!fault.again || number > settings_.attempts || fault.wait_seconds > kLongest) return fault.status;
  const uint64_t growing = std::min(kMost_ms, kFirst_ms << std::min<uint32_t>(number - 2, 10));
  const uint64_t wait_ms = std::max<uint64_t>(growing + os_.now_ns() % (growing / 4), fault.wait_seconds * 1000ull);
  if (retrying) {
    retrying(fmt::format("{}; attempt {} of {} in {:.1f} s", fault.status.message(), number, settings_.attempts,
                         static_cast<double>(wait_ms) / 1000));
  }
  const uint64_t until = os_.now_ns() + wait_ms * 1'000'000;
  while (os_.now_ns() < until) {
    SWY_TRY(check_cancelled(cancelled, "waiting for the hub"));
    std::this_thread::sleep_for(milliseconds(20));
  }
  return {};
}

Result<std::string> Http::text(const std::string& url, const std::string& what, uint64_t most_bytes,
                               const CancelCheck& cancelled,
                               const std::function<void(const std::string&)>& retrying) const {
  for (uint32_t number = 1;; ++number) {
    std::string text;
    HttpRequest request{url, what};
    request.cancelled = cancelled;
    request.body = [&](std::span<const std::byte> bytes) -> Status {
      if (text.size() + bytes.size() > most_bytes) {
        return error(Code::invalid_data, "{}: the answer has more than {} MiB", what, most_bytes >> 20);
      }
      text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      return {};
    };
    const HttpFault fault = attempt(request);
    if (fault.status.ok()) return text;
    SWY_TRY(wait(fault, number + 1, cancelled, retrying));
  }
}

}  // namespace switchyard::hub
