// SPDX-License-Identifier: Apache-2.0
// What the build put into the program: the web page, as one file with style and script that loads nothing else, and
// the OpenAPI document.
#pragma once

#include <string>

namespace switchyard::server {

std::string page_html();
// What the server answers, as an OpenAPI document.
std::string openapi_json();

}  // namespace switchyard::server
