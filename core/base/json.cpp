// SPDX-License-Identifier: Apache-2.0
#include "core/base/json.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "core/base/printable.h"

namespace switchyard {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

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

// An ordered object is a list, in which each look-up of a key would go through all keys: they are appended, and equal
// ones are merged when the object is complete.
void merge_equal_keys(ordered_json& value) {
  ordered_json::object_t::Container& list = value.get_ref<ordered_json::object_t&>();
  std::vector<size_t> order(list.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto before = [&](size_t a, size_t b) {
    const int order_of_keys = list[a].first.compare(list[b].first);
    return order_of_keys != 0 ? order_of_keys < 0 : a < b;
  };
  std::sort(order.begin(), order.end(), before);
  std::vector<bool> merged(list.size());
  bool any = false;
  for (size_t i = order.size(); i-- > 1;) {
    if (list[order[i - 1]].first != list[order[i]].first) continue;
    list[order[i - 1]].second = std::move(list[order[i]].second);
    merged[order[i]] = any = true;
  }
  if (!any) return;
  ordered_json::object_t kept;
  for (size_t i = 0; i < list.size(); ++i) {
    if (!merged[i]) kept.push_back({list[i].first, std::move(list[i].second)});
  }
  value = std::move(kept);
}

json* add_key(json& object, std::string& name) { return &object[std::move(name)]; }
ordered_json* add_key(ordered_json& object, std::string& name) {
  auto& list = object.get_ref<ordered_json::object_t&>();
  list.push_back({std::move(name), ordered_json()});
  return &list.back().second;
}
void complete(json& /*object*/) {}
void complete(ordered_json& object) { merge_equal_keys(object); }

// Builds the value from the parser's events; false from one of them ends the parse.
template <class Json>
class JsonBuilder {
 public:
  JsonBuilder(const JsonLimits& limits, const char* begin, std::string_view name)
      : limits_(limits), begin_(begin), seen_(begin), name_(name) {}

  const char** seen() { return &seen_; }
  Json& value() { return root_; }
  const Status& status() const { return status_; }

  bool null() { return put(nullptr); }
  bool boolean(bool v) { return put(v); }
  bool number_integer(typename Json::number_integer_t v) { return put(v); }
  bool number_unsigned(typename Json::number_unsigned_t v) { return put(v); }
  bool number_float(typename Json::number_float_t v, const std::string&) { return put(v); }
  bool string(std::string& v) { return put(std::move(v)); }
  bool binary(typename Json::binary_t&) { return false; }  // not in a text
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool key(std::string& name) {
    place_ = add_key(*open_.back(), name);
    return true;
  }
  bool end_object() {
    complete(*open_.back());
    return close();
  }
  bool end_array() { return close(); }
  bool parse_error(size_t position, const std::string&, const typename Json::exception& e) {
    const size_t at = std::max<size_t>(position, 1) - 1;  // the parser counts from 1, and the end as a character
    const char* what = dynamic_cast<const typename Json::out_of_range*>(&e) == nullptr
                           ? "is not valid JSON"
                           : "has a number beyond all bounds";
    status_ = error(Code::invalid_data, "{} {} at byte {}", name_, what, at);
    return false;
  }

 private:
  bool put(Json value) {
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
  bool open(Json container) {
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
  Json root_;
  std::vector<Json*> open_;  // from the outermost to the innermost
  Json* last_ = nullptr;     // the value placed last
  Json* place_ = nullptr;    // of the key that came last
  size_t values_ = 0;
  Status status_;
};

template <class Json>
Result<Json> read(std::string_view text, std::string_view name, const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    return error(Code::invalid_data, "{} has {} bytes; at most {} are read", name, text.size(), limits.bytes);
  }
  try {
    JsonBuilder<Json> builder(limits, text.data(), name);
    JsonCursor begin(text.data(), builder.seen()), end(text.data() + text.size(), builder.seen());
    if (!Json::sax_parse(begin, end, &builder)) {
      if (!builder.status().ok()) return builder.status();
      return error(Code::invalid_data, "{} is not valid JSON", name);
    }
    return std::move(builder.value());
  } catch (const std::bad_alloc&) {
    return error(Code::out_of_host_memory, "no memory to read {}, of {} bytes", name, text.size());
  }
}

}  // namespace

Result<json> read_json(std::string_view text, std::string_view name, const JsonLimits& limits) {
  return read<json>(text, name, limits);
}

Result<ordered_json> read_ordered_json(std::string_view text, std::string_view name, const JsonLimits& limits) {
  return read<ordered_json>(text, name, limits);
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
