// SPDX-License-Identifier: Apache-2.0
#include "core/constrain/regex_syntax.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "core/base/printable.h"
#include "core/constrain/code_points.h"
#include "core/constrain/regex_tree.h"
#include "core/constrain/text_scanner.h"

namespace switchyard::constrain {
namespace {

constexpr unsigned kMaxGroups = 200;
constexpr uint32_t kMaxCount = 1'000'000;
const CodePoints kDigits = {{'0', '9'}};
const CodePoints kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CodePoints kSpace = {{9, 13},          {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                           {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const CodePoints kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

class RegexParser : TextScanner {
 public:
  RegexParser(Expressions& expressions, std::string_view text, const RegexOptions& options)
      : TextScanner(text), x_(expressions), ignore_case_(options.ignore_case), dot_all_(options.dot_all) {}

  Result<RegexTree> whole() {
    SWY_LET(RegexTree tree, alternatives(0));
    if (at_ < text_.size()) return wrong("')' without '('");
    return tree;
  }

 private:
  Status wrong(std::string_view what) const { return error(Code::usage, "wrong at byte {}: {}", at_, what); }

  Result<RegexTree> alternatives(unsigned depth) {
    if (depth > kMaxGroups) return wrong("groups nest too deep");
    const bool ignore_case = ignore_case_, dot_all = dot_all_;
    RegexTree tree{RegexTree::Kind::either};
    do {
      SWY_LET(RegexTree branch, sequence(depth));
      tree.kids.push_back(std::move(branch));
    } while (take("|"));
    ignore_case_ = ignore_case;
    dot_all_ = dot_all;
    if (tree.kids.size() == 1) return std::move(tree.kids[0]);
    return tree;
  }

  Result<RegexTree> sequence(unsigned depth) {
    RegexTree tree{RegexTree::Kind::sequence};
    while (more() && peek() != '|' && peek() != ')') {
      SWY_LET(RegexTree item, atom(depth));
      SWY_TRY(quantifiers(item));
      tree.kids.push_back(std::move(item));
    }
    return tree;
  }

  Status quantifiers(RegexTree& item) {
    for (bool first = true; more(); first = false) {
      uint32_t min = 0, max = kUnbounded;
      const size_t before = at_;
      if (take("*")) {
      } else if (take("+")) {
        min = 1;
      } else if (take("?")) {
        max = 1;
      } else {
        SWY_LET(const bool counted, counts(min, max));
        if (!counted) return {};
      }
      if (!first) {
        at_ = before;
        return wrong("nothing to repeat");
      }
      if (take("+")) {
        at_ = before;
        return wrong("possessive quantifiers are not supported");
      }
      (void)take("?");  // a lazy quantifier has the same texts
      if (item.kind != RegexTree::Kind::leaf && item.kind < RegexTree::Kind::sequence) {
        at_ = before;
        return wrong("an anchor or a look-ahead cannot be repeated");
      }
      RegexTree repeated{RegexTree::Kind::repeat};
      repeated.min = min;
      repeated.max = max;
      repeated.kids.push_back(std::move(item));
      item = std::move(repeated);
    }
    return {};
  }

  // {n}, {n,}, {n,m}; false for a '{' that stands for itself.
  Result<bool> counts(uint32_t& min, uint32_t& max) {
    if (peek() != '{') return false;
    size_t at = at_ + 1;
    const auto number = [&](uint32_t& n) {
      const size_t from = at;
      for (n = 0; at < text_.size() && text_[at] >= '0' && text_[at] <= '9'; ++at) {
        n = std::min(n * 10 + static_cast<uint32_t>(text_[at] - '0'), kMaxCount + 1);
      }
      return at > from;
    };
    if (!number(min)) return false;
    max = min;
    if (at < text_.size() && text_[at] == ',') {
      ++at;
      if (!number(max)) max = kUnbounded;
    }
    if (at >= text_.size() || text_[at] != '}') return false;
    if (min > kMaxCount || (max != kUnbounded && max > kMaxCount)) return wrong("counts above 1000000");
    if (max < min) return wrong("the smaller count comes first");
    at_ = at + 1;
    return true;
  }

  Result<RegexTree> atom(unsigned depth) {
    if (take("(")) return group(depth);
    if (take("[")) return set();
    if (take("^")) return RegexTree{RegexTree::Kind::begin};
    if (take("$")) return RegexTree{RegexTree::Kind::end};
    if (take(".")) return leaf(dot_all_ ? CodePoints{{0, kLastCodePoint}} : inverted(kLineEnds));
    if (peek() == '*' || peek() == '+' || peek() == '?') return wrong("nothing to repeat");
    if (peek() == '\\') {
      ++at_;
      if (take("A")) return RegexTree{RegexTree::Kind::begin};
      if (take("z") || take("Z")) return RegexTree{RegexTree::Kind::end};
      SWY_LET(const CodePoints c, escape(false));
      return leaf(c);
    }
    const uint32_t c = next_code_point(text_, at_);
    return leaf({{c, c}});
  }

  RegexTree leaf(const CodePoints& set) {
    RegexTree tree{RegexTree::Kind::leaf};
    const CodePoints folded = normalized(ignore_case_ ? without_case(set) : set);
    tree.expr = x_.characters(folded);
    return tree;
  }

  Result<RegexTree> group(unsigned depth) {
    const bool ignore_case = ignore_case_, dot_all = dot_all_;
    if (take("?")) {
      if (peek() == '=' || peek() == '!') return ahead(depth);
      if (take("<=") || take("<!")) return wrong("look-behind is not supported");
      if (take(">")) return wrong("atomic groups are not supported");
      if (take("P<") || take("<") || take("'")) {
        while (more() && peek() != '>' && peek() != '\'') ++at_;
        if (!more()) return wrong("a group's name without an end");
        ++at_;
      } else if (!take(":")) {
        SWY_LET(const bool scoped, flags());
        if (!scoped) return RegexTree{RegexTree::Kind::sequence};
      }
    } else if (peek() == '*') {
      return wrong("verbs such as (*...) are not supported");
    }
    SWY_LET(RegexTree tree, alternatives(depth + 1));
    ignore_case_ = ignore_case;
    dot_all_ = dot_all;
    if (!take(")")) return wrong("a group without ')'");
    return tree;
  }

  Result<RegexTree> ahead(unsigned depth) {
    RegexTree tree{take("=") ? RegexTree::Kind::ahead : RegexTree::Kind::not_ahead};
    if (tree.kind == RegexTree::Kind::not_ahead) (void)take("!");
    SWY_LET(RegexTree what, alternatives(depth + 1));
    if (!take(")")) return wrong("a group without ')'");
    tree.kids.push_back(std::move(what));
    return tree;
  }

  // The letters of (?i) and (?i:...); true for the latter.
  Result<bool> flags() {
    for (bool on = true; more();) {
      if (take(")")) return false;
      if (take(":")) return true;
      if (take("-")) {
        on = false;
      } else if (take("i")) {
        ignore_case_ = on;
      } else if (take("s")) {
        dot_all_ = on;
      } else {
        return wrong("this kind of group is not supported");
      }
    }
    return wrong("a group without ')'");
  }

  Result<RegexTree> set() {
    const bool invert = take("^");
    CodePoints all;
    for (bool first = true;; first = false) {
      if (!more()) return wrong("a class without ']'");
      if (peek() == ']' && !first) break;
      if (take("[:")) return wrong("POSIX classes such as [:alpha:] are not supported");
      SWY_LET(const CodePoints low, set_item());
      const bool single = low.size() == 1 && low[0].first == low[0].second;
      if (single && peek() == '-' && peek(1) != ']' && peek(1) != '\0') {
        const size_t before = at_++;
        SWY_LET(const CodePoints high, set_item());
        if (high.size() != 1 || high[0].first != high[0].second || high[0].first < low[0].first) {
          at_ = before;
          return wrong("a range that ends before it begins");
        }
        all.emplace_back(low[0].first, high[0].first);
      } else {
        all.insert(all.end(), low.begin(), low.end());
      }
    }
    ++at_;
    all = normalized(std::move(all));
    if (invert && ignore_case_) all = without_case(std::move(all));
    return leaf(invert ? inverted(std::move(all)) : all);
  }

  Result<CodePoints> set_item() {
    if (!more()) return wrong("a class without ']'");
    if (take("\\")) return escape(true);
    const uint32_t c = next_code_point(text_, at_);
    return CodePoints{{c, c}};
  }

  // What comes after a backslash.
  Result<CodePoints> escape(bool in_set) {
    if (!more()) return wrong("a backslash at the end");
    const uint32_t c = next_code_point(text_, at_);
    const auto one = [](uint32_t code_point) { return CodePoints{{code_point, code_point}}; };
    switch (c) {
      case 'd':
        return kDigits;
      case 'D':
        return inverted(kDigits);
      case 'w':
        return kWord;
      case 'W':
        return inverted(kWord);
      case 's':
        return kSpace;
      case 'S':
        return inverted(kSpace);
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 't':
        return one('\t');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case 'a':
        return one(7);
      case 'e':
        return one(27);
      case '0':
        return one(0);
      case 'c': {
        const char letter = peek();
        if (!((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z')))
          return wrong("\\c without a letter");
        ++at_;
        return one(static_cast<uint32_t>(letter) % 32);
      }
      case 'x':
        return code_point(2);
      case 'u':
        return code_point(4);
      case 'p':
      case 'P':
        return property(c == 'P');
      case 'b':
        if (in_set) return one('\b');
        return wrong("word boundaries (\\b) are not supported");
      case 'B':
        return wrong("word boundaries (\\B) are not supported");
      case 'k':
        return wrong("back references are not supported");
      default:
        break;
    }
    if (c >= '1' && c <= '9') return wrong("back references are not supported");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      return error(Code::usage, "wrong at byte {}: \\{} is not supported", at_, static_cast<char>(c));
    }
    return one(c);
  }

  // \xHH, \uHHHH, \x{H...}, \u{H...}; and a pair of surrogates, \uD83D\uDE00.
  Result<CodePoints> code_point(size_t digits) {
    SWY_LET(uint32_t c, hex(digits));
    if (c >= 0xD800 && c < 0xDC00 && take("\\u")) {
      SWY_LET(const uint32_t low, hex(4));
      c = 0x10000 + (c - 0xD800) * 0x400 + (low - 0xDC00) % 0x400;
    }
    if (c > kLastCodePoint) return wrong("no such character");
    return CodePoints{{c, c}};
  }
  Result<uint32_t> hex(size_t digits) {
    const bool braces = take("{");
    uint32_t value = 0;
    size_t n = 0;
    for (; more() && n < (braces ? 6 : digits); ++n, ++at_) {
      const char c = peek();
      if (c >= '0' && c <= '9') {
        value = value * 16 + static_cast<uint32_t>(c - '0');
      } else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) {
        value = value * 16 + static_cast<uint32_t>((c | 32) - 'a' + 10);
      } else {
        break;
      }
    }
    if (n == 0 || (braces ? !take("}") : n < digits)) return wrong("hexadecimal digits are missing");
    return value;
  }

  Result<CodePoints> property(bool invert) {
    std::string_view name = text_.substr(at_, 1);
    if (take("{")) {
      const size_t end = text_.find('}', at_);
      if (end == std::string_view::npos) return wrong("\\p{ without '}'");
      name = text_.substr(at_, end - at_);
      at_ = end;
    }
    ++at_;
    if (name.starts_with('^')) {
      name.remove_prefix(1);
      invert = !invert;
    }
    for (const std::string_view prefix : {"gc=", "General_Category="}) {
      if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
    }
    auto found = category(name);
    if (!found) return wrong("this property is not supported; general categories are, such as \\p{L}");
    return invert ? inverted(std::move(*found)) : std::move(*found);
  }

  Expressions& x_;
  bool ignore_case_, dot_all_;
};

}  // namespace

Result<Expr> parse_regex(Expressions& expressions, std::string_view pattern, const RegexOptions& options) {
  if (const size_t bad = invalid_utf8(pattern); bad != std::string_view::npos) {
    return error(Code::usage, "wrong at byte {}: it is not UTF-8", bad);
  }
  SWY_LET(const RegexTree tree, RegexParser(expressions, pattern, options).whole());
  const Edge edge = options.search ? Edge::open : Edge::text;
  SWY_LET(const Expr expr, lower(expressions, tree, edge, edge));
  SWY_TRY(expressions.status());
  return expr;
}

}  // namespace switchyard::constrain
