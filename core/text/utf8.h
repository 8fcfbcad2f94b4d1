// SPDX-License-Identifier: Apache-2.0
// UTF-8: finding what is not valid, and replacing it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/base/status.h"

namespace switchyard {

// Bytes of the valid character at the front of `text`; 0 when it is not valid. With `incomplete` set, a front that
// could still become a character when more bytes follow gives 0 and *incomplete = true.
size_t utf8_length(std::string_view text, bool* incomplete = nullptr);

// Offset of the first byte that is not part of valid UTF-8; text.size() when all is.
size_t utf8_valid_prefix(std::string_view text);

// Errors: usage, when `text` is not UTF-8, with the offset of the first bad byte.
Status check_utf8(std::string_view text);

// Appends `text`, with each maximal ill-formed part replaced by U+FFFD (the Unicode Standard's recommendation, and what
// Rust's from_utf8_lossy does). Stops before an incomplete character at the end unless `final`; returns the bytes
// taken.
size_t append_utf8_lossy(std::string_view text, bool final, std::string& out);

}  // namespace switchyard
