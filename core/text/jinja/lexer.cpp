// SPDX-License-Identifier: Apache-2.0
#include "core/text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "core/text/jinja/budget.h"
#include "core/text/jinja/numbers.h"
#include "core/text/jinja/text_literal.h"
#include "core/text/jinja/utf8.h"

namespace switchyard::jinja {

namespace {

using Type = Token::Type;
constexpr size_t npos = std::string_view::npos;

bool digit(char c) { return c >= '0' && c <= '9'; }
bool letter(char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// One kind of newline, and not the last one: jinja2 drops it.
std::string normalise(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text += source[i];
    }
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string text) : text_(std::move(text)) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) {
      size_t tag = next_tag(at_);
      if (tag == npos) {
        data(rest(), 0, false);
        at_ = text_.size();
        break;
      }
      char kind = text_[tag + 1];
      char sign = tag + 2 < text_.size() && (text_[tag + 2] == '-' || text_[tag + 2] == '+') ? text_[tag + 2] : '\0';
      data(std::string_view(text_).substr(at_, tag - at_), sign, kind != '{');
      begin_ = tag;
      at_ = tag + (sign == '\0' ? 2 : 3);
      if (kind == '#') {
        comment();
      } else if (kind == '%' && !raw()) {
        inside(Type::block_begin, Type::block_end, "%}");
      } else if (kind == '{') {
        inside(Type::print_begin, Type::print_end, "}}");
      }
    }
    add(Type::end, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(text_).substr(at_); }

  [[noreturn]] void problem(const std::string& what) { fail("line {}: {}", line_of(at_), what); }

  // Lines are counted as tokens are added, which happens in order.
  int line_of(size_t at) {
    for (; counted_ < at && counted_ < text_.size(); ++counted_) line_ += text_[counted_] == '\n' ? 1 : 0;
    return line_;
  }

  void add(Type type, std::string text, size_t at) { tokens_.push_back(Token{type, line_of(at), std::move(text)}); }
  void add(Type type, std::string text) { add(type, std::move(text), at_); }

