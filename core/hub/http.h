// SPDX-License-Identifier: Apache-2.0
// Reading from a hub over HTTP: redirects, retries with growing waits, and a token that only the hub itself gets.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "core/base/cancel.h"
#include "core/hub/settings.h"

namespace switchyard::hub {

struct HttpHead {
  long status = 0;
  std::map<std::string, std::string> headers;  // names in lower case; of equal ones the last
  std::string header(const std::string& name) const;
};

// What one request asks for.
struct HttpRequest {
  std::string url;
  std::string what;   // for messages: "OWNER/NAME", "OWNER/NAME: FILE"
  uint64_t from = 0;  // bytes before this are not wanted

  // A failure of these ends the request. `named` gets each answer of the hub itself, redirects too; `begin` the answer
  // with the content, before it.
  std::function<Status(const HttpHead& head)> named = {};
  std::function<Status(const HttpHead& head)> begin = {};
  std::function<Status(std::span<const std::byte> bytes)> body = {};
  CancelCheck cancelled = {};
};

// What became of one attempt that failed.
struct HttpFault {
  Status status;
  bool again = false;         // the same request may succeed later
  uint32_t wait_seconds = 0;  // that the server asks for; 0: none
};

class Http {
 public:
  explicit Http(Os& os, HubSettings settings) : os_(os), settings_(std::move(settings)) {}
  const HubSettings& settings() const { return settings_; }

  // One attempt, with its redirects.
  HttpFault attempt(const HttpRequest& request) const;

  // A small text, with retries. `retrying` gets a line before each wait. Errors: io, not_found, unsupported; cancelled.
  Result<std::string> text(const std::string& url, const std::string& what, uint64_t most_bytes,
                           const CancelCheck& cancelled, const std::function<void(const std::string&)>& retrying) const;

  // Waits before attempt `number` (from 2), at least as long as the fault asks for. Errors: the fault's, where another
  // attempt is no use; cancelled.
  Status wait(const HttpFault& fault, uint32_t number, const CancelCheck& cancelled,
              const std::function<void(const std::string&)>& retrying) const;

 private:
  Os& os_;
  HubSettings settings_;
};

// A path with what has a meaning in an address written as %2F; slashes stay.
std::string url_path(const std::string& path);

}  // namespace switchyard::hub
