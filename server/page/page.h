// SPDX-License-Identifier: Apache-2.0
// The web page, as the build put it into the program: one file, with style and script, that loads nothing else.
#pragma once

#include <string>

namespace switchyard::server {

std::string page_html();

}  // namespace switchyard::server
