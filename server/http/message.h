// SPDX-License-Identifier: Apache-2.0
// The text of HTTP messages: replies as they are sent, and what is read out of a request's first line.
#pragma once

#include <string>
#include <string_view>

#include "server/http/exchange.h"

namespace switchyard::server {

enum class Framing { length, chunks, until_close };

// The head of a reply. With `length` the body has `bytes` bytes.
std::string reply_head(const HttpReply& reply, Framing framing, uint64_t bytes, bool keep_alive);
std::string chunk(std::string_view data);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

// Splits a target into path, decoded, and query. False: it is none, such as a bad escape.
bool read_target(std::string_view target, std::string& path, std::string& query);

// A client's X-Request-Id if it is short and of plain characters, else "".
std::string usable_id(std::string_view id);

}  // namespace switchyard::server
