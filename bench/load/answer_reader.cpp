// SPDX-License-Identifier: Apache-2.0
#include "bench/load/answer_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/text.h"
#include "core/base/json.h"

namespace switchyard::bench {
namespace {

using nlohmann::json;

constexpr size_t kMostLine = 4u << 20, kMostRefusal = 64u << 10;  // bytes
constexpr size_t kMostMessage = 200;                              // characters
constexpr JsonLimits kLimits{.bytes = kMostLine, .values = 1u << 18};

const json* member(const json& value, const char* name) {
  if (!value.is_object()) return nullptr;
  const auto found = value.find(name);
  return found == value.end() || found->is_null() ? nullptr : &*found;
}

uint32_t count(const json& value, const char* name) {
  const json* n = member(value, name);
  return n != nullptr && n->is_number_unsigned() && n->get<uint64_t>() <= UINT32_MAX ? n->get<uint32_t>() : 0;
}

std::string text_of(const json* value) {
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

// What an error's body says: {"error": {"message"}}, {"error": "..."} or the text itself.
std::string message_of(const json& body, const std::string& otherwise) {
  const json* e = member(body, "error");
  std::string text = e == nullptr ? text_of(member(body, "message")) : text_of(e);
  if (e != nullptr && text.empty()) text = text_of(member(*e, "message"));
  return text.empty() ? otherwise : text;
}

// The text of a choice, be it an answer or reasoning, of either protocol.
std::string piece_of(const json& choice) {
  std::string text = text_of(member(choice, "text"));
  if (const json* delta = member(choice, "delta")) {
    for (const char* name : {"reasoning_content", "reasoning", "content"}) text += text_of(member(*delta, name));
  }
  return text;
}

}  // namespace

void AnswerReader::fail(Fault fault, std::string message) {
  if (exchange_.fault != Fault::none) return;
  exchange_.fault = fault;
  exchange_.message = cut(one_line(message), kMostMessage);
}

bool AnswerReader::head(int status, std::string_view content_type) {
  exchange_.status = status;
  stream_ = status == 200 && content_type.starts_with("text/event-stream");
  if (!stream_ && status == 200) {
    fail(Fault::not_sse, fmt::format("the reply is {}, not an event stream",
                                     content_type.empty() ? "of no type" : std::string(content_type)));
  }
  return stream_;
}

bool AnswerReader::push(std::string_view bytes, double now) {
  if (!stream_) {
    held_.append(bytes.substr(0, kMostRefusal - std::min(kMostRefusal, held_.size())));
    return held_.size() < kMostRefusal;
  }
  for (size_t end = bytes.find('\n'); end != std::string_view::npos; end = bytes.find('\n')) {
    std::string_view all = bytes.substr(0, end);
    if (!held_.empty()) all = held_.append(all);
    const bool more = line(all, now);
    held_.clear();
    if (!more) return false;
    bytes.remove_prefix(end + 1);
  }
  held_.append(bytes);
  if (held_.size() <= kMostLine) return true;
  fail(Fault::malformed, "a line of the event stream has no end");
  return false;
}

bool AnswerReader::line(std::string_view line, double now) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (!line.starts_with("data:")) return true;  // a comment, the end of an event, or its name
  line.remove_prefix(5);
  if (line.starts_with(' ')) line.remove_prefix(1);
  return event(line, now);
}

bool AnswerReader::event(std::string_view data, double now) {
  if (data == "[DONE]") {
    done_ = true;
    return true;  // the end of the body is to come
  }
  const auto read = read_json(data, "an event", kLimits);
  if (!read.ok() || !read->is_object()) {
    fail(Fault::malformed, read.ok() ? "an event is not an object" : read.status().message());
    return false;
  }
  if (member(*read, "error") != nullptr) {
    fail(Fault::reported, message_of(*read, "an error without a message"));
    return false;
  }
  if (const json* usage = member(*read, "usage")) {
    exchange_.prompt_tokens = count(*usage, "prompt_tokens");
    exchange_.tokens = count(*usage, "completion_tokens");
    if (const json* details = member(*usage, "prompt_tokens_details")) {
      exchange_.cached_tokens = count(*details, "cached_tokens");
    }
  }
  const json* choices = member(*read, "choices");
  if (choices == nullptr || !choices->is_array() || choices->empty()) return true;
  const json& choice = choices->front();
  if (member(choice, "finish_reason") != nullptr) finished_ = true;
  const std::string piece = piece_of(choice);
  if (piece.empty()) return true;
  if (exchange_.pieces++ == 0) {
    exchange_.first = now;
  } else {
    exchange_.gaps.push_back(static_cast<float>(now - exchange_.last));
  }
  exchange_.last = now;
  if (keeps_text_) exchange_.text += piece;
  return true;
}

void AnswerReader::finish(bool whole) {
  if (!stream_) {
    const auto read = read_json(held_, "the reply", kLimits);
    fail(Fault::status, message_of(read.ok() ? *read : json(), held_.empty() ? "no reason was given" : held_));
    return;
  }
  if (!whole || (!done_ && !finished_)) fail(Fault::cut, "the connection ended within the answer");
  if (exchange_.pieces == 0) fail(Fault::malformed, "the answer has no text");
}

}  // namespace switchyard::bench
