// SPDX-License-Identifier: Apache-2.0
#include "core/text/jinja/value.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/text/jinja/budget.h"
#include "core/text/jinja/context.h"
#include "core/text/jinja/utf8.h"

namespace switchyard::jinja {

namespace {

using Json = nlohmann::ordered_json;

int one_deeper(int depth) {
  if (depth >= kMaxValueDepth) fail("a value nests deeper than {} levels", kMaxValueDepth);
  return depth + 1;
}

Value text_from_json(const std::string& text) {
  if (!utf8::valid(text)) fail("a text in the request is not valid UTF-8");
  return Value(text);
}

Value convert(const Json& json, int depth) {
  if (depth > kMaxValueDepth) fail("the request nests deeper than {} levels", kMaxValueDepth);
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value(json.get<bool>());
    case Json::value_t::number_integer:
      return Value(json.get<int64_t>());
    case Json::value_t::number_unsigned:
      if (json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        fail("the integer {} in the request does not fit 64 bits with a sign", json.get<uint64_t>());
      }
      return Value(json.get<int64_t>());
    case Json::value_t::number_float:
      return Value(json.get<double>());
    case Json::value_t::string:
      return text_from_json(json.get_ref<const std::string&>());
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(convert(item, depth + 1));
      return Value(List::make(std::move(items)));
    }
    case Json::value_t::object: {
      std::vector<Value::Entry> entries;
      entries.reserve(json.size());
      for (const auto& [key, item] : json.items()) {
        entries.emplace_back(text_from_json(key), convert(item, depth + 1));
      }
      return Value(Dict::make(std::move(entries)));
    }
    default:
      return Value::none();
  }
}

}  // namespace

Value Value::none() {
  Value value;
  value.data_ = nullptr;
  return value;
}

Value Value::undefined(std::string why) {
  Value value;
  value.data_ = std::make_shared<const Why>(Why{std::move(why)});
  return value;
}

Result<Value> Value::from_json(const Json& json) {
  try {
    return convert(json, 1);
  } catch (const Failure& failure) {
    return Status(failure.code, failure.message);
  } catch (const std::bad_alloc&) {
    return error(Code::out_of_host_memory, "out of memory while reading the request's JSON");
  }
}

int Value::depth() const {
  switch (kind()) {
    case Kind::list:
      return list().depth;
    case Kind::dict:
      return dict().depth;
    case Kind::loop:
      return loop().items->depth;
    case Kind::callable:
      return callable().depth;
    case Kind::space:
      return 1;
    default:
      return 0;
  }
}

std::string_view Value::type_name() const {
  switch (kind()) {
    case Kind::undefined:
      return "undefined";
    case Kind::none:
      return "None";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::string:
      return "str";
    case Kind::list: {
      constexpr std::string_view names[] = {"list", "tuple", "range", "dict view", "generator"};
      return names[static_cast<size_t>(list().shape)];
    }
    case Kind::dict:
      return "dict";
    case Kind::space:
      return "namespace";
    case Kind::loop:
      return "loop";
    case Kind::callable:
      return "function";
  }
  return "";
}

bool Value::truthy() const {
  switch (kind()) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
      return boolean();
    case Kind::integer:
      return integer() != 0;
    case Kind::real:
      return real() != 0.0;
    case Kind::string:
      return !text().empty();
    case Kind::list:
      return list().shape == List::Shape::lazy || !list().items.empty();
    case Kind::dict:
      return !dict().entries.empty();
    default:
      return true;
  }
}

std::shared_ptr<const List> List::make(std::vector<Value> items, Shape shape) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  auto list = std::make_shared<List>();
  list->depth = one_deeper(depth);
  list->items = std::move(items);
  list->shape = shape;
  return list;
}

std::shared_ptr<const Dict> Dict::make(std::vector<Value::Entry> entries) {
  int depth = 0;
  for (const auto& [key, item] : entries) depth = std::max({depth, key.depth(), item.depth()});
  auto dict = std::make_shared<Dict>();
  dict->depth = one_deeper(depth);
  dict->entries = std::move(entries);
  return dict;
}

}  // namespace switchyard::jinja
