// SPDX-License-Identifier: Apache-2.0
#include "core/hub/curl.h"

#include <mutex>

namespace switchyard::hub {
namespace {

// One binary interface since 2006; the names are those of distributions, by the TLS library that it uses.
constexpr const char* kCurlLibraries[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};

Result<Curl> find_curl(Os& os) {
  void* library = nullptr;
  for (const char* name : kCurlLibraries) {
    const auto opened = os.open_library(name);
    if (!opened.ok()) continue;
    library = *opened;
    break;
  }
  if (library == nullptr) {
    return error(
        Code::not_found,
        "models are fetched by libcurl, and there is no libcurl.so.4 here; install it (Debian: libcurl4, Fedora: "
        "libcurl), or fetch the files with another program and name them");
  }
  Curl c;
  Status missing;
  const auto take = [&](auto& function, const char* name) {
    const auto symbol = os.symbol(library, name);
    if (symbol.ok()) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(*symbol);
    } else if (missing.ok()) {
      missing = error(Code::unsupported, "this libcurl has no {}; version 7.62 or newer is needed", name);
    }
  };
  take(c.global_init, "curl_global_init");
  take(c.easy_init, "curl_easy_init");
  take(c.easy_cleanup, "curl_easy_cleanup");
  take(c.easy_perform, "curl_easy_perform");
  take(c.easy_strerror, "curl_easy_strerror");
  take(c.slist_append, "curl_slist_append");
  take(c.slist_free_all, "curl_slist_free_all");
  take(c.url, "curl_url");
  take(c.url_set, "curl_url_set");
  take(c.url_get, "curl_url_get");
  take(c.url_cleanup, "curl_url_cleanup");
  take(c.free, "curl_free");
  take(c.getdate, "curl_getdate");
  take(c.easy_setopt, "curl_easy_setopt");
  SWY_TRY(missing);
  if (c.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) return error(Code::internal, "libcurl cannot be initialised");
  return c;
}

}  // namespace

Result<const Curl*> Curl::open(Os& os) {
  static std::mutex mutex;
  static Curl curl;
  const std::lock_guard lock(mutex);
  if (curl.easy_init == nullptr) {
    SWY_LET(curl, find_curl(os));
  }
  return static_cast<const Curl*>(&curl);
}

}  // namespace switchyard::hub