  size_t next_tag(size_t from) const {
    for (size_t at = text_.find('{', from); at != npos && at + 1 < text_.size(); at = text_.find('{', at + 1)) {
      char next = text_[at + 1];
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return npos;
  }

  // Text up to a tag that carries `sign`; `block` when the tag is not a print.
  void data(std::string_view text, char sign, bool block) {
    if (sign == '-') {
      text = utf8::strip(text, nullptr, false, true);
    } else if (sign != '+' && block) {
      size_t newline = text.rfind('\n');
      size_t line_start = newline == npos ? 0 : newline + 1;
      bool blank = utf8::strip(text.substr(line_start), nullptr, true, false).empty();
      if (blank && (line_start > 0 || at_line_start_)) text = text.substr(0, line_start);
    }
    if (!text.empty()) add(Type::data, std::string(text));
  }

  void skip_space() {
    while (at_ < text_.size() && utf8::is_space(utf8::decode(text_, at_))) at_ += utf8::width(text_, at_);
  }

  // Consumes `closing` with an optional sign at `at_`, and the white space to be stripped. `trims` says whether one
  // newline is removed anyway, as after blocks and comments.
  bool close(std::string_view closing, bool trims) {
    bool minus = rest().starts_with('-');
    bool plus = trims && rest().starts_with('+');
    if (!rest().substr(minus || plus ? 1 : 0).starts_with(closing)) return false;
    at_ += closing.size() + (minus || plus ? 1 : 0);
    if (minus) {
      skip_space();
    } else if (trims && !plus && rest().starts_with('\n')) {
      ++at_;
    }
    at_line_start_ = text_[at_ - 1] == '\n';
    return true;
  }

  void comment() {
    size_t end = text_.find("#}", at_);
    if (end == npos) problem("this comment is never closed; add '#}'");
    bool sign = end > at_ && (text_[end - 1] == '-' || text_[end - 1] == '+');
    at_ = sign ? end - 1 : end;
    close("#}", true);
  }

  // `{% raw %}...{% endraw %}` becomes data. False, with nothing consumed, when the block is another one.
  bool raw() {
    size_t start = at_;
    skip_space();
    if (!rest().starts_with("raw")) return at_ = start, false;
    at_ += 3;
    skip_space();
    if (!close("%}", false)) return at_ = start, false;
    size_t body = at_;
    for (size_t tag = text_.find("{%", at_); tag != npos; tag = text_.find("{%", tag + 2)) {
      at_ = tag + 2;
      char sign = rest().starts_with('-') || rest().starts_with('+') ? text_[at_++] : '\0';
      skip_space();
      if (!rest().starts_with("endraw")) continue;
      at_ += 6;
      skip_space();
      size_t end = at_;
      bool line_start = at_line_start_;
      if (!close("%}", true)) continue;
      std::swap(line_start, at_line_start_);
      std::swap(end, at_);
      data(std::string_view(text_).substr(body, tag - body), sign, true);
      at_ = end;
      at_line_start_ = line_start;
      return true;
    }
    at_ = start;
    problem("this raw block is never closed; add '{% endraw %}'");
  }

  void inside(Type opening, Type closing, std::string_view end) {
    add(opening, "", begin_);
    std::string open_brackets;
    while (true) {
      skip_space();
      if (at_ >= text_.size()) {
        at_ = begin_;
        problem(fmt::format("this tag is never closed; add '{}'", end));
      }
      size_t here = at_;
      if (open_brackets.empty() && close(end, closing == Type::block_end)) {
        add(closing, std::string(end), here);
        return;
      }
      token(open_brackets);
    }
  }

  void token(std::string& open_brackets) {
    char c = text_[at_];
    if (letter(c)) {
      size_t end = at_;
      while (end < text_.size() && (letter(text_[end]) || digit(text_[end]))) ++end;
      add(Type::name, text_.substr(at_, end - at_));
      at_ = end;
    } else if (digit(c)) {
      number();
    } else if (c == '\'' || c == '"') {
      literal(c);
    } else {
      op(open_brackets);
    }
  }

  void number() {
    size_t end = at_;
    bool prefixed =
        text_[at_] == '0' && at_ + 1 < text_.size() && std::string_view("xXoObB").find(text_[at_ + 1]) != npos;
    auto digits = [&] {
      while (end < text_.size() &&
             (digit(text_[end]) || (text_[end] == '_' && end + 1 < text_.size() && digit(text_[end + 1]))))
        ++end;
    };
    bool real = false;
    if (prefixed) {
      while (end < text_.size() && (digit(text_[end]) || letter(text_[end]))) ++end;
    } else {
      digits();
      if (end + 1 < text_.size() && text_[end] == '.' && digit(text_[end + 1])) {
        real = true;
        ++end;
        digits();
      }
      size_t exponent = end + 1;
      if (exponent < text_.size() && (text_[exponent] == '+' || text_[exponent] == '-')) ++exponent;
      if (end < text_.size() && (text_[end] | 0x20) == 'e' && exponent < text_.size() && digit(text_[exponent])) {
        real = true;
        end = exponent;
        digits();
      }
    }
    std::string text = text_.substr(at_, end - at_);
    auto integer = real ? std::nullopt : integer_value(text);
    auto value = real ? parse_float(text) : std::nullopt;
    if (!integer && !value) problem(fmt::format("'{}' is not a number", text.substr(0, 40)));
    add(real ? Type::real : Type::integer, text);
    tokens_.back().integer = integer.value_or(0);
    tokens_.back().real = value.value_or(0);
    at_ = end;
  }

  std::optional<int64_t> integer_value(const std::string& text) {
    try {
      return parse_int(text, 0);
    } catch (const Failure& failure) {
      problem(failure.message);
    }
  }

  void literal(char quote) {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) problem(fmt::format("this text is never closed; add {}", quote));
    std::string why;
    auto value = unescape(std::string_view(text_).substr(at_ + 1, end - at_ - 1), why);
    if (!value) problem(why);
    add(Type::text, *std::move(value));
    at_ = end + 1;
  }

  void op(std::string& open_brackets) {
    constexpr std::array<std::string_view, 27> ops = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                      "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                      ">",  "<",  "=",  ".",  ":",  "|",  ",", ";", "!"};
    auto found = std::find_if(ops.begin(), ops.end(), [&](std::string_view each) { return rest().starts_with(each); });
    if (found == ops.end() || *found == "!") {
      problem(fmt::format("unexpected character '{}'", text_.substr(at_, utf8::width(text_, at_))));
    }
    char c = (*found)[0];
    if (c == '(' || c == '[' || c == '{') {
      open_brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (open_brackets.empty()) problem(fmt::format("'{}' closes nothing", c));
      if (open_brackets.back() != c) problem(fmt::format("'{}' is expected here, not '{}'", open_brackets.back(), c));
      open_brackets.pop_back();
    }
    add(Type::op, std::string(*found));
    at_ += found->size();
  }

  std::string text_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  size_t begin_ = 0;           // of the tag being read
  bool at_line_start_ = true;  // the last tag, or the start of the template, was followed by a new line
  size_t counted_ = 0;         // bytes whose newlines are counted in line_
  int line_ = 1;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(normalise(source)).run(); }

}  // namespace switchyard::jinja
