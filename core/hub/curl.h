// SPDX-License-Identifier: Apache-2.0
// libcurl, opened when it is first needed: a program that fetches nothing has no network code in its process, and one
// that was built elsewhere uses the library, and the certificates, of the system that it runs on.
#pragma once

#include <curl/curl.h>

#include "core/base/os.h"

namespace switchyard::hub {

// The functions of libcurl that are used, by their names without "curl_".
struct Curl {
  decltype(&::curl_global_init) global_init = nullptr;
  decltype(&::curl_easy_init) easy_init = nullptr;
  decltype(&::curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&::curl_easy_perform) easy_perform = nullptr;
  decltype(&::curl_easy_strerror) easy_strerror = nullptr;
  decltype(&::curl_slist_append) slist_append = nullptr;
  decltype(&::curl_slist_free_all) slist_free_all = nullptr;
  decltype(&::curl_url) url = nullptr;
  decltype(&::curl_url_set) url_set = nullptr;
  decltype(&::curl_url_get) url_get = nullptr;
  decltype(&::curl_url_cleanup) url_cleanup = nullptr;
  decltype(&::curl_free) free = nullptr;
  decltype(&::curl_getdate) getdate = nullptr;
  CURLcode (*easy_setopt)(CURL*, CURLoption, ...) = nullptr;

  // Opens it once; threads may share it. Errors: not_found, saying which package has it.
  static Result<const Curl*> open(Os& os);
};

}  // namespace switchyard::hub
