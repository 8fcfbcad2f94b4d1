// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/output_parser.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/json.h"

namespace switchyard::server {

namespace {

constexpr std::string_view kThink = "<think>", kThinkEnd = "</think>", kCall = "<tool_call>", kCallEnd = "</tool_call>",
                           kFunction = "<function=", kFunctionEnd = "</function>",
                           kParameter = "<parameter=", kParameterEnd = "</parameter>", kSpace = " \t\r\n";

struct Found {
  size_t at = std::string::npos;
  std::string_view tag;
};

// The first of the tags in a text.
Found find_tag(std::string_view text, const std::vector<std::string_view>& tags) {
  Found first;
  for (const std::string_view tag : tags) {
    const size_t at = text.find(tag);
    if (at < first.at) first = {at, tag};
  }
  return first;
}

// How long the end of a text is that may be the beginning of a tag.
size_t begun_tag(std::string_view text, const std::vector<std::string_view>& tags) {
  size_t longest = 0;
  for (const std::string_view tag : tags) {
    for (size_t n = std::min(text.size(), tag.size() - 1); n > longest; --n) {
      if (text.ends_with(tag.substr(0, n))) longest = n;
    }
  }
  return longest;
}

}  // namespace

OutputParser::OutputParser(OutputForm form)
    : form_(std::move(form)),
      state_(form_.reasoning ? State::reasoning
             : form_.thinks  ? State::start
                             : State::content),
      fresh_(form_.reasoning) {}

void OutputParser::push(std::string_view text, std::vector<Delta>& out) {
  held_ += text;
  while (advance(out)) {
  }
}

bool OutputParser::advance(std::vector<Delta>& out) {
  switch (state_) {
    case State::start:
      return in_start();
    case State::reasoning:
    case State::content:
      return in_text(out);
    case State::preamble:
      return in_preamble(out);
    case State::json_call:
      return in_json_call(out);
    case State::name:
      return in_name(out);
    case State::arguments:
      return in_arguments(out);
    case State::value:
      return in_value(out);
    case State::between:
      return in_between(out);
  }
  return false;
}

void OutputParser::skip_space() { held_.erase(0, std::min(held_.find_first_not_of(kSpace), held_.size())); }

bool OutputParser::may_begin_tag(const Tags& tags) const { return begun_tag(held_, tags) == held_.size(); }

bool OutputParser::in_start() {
  const size_t text = std::min(held_.find_first_not_of(kSpace), held_.size());
  const std::string_view rest = std::string_view(held_).substr(text);
  if (rest.starts_with(kThink)) {
    held_.erase(0, text + kThink.size());
    state_ = State::reasoning;
    fresh_ = true;
    return true;
  }
  if (kThink.starts_with(rest)) return false;
  state_ = State::content;
  return true;
}

// Line ends wait until it is known whether text follows them, or a tag.
void OutputParser::give(std::string_view text, std::vector<Delta>& out) {
  if (fresh_) text.remove_prefix(std::min(text.find_first_not_of("\r\n"), text.size()));
  if (text.empty()) return;
  fresh_ = false;
  const bool trims = state_ == State::reasoning || form_.tools;
  const size_t end = trims ? text.find_last_not_of("\r\n") + 1 : text.size();  // 0: only line ends
  if (end == 0) {
    space_ += text;
    return;
  }
  const auto kind = state_ == State::reasoning ? Delta::Kind::reasoning : Delta::Kind::content;
  out.push_back({kind, 0, std::exchange(space_, {}) + std::string(text.substr(0, end))});
  space_ = text.substr(end);
}

void OutputParser::open(std::string_view tag) {
  space_.clear();
  raw_ = tag;
  state_ = tag == kFunction ? State::name : State::preamble;
}

bool OutputParser::in_text(std::vector<Delta>& out) {
  Tags tags;
  if (state_ == State::reasoning || form_.reasoning || form_.thinks) tags.push_back(kThinkEnd);
  if (form_.tools) tags.push_back(kCall);
  if (form_.tools && state_ == State::content) tags.push_back(kFunction);
  const Found found = find_tag(held_, tags);
  if (found.at == std::string::npos) {
    const size_t keep = begun_tag(held_, tags);
    const std::string text = held_.substr(0, held_.size() - keep);
    held_.erase(0, text.size());
    give(text, out);
    return false;
  }
  const std::string text = held_.substr(0, found.at);
  held_.erase(0, found.at + found.tag.size());
  give(text, out);
  if (found.tag == kThinkEnd) {  // a second one is dropped
    if (state_ == State::reasoning) {
      space_.clear();
      fresh_ = true;
    }
    state_ = State::content;
  } else {
    open(found.tag);
  }
  return true;
}

bool OutputParser::in_preamble(std::vector<Delta>& out) {
  const size_t text = held_.find_first_not_of(kSpace);
  if (text == std::string::npos) return false;
  const std::string_view rest = std::string_view(held_).substr(text);
  if (rest.starts_with(kFunction)) {
    raw_ += held_.substr(0, text + kFunction.size());
    held_.erase(0, text + kFunction.size());
    state_ = State::name;
    return true;
  }
  if (kFunction.starts_with(rest)) return false;
  if (rest[0] == '{') {
    state_ = State::json_call;
    return true;
  }
  state_ = State::content;  // it was no call
  give(std::exchange(raw_, {}), out);
  return true;
}

bool OutputParser::in_json_call(std::vector<Delta>& out) {
  const size_t end = held_.find(kCallEnd);
  if (end == std::string::npos) return false;
  const std::string text = held_.substr(0, end);
  held_.erase(0, end + kCallEnd.size());
  const auto read = read_ordered_json(text, "call");
  state_ = State::content;
  if (!read.ok() || !read->is_object() || !read->contains("name") || !(*read)["name"].is_string()) {
    give(raw_ + text + std::string(kCallEnd), out);
    return true;
  }
  std::string arguments = "{}";
  if (read->contains("arguments")) {
    const auto& given = (*read)["arguments"];
    arguments = given.is_string() ? given.get<std::string>() : given.dump();
  }
  out.push_back({Delta::Kind::call, calls_, (*read)["name"].get<std::string>()});
  out.push_back({Delta::Kind::arguments, calls_, std::move(arguments)});
  out.push_back({Delta::Kind::call_end, calls_++, ""});
  ++completed_;
  fresh_ = true;
  return true;
}

bool OutputParser::in_name(std::vector<Delta>& out) {
  constexpr size_t kLongestName = 512;
  const size_t end = held_.find('>');
  if (end == std::string::npos && held_.size() <= kLongestName) return false;
  if (end == std::string::npos) {
    state_ = State::content;  // it was no call
    give(std::exchange(raw_, {}), out);
    return true;
  }
  function_ = held_.substr(0, end);
  held_.erase(0, end + 1);
  function_.erase(0, std::min(function_.find_first_not_of(" \"'"), function_.size()));
  function_.erase(function_.find_last_not_of(" \"'") + 1);
  out.push_back({Delta::Kind::call, calls_, function_});
  parameters_ = 0;
  state_ = State::arguments;
  return true;
}

void OutputParser::end_call(std::vector<Delta>& out) {
  out.push_back({Delta::Kind::arguments, calls_, parameters_ == 0 ? "{}" : "}"});
  out.push_back({Delta::Kind::call_end, calls_++, ""});
  ++completed_;
  fresh_ = true;
  state_ = State::between;
}

// Text between parameters is dropped.
bool OutputParser::in_arguments(std::vector<Delta>& out) {
  const Tags tags = {kParameter, kFunctionEnd, kCallEnd};
  const Found found = find_tag(held_, tags);
  if (found.at == std::string::npos) {
    held_.erase(0, held_.size() - begun_tag(held_, tags));
    return false;
  }
  if (found.tag == kParameter) {
    const size_t end = held_.find('>', found.at);
    if (end == std::string::npos) return false;
    const size_t begin = found.at + found.tag.size();
    const std::string key = held_.substr(begin, end - begin);
    held_.erase(0, end + 1);
    type_ = form_.schemas.type_of(function_, key);
    out.push_back({Delta::Kind::arguments, calls_, (parameters_++ == 0 ? "{" : ", ") + json_string(key) + ": "});
    value_.clear();
    value_begun_ = false;
    fresh_ = true;
    state_ = State::value;
    return true;
  }
  held_.erase(0, found.at + (found.tag == kCallEnd ? 0 : found.tag.size()));
  end_call(out);
  return true;
}

// One line end at the beginning and one at the end belong to the form. A string is given out as it grows.
void OutputParser::give_value(std::string_view text, std::vector<Delta>& out) {
  if (fresh_ && !text.empty()) {
    if (text[0] == '\n') text.remove_prefix(1);
    fresh_ = false;
  }
  value_ += text;
  if (!type_.only_text()) return;
  const std::string piece = value_.substr(0, value_.size() - (value_.ends_with('\n') ? 1 : 0));
  if (piece.empty()) return;
  value_.erase(0, piece.size());
  out.push_back({Delta::Kind::arguments, calls_, (value_begun_ ? "" : "\"") + json_piece(piece)});
  value_begun_ = true;
}

void OutputParser::end_value(std::vector<Delta>& out) {
  if (type_.only_text()) {
    out.push_back({Delta::Kind::arguments, calls_, value_begun_ ? "\"" : "\"\""});
  } else {
    if (value_.ends_with('\n')) value_.pop_back();
    out.push_back({Delta::Kind::arguments, calls_, json_value(value_, type_)});
  }
  value_.clear();
  state_ = State::arguments;
}

bool OutputParser::in_value(std::vector<Delta>& out) {
  // Where the closing tag is missing, the next tag on a line of its own closes the value.
  static const Tags tags = {kParameterEnd, "\n<parameter=", "\n</function>", kCallEnd};
  const Found found = find_tag(held_, tags);
  if (found.at == std::string::npos) {
    const std::string text = held_.substr(0, held_.size() - begun_tag(held_, tags));
    held_.erase(0, text.size());
    give_value(text, out);
    return false;
  }
  const std::string text = held_.substr(0, found.at);
  held_.erase(0, found.at + (found.tag == kParameterEnd ? found.tag.size() : 0));
  give_value(text, out);
  end_value(out);
  return true;
}

bool OutputParser::in_between(std::vector<Delta>& out) {
  static const Tags tags = {kCallEnd, kCall, kFunction};
  skip_space();
  for (const std::string_view tag : tags) {
    if (!held_.starts_with(tag)) continue;
    held_.erase(0, tag.size());
    state_ = State::content;
    if (tag != kCallEnd) open(tag);
    return true;
  }
  if (may_begin_tag(tags)) return false;
  state_ = State::content;
  (void)out;
  return true;
}

void OutputParser::flush(std::vector<Delta>& out) {
  switch (state_) {
    case State::start:
      state_ = State::content;
      give(std::exchange(held_, {}), out);
      break;
    case State::reasoning:
    case State::content:
      give(std::exchange(held_, {}), out);
      break;
    case State::preamble:
    case State::json_call:
    case State::name:  // no call yet: it is text
      state_ = State::content;
      give(raw_ + std::exchange(held_, {}), out);
      break;
    case State::value:
      give_value(std::exchange(held_, {}), out);
      break;
    case State::arguments:
    case State::between:
      break;
  }
  if (!space_.empty() && state_ == State::content) out.push_back({Delta::Kind::content, 0, std::exchange(space_, {})});
}

}  // namespace switchyard::server
