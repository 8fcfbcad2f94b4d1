// SPDX-License-Identifier: Apache-2.0
#include "core/text/jinja/python_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/text/jinja/operators.h"
#include "core/text/jinja/utf8.h"

namespace switchyard::jinja {

namespace {

void repr(Context& cx, const Value& value, std::string& out);

// Text that grows beyond what its input occupies (a value may hold the same list many times) is charged as it grows.
void put(Context& cx, std::string& out, std::string_view piece) {
  cx.budget.take(piece.size());
  out += piece;
}

void repr_text(Context& cx, const std::string& text, std::string& out) {
  bool has_single = text.find('\'') != std::string::npos;
  char quote = has_single && text.find('"') == std::string::npos ? '"' : '\'';
  std::string quoted(1, quote);
  for (size_t at = 0; at < text.size(); at += utf8::width(text, at)) {
    char32_t point = utf8::decode(text, at);
    if (point == static_cast<char32_t>(quote) || point == U'\\') {
      quoted += '\\';
      quoted += static_cast<char>(point);
    } else if (point == U'\n') {
      quoted += "\\n";
    } else if (point == U'\r') {
      quoted += "\\r";
    } else if (point == U'\t') {
      quoted += "\\t";
    } else if (utf8::is_printable(point)) {
      quoted.append(text, at, utf8::width(text, at));
    } else if (point < 0x100) {
      quoted += fmt::format("\\x{:02x}", static_cast<uint32_t>(point));
    } else if (point < 0x10000) {
      quoted += fmt::format("\\u{:04x}", static_cast<uint32_t>(point));
    } else {
      quoted += fmt::format("\\U{:08x}", static_cast<uint32_t>(point));
    }
  }
  quoted += quote;
  put(cx, out, quoted);
}

void repr_list(Context& cx, const List& list, std::string& out) {
  if (list.shape >= List::Shape::range) {
    fail("a range, dict view or generator has no text of its own; add '| list'");
  }
  bool tuple = list.shape == List::Shape::tuple;
  put(cx, out, tuple ? "(" : "[");
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) put(cx, out, ", ");
    repr(cx, list.items[i], out);
  }
  put(cx, out, tuple ? (list.items.size() == 1 ? ",)" : ")") : "]");
}

void repr(Context& cx, const Value& value, std::string& out) {
  Budget::Frame frame(cx.budget);
  cx.budget.step();
  switch (value.kind()) {
    case Kind::undefined:
      return put(cx, out, "Undefined");
    case Kind::none:
      return put(cx, out, "None");
    case Kind::boolean:
      return put(cx, out, value.boolean() ? "True" : "False");
    case Kind::integer:
      return put(cx, out, fmt::format("{}", value.integer()));
    case Kind::real:
      return put(cx, out, float_repr(value.real()));
    case Kind::string:
      return repr_text(cx, value.text(), out);
    case Kind::list:
      return repr_list(cx, value.list(), out);
    case Kind::dict: {
      put(cx, out, "{");
      for (size_t i = 0; i < value.dict().entries.size(); ++i) {
        if (i > 0) put(cx, out, ", ");
        repr(cx, value.dict().entries[i].first, out);
        put(cx, out, ": ");
        repr(cx, value.dict().entries[i].second, out);
      }
      return put(cx, out, "}");
    }
    case Kind::space: {
      put(cx, out, "<Namespace {");
      for (size_t i = 0; i < value.space().attributes.size(); ++i) {
        if (i > 0) put(cx, out, ", ");
        repr_text(cx, value.space().attributes[i].first, out);
        put(cx, out, ": ");
        repr(cx, value.space().attributes[i].second, out);
      }
      return put(cx, out, "}>");
    }
    case Kind::loop:
    case Kind::callable:
      fail("a {} has no text; call it or use one of its attributes", value.type_name());
  }
}

class JsonWriter {
 public:
  JsonWriter(Context& cx, const JsonStyle& style, std::string& out) : cx_(cx), style_(style), out_(out) {}

  void write(const Value& value, size_t level) {
    Budget::Frame frame(cx_.budget);
    cx_.budget.step();
    switch (value.kind()) {
      case Kind::string:
        return quote(value.text());
      case Kind::list:
        return array(value.list(), level);
      case Kind::dict:
        return object(value.dict(), level);
      default:
        return put(cx_, out_, scalar(value));
    }
  }

 private:
  std::string scalar(const Value& value) {
    switch (value.kind()) {
      case Kind::none:
        return "null";
      case Kind::boolean:
        return value.boolean() ? "true" : "false";
      case Kind::integer:
        return fmt::format("{}", value.integer());
      case Kind::real:
        if (std::isnan(value.real())) return "NaN";
        if (std::isinf(value.real())) return value.real() < 0 ? "-Infinity" : "Infinity";
        return float_repr(value.real());
      case Kind::undefined:
        fail("{}, so it cannot be written as JSON", value.why());
      default:
        fail("a {} cannot be written as JSON", value.type_name());
    }
  }

