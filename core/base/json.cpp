// SPDX-License-Identifier: Apache-2.0
#include "core/base/json.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/base/printable.h"

namespace switchyard {
namespace {

using nlohmann::json;

// Walks a text and tells how far it got: the parser's events carry no offset.
class JsonCursor {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  JsonCursor(const char* at, const char** seen) : at_(at), seen_(seen) {}
  reference operator*() const { return *at_; }
  JsonCursor& operator++() {
    *seen_ = ++at_;
    return *this;
  }
  bool operator==(const JsonCursor& other) const { return at_ == other.at_; }
  bool operator!=(const JsonCursor& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** seen_;
};

// Builds the value from the parser's events; false from one of them ends the parse.
class JsonBuilder {
 public:
  JsonBuilder(const JsonLimits& limits, const char* begin, std::string_view name)
      : limits_(limits), begin_(begin), seen_(begin), name_(name) {}

  const char** seen() { return &seen_; }
  json& value() { return root_; }
  const Status& status() const { return status_; }

  bool null() { return put(nullptr); }
  bool boolean(bool v) { return put(v); }
  bool number_integer(json::number_integer_t v) { return put(v); }
  bool number_unsigned(json::number_unsigned_t v) { return put(v); }
  bool number_float(json::number_float_t v, const std::string&) { return put(v); }
  bool string(std::string& v) { return put(std::move(v)); }
  bool binary(json::binary_t&) { return false; }  // not in a text
  bool start_object(size_t) { return open(json::object()); }
  bool start_array(size_t) { return open(json::array()); }
  bool key(std::string& name) {
    place_ = &(*open_.back())[std::move(name)];
    return true;
  }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool parse_error(size_t position, const std::string&, const json::exception& e) {
    const size_t at = std::max<size_t>(position, 1) - 1;  // the parser counts from 1, and the end as a character
    const char* what =
        dynamic_cast<const json::out_of_range*>(&e) == nullptr ? "is not valid JSON" : "has a number beyond all bounds";
    status_ = error(Code::invalid_data, "{} {} at byte {}", name_, what, at);
    return false;
  }

 private:
  bool put(json value) {
    if (++values_ > limits_.values) return refuse(fmt::format("more than {} values", limits_.values));
    if (open_.empty()) {
      last_ = &(root_ = std::move(value));
    } else if (open_.back()->is_array()) {
      last_ = &open_.back()->emplace_back(std::move(value));
    } else {
      last_ = &(*place_ = std::move(value));
    }
    return true;
  }
  bool open(json container) {
    if (open_.size() == kMaxJsonDepth) return refuse(fmt::format("more than {} levels of nesting", kMaxJsonDepth));
    if (!put(std::move(container))) return false;
    open_.push_back(last_);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  bool refuse(const std::string& what) {
    status_ = error(Code::invalid_data, "{} has {} at byte {}", name_, what, seen_ - begin_ - 1);
    return false;
  }

  const JsonLimits limits_;
  const char* begin_;
  const char* seen_;
  std::string_view name_;
  json root_;
  std::vector<json*> open_;  // from the outermost to the innermost
  json* last_ = nullptr;     // the value placed last
  json* place_ = nullptr;    // of the key that came last
  size_t values_ = 0;
  Status status_;
};

}  // namespace

Result<json> read_json(std::string_view text, std::string_view name, const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    return error(Code::invalid_data, "{} has {} bytes; at most {} are read", name, text.size(), limits.bytes);
  }
  try {
    JsonBuilder builder(limits, text.data(), name);
    JsonCursor begin(text.data(), builder.seen()), end(text.data() + text.size(), builder.seen());
    if (!json::sax_parse(begin, end, &builder)) {
      if (!builder.status().ok()) return builder.status();
      return error(Code::invalid_data, "{} is not valid JSON", name);
    }
    return std::move(builder.value());
  } catch (const std::bad_alloc&) {
    return error(Code::out_of_host_memory, "no memory to read {}, of {} bytes", name, text.size());
  }
}

std::string brief(const json& value) {
  constexpr size_t kMaxElements = 8, kMaxChars = 64;
  const auto simple = [](const json& v) {
    return v.is_primitive() && (!v.is_string() || v.get_ref<const std::string&>().size() <= kMaxChars);
  };
  const bool flat = simple(value) || (value.is_array() && value.size() <= kMaxElements &&
                                      std::all_of(value.begin(), value.end(), simple));
  const std::string text = flat ? value.dump(-1, ' ', false, json::error_handler_t::replace) : "";
  if (flat && text.size() <= kMaxChars) return printable(text);
  return std::string(value.is_object() || value.is_array() ? "an " : "a long ") + value.type_name();
}

}  // namespace switchyard
