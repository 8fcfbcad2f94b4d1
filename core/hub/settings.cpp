// SPDX-License-Identifier: Apache-2.0
#include "core/hub/settings.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "core/base/printable.h"

namespace switchyard::hub {
namespace {

constexpr const char* kEndpoint = "https://huggingface.co";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// A folder that a variable names; "~" is the home, as those programs have it.
std::string folder_of(const char* name) {
  std::string value = variable(name);
  if (value == "~" || value.starts_with("~/")) return variable("HOME") + value.substr(1);
  return value;
}

// HF_HOME, or its default; "" where there is no absolute path to it.
std::string home() {
  if (std::string named = folder_of("HF_HOME"); !named.empty()) return named;
  if (const std::string cache = folder_of("XDG_CACHE_HOME"); cache.starts_with("/")) return cache + "/huggingface";
  const std::string user = variable("HOME");
  return user.starts_with("/") ? user + "/.cache/huggingface" : "";
}

std::string trimmed(std::string text) {
  const auto space = [](unsigned char c) { return std::isspace(c) != 0; };
  while (!text.empty() && space(static_cast<unsigned char>(text.back()))) text.pop_back();
  text.erase(text.begin(), std::find_if_not(text.begin(), text.end(), space));
  return text;
}

bool is_true(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text == "1" || text == "ON" || text == "YES" || text == "TRUE";
}

Status read_token(Os& os, HubSettings& s) {
  constexpr uint64_t kMostBytes = 4096;
  s.token = trimmed(variable("HF_TOKEN"));
  s.token_source = "HF_TOKEN";
  if (s.token.empty()) {
    s.token_source = folder_of("HF_TOKEN_PATH");
    if (s.token_source.empty() && !home().empty()) s.token_source = home() + "/token";
    if (s.token_source.empty() || !os.exists(s.token_source)) return {};
    SWY_LET(const std::string text, os.read(s.token_source, kMostBytes));
    s.token = trimmed(text);
  }
  // It becomes a line of a request.
  if (std::any_of(s.token.begin(), s.token.end(), [](unsigned char c) { return c <= ' ' || c > '~'; })) {
    return error(Code::usage, "the token in {} has characters that no token has", s.token_source);
  }
  return {};
}

}  // namespace

std::string hub_cache_folder() {
  if (std::string named = folder_of("HF_HUB_CACHE"); !named.empty()) return named;
  return home().empty() ? "" : home() + "/hub";
}

Result<HubSettings> read_hub_settings(Os& os) {
  HubSettings s;
  s.endpoint = variable("HF_ENDPOINT");
  if (s.endpoint.empty()) s.endpoint = kEndpoint;
  while (s.endpoint.ends_with('/')) s.endpoint.pop_back();
  if (!s.endpoint.starts_with("https://") && !s.endpoint.starts_with("http://")) {
    return error(Code::usage, "HF_ENDPOINT is '{}'; it must be an address that begins with https://",
                 printable(s.endpoint));
  }
  s.cache = hub_cache_folder();
  s.offline = is_true(variable("HF_HUB_OFFLINE"));
  SWY_TRY(read_token(os, s));
  return s;
}

}  // namespace switchyard::hub