  void array(const List& list, size_t level) {
    if (list.shape >= List::Shape::range)
      fail("a {} cannot be written as JSON; add '| list'", "range, view or generator");
    if (list.items.empty()) return put(cx_, out_, "[]");
    put(cx_, out_, "[");
    for (size_t i = 0; i < list.items.size(); ++i) {
      separate(i, level + 1);
      write(list.items[i], level + 1);
    }
    line(level);
    put(cx_, out_, "]");
  }

  void object(const Dict& dict, size_t level) {
    if (dict.entries.empty()) return put(cx_, out_, "{}");
    std::vector<const Value::Entry*> entries;
    cx_.budget.take(dict.entries.size() * sizeof(entries[0]));
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [&](const auto* a, const auto* b) { return less(cx_, a->first, b->first); });
    }
    put(cx_, out_, "{");
    for (size_t i = 0; i < entries.size(); ++i) {
      separate(i, level + 1);
      const Value& key = entries[i]->first;
      if (key.is(Kind::list)) fail("a key that is a tuple cannot be written as JSON");
      quote(key.is(Kind::string) ? key.text() : scalar(key));
      put(cx_, out_, style_.key_separator);
      write(entries[i]->second, level + 1);
    }
    line(level);
    put(cx_, out_, "}");
  }

  void separate(size_t i, size_t level) {
    if (i > 0) put(cx_, out_, style_.item_separator);
    line(level);
  }

  void line(size_t level) {
    if (!style_.indent) return;
    put(cx_, out_, "\n");
    for (size_t i = 0; i < level; ++i) put(cx_, out_, *style_.indent);
  }

  void quote(const std::string& text) {
    std::string quoted = "\"";
    for (size_t at = 0; at < text.size(); at += utf8::width(text, at)) escape(text, at, quoted);
    quoted += '"';
    put(cx_, out_, quoted);
  }

  void escape(const std::string& text, size_t at, std::string& quoted) const {
    char32_t point = utf8::decode(text, at);
    constexpr std::string_view named = "\"\\\n\r\t\f\b", letters = "\"\\nrtfb";
    size_t i = point < 0x80 ? named.find(static_cast<char>(point)) : std::string_view::npos;
    if (i != std::string_view::npos) {
      quoted += '\\';
      quoted += letters[i];
    } else if (point < 0x20 || (style_.ensure_ascii && point > 0x7E && point < 0x10000)) {
      // 0x7F is ASCII: json.dumps leaves it alone.
      if (point == 0x7F) {
        quoted += '\x7F';
      } else {
        quoted += fmt::format("\\u{:04x}", static_cast<uint32_t>(point));
      }
    } else if (style_.ensure_ascii && point >= 0x10000) {
      uint32_t rest = static_cast<uint32_t>(point) - 0x10000;
      quoted += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    } else {
      quoted.append(text, at, utf8::width(text, at));
    }
  }

  Context& cx_;
  const JsonStyle& style_;
  std::string& out_;
};

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  std::string_view sign = text.substr(0, text[0] == '-' ? 1 : 0);
  text.remove_prefix(sign.size());
  size_t e = text.find('e');
  int exponent = 0;
  size_t digits_at = text[e + 1] == '+' ? e + 2 : e + 1;
  std::from_chars(text.data() + digits_at, text.data() + text.size(), exponent);
  std::string digits(text.substr(0, 1));
  if (e > 2) digits += text.substr(2, e - 2);

  if (exponent < -4 || exponent >= 16) {
    return fmt::format("{}{}{}{}e{}{:02}", sign, digits[0], digits.size() > 1 ? "." : "", digits.substr(1),
                       exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return fmt::format("{}0.{}{}", sign, std::string(static_cast<size_t>(-exponent - 1), '0'), digits);
  size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() < whole) digits.append(whole - digits.size(), '0');
  std::string fraction = digits.substr(whole);
  return fmt::format("{}{}.{}", sign, digits.substr(0, whole), fraction.empty() ? "0" : fraction);
}

void append_text(Context& cx, const Value& value, std::string& out) {
  if (value.is(Kind::string)) {
    put(cx, out, value.text());
  } else if (!value.is(Kind::undefined)) {
    repr(cx, value, out);
  }
}

std::string to_text(Context& cx, const Value& value) {
  std::string out;
  append_text(cx, value, out);
  return out;
}

std::string to_repr(Context& cx, const Value& value) {
  std::string out;
  repr(cx, value, out);
  return out;
}

std::string to_json(Context& cx, const Value& value, const JsonStyle& style) {
  std::string out;
  JsonWriter(cx, style, out).write(value, 0);
  return out;
}

}  // namespace switchyard::jinja
