// SPDX-License-Identifier: Apache-2.0
// Words for a person, on standard error. Where that is closed or full they are lost, and nothing else happens: the
// result is what counts.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace switchyard::cli {

void say_text(std::string_view text);

template <class... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  say_text(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace switchyard::cli
