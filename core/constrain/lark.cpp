// SPDX-License-Identifier: Apache-2.0
// Grammars in the style of Lark: rules in small letters, terminals in capitals, %ignore, %import common.NAME. Unlike
// Lark, nothing is split into terminals first: a text is accepted if any way of splitting it fits.
#include "core/base/printable.h"
#include "core/constrain/front_ends.h"
#include "core/constrain/grammar_scanner.h"
#include "core/constrain/lark_common.h"
#include "core/constrain/regex_syntax.h"

namespace switchyard::constrain {
namespace {

bool is_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

bool is_terminal(std::string_view name) {
  const char c = name.starts_with('_') && name.size() > 1 ? name[1] : name[0];
  return c >= 'A' && c <= 'Z';
}

class LarkReader : public GrammarScanner {
 public:
  LarkReader(Grammar& grammar, std::string_view text) : GrammarScanner(text), x_(grammar.expressions) {}

  Status all(RuleSet& rules) {
    for (space("//", true); more(); space("//", true)) {
      if (take("%")) {
        SWY_TRY(directive(rules));
        continue;
      }
      (void)(take("?") || take("!"));
      const std::string name(word(is_name));
      if (name.empty()) return wrong("a rule begins with its name: name: ...");
      if (peek() == '{') return wrong("templates are not supported");
      if (take(".")) (void)number();  // a priority chooses among parses, not among texts
      space("//", false);
      if (!take(":")) return wrong("':' is missing after the rule's name");
      in_rule_ = !is_terminal(name);
      SWY_LET(RuleTerm body, alternatives(0));
      SWY_TRY(rules.add(name, std::move(body)));
    }
    if (!ignored_.kids.empty()) {
      SWY_TRY(rules.add(" ignored", repeated(std::move(ignored_), 0, kUnbounded)));
    } else {
      SWY_TRY(rules.add(" ignored", {}));
    }
    return {};
  }

 private:
  Status directive(RuleSet& rules) {
    const std::string_view what = word(is_name);
    space("//", false);
    if (what == "ignore") {
      in_rule_ = false;
      SWY_LET(RuleTerm term, alternatives(0));
      ignored_.kids.push_back(std::move(term));
      return {};
    }
    if (what != "import") return wrong("only %import and %ignore are supported");
    if (!take("common")) return wrong("only %import common.NAME is supported");
    const bool list = !take(".");
    if (list) {
      space("//", false);
      if (!take("(")) return wrong("write %import common.NAME or %import common (NAME, ...)");
    }
    do {
      space("//", list);
      const std::string name(word(is_name));
      const auto pattern = lark_common(name);
      if (!pattern) return wrong("common has no such terminal, or it is not supported");
      RuleTerm term{RuleTerm::Kind::leaf};
      SWY_LET(term.expr, parse_regex(x_, *pattern));
      space("//", list);
      std::string as = name;
      if (!list && take("->")) {
        space("//", false);
        as = word(is_name);
      }
      SWY_TRY(rules.add(as, std::move(term)));
    } while (list && take(","));
    if (list && !take(")")) return wrong("a list without ')'");
    return {};
  }

  Result<RuleTerm> alternatives(unsigned depth) {
    if (depth > kMaxGrammarDepth) return wrong("groups nest too deep");
    RuleTerm out{RuleTerm::Kind::either};
    for (;;) {
      SWY_LET(RuleTerm way, sequence(depth));
      out.kids.push_back(std::move(way));
      // An alternative may begin the next line.
      const size_t before = at_;
      space("//", true);
      if (!take("|")) {
        if (depth == 0) at_ = before;
        return out;
      }
    }
  }

  Result<RuleTerm> sequence(unsigned depth) {
    RuleTerm out{RuleTerm::Kind::sequence};
    for (;;) {
      space("//", depth > 0);
      if (take("->")) {
        space("//", false);
        (void)word(is_name);
        continue;
      }
      RuleTerm item;
      SWY_LET(const bool there, atom(item, depth));
      if (!there) return out;
      SWY_TRY(quantifiers(item));
      out.kids.push_back(std::move(item));
    }
  }

  Result<bool> atom(RuleTerm& item, unsigned depth) {
    const char c = peek();
    if (c == '"') {
      item.kind = RuleTerm::Kind::leaf;
      SWY_LET(item.expr, text());
      item = spaced(std::move(item));
    } else if (c == '/' && peek(1) != '/') {
      item.kind = RuleTerm::Kind::leaf;
      SWY_LET(item.expr, regex());
      item = spaced(std::move(item));
    } else if (c == '(' || c == '[') {
      ++at_;
      SWY_LET(item, alternatives(depth + 1));
      space("//", true);
      if (!take(c == '(' ? ")" : "]")) return wrong(c == '(' ? "a group without ')'" : "a group without ']'");
      if (c == '[') item = repeated(std::move(item), 0, 1);
    } else if (is_name(c)) {
      item.kind = RuleTerm::Kind::rule;
      item.name = word(is_name);
      if (peek() == '{') return wrong("templates are not supported");
      if (is_terminal(item.name)) item = spaced(std::move(item));
    } else {
      if (more() && c != '|' && c != ')' && c != ']' && c != '\n' && c != '\r') return wrong("an unexpected character");
      return false;
    }
    return true;
  }

  // In a rule, a terminal and what is ignored after it.
  RuleTerm spaced(RuleTerm terminal) const {
    if (!in_rule_) return terminal;
    RuleTerm out{RuleTerm::Kind::sequence}, ignored{RuleTerm::Kind::rule};
    ignored.name = " ignored";
    out.kids.push_back(std::move(terminal));
    out.kids.push_back(std::move(ignored));
    return out;
  }

  Status quantifiers(RuleTerm& item) {
    space("//", false);
    uint32_t min = 0, max = kUnbounded;
    if (take_repeat(min, max)) {
    } else if (take("~")) {
      space("//", false);
      if (peek() < '0' || peek() > '9') return wrong("'~' without a count");
      max = min = number();
      if (take("..")) max = number();
      if (max > kMaxGrammarCount || max < min) return wrong("a wrong count");
    } else if (peek() == '{') {
      ++at_;
      SWY_TRY(counts(min, max));
    } else {
      return {};
    }
    item = repeated(std::move(item), min, max);
    return {};
  }

  // "text", "text"i, "a".."z".
  Result<Expr> text() {
    SWY_LET(const auto first, characters());
    if (take("..")) {
      if (peek() != '"') return wrong("a range has a character on both sides");
      SWY_LET(const auto last, characters());
      if (first.size() != 1 || last.size() != 1 || last[0] < first[0])
        return wrong("a range has a character on both sides");
      const std::pair<uint32_t, uint32_t> range[] = {{first[0], last[0]}};
      return x_.characters(range);
    }
    const bool any_case = take("i");
    Expr e = kEpsilon;
    for (size_t i = first.size(); i-- > 0;) {
      const CodePoints one = {{first[i], first[i]}};
      e = x_.concat(x_.characters(any_case ? without_case(one) : one), e);
    }
    return e;
  }

  Result<std::vector<uint32_t>> characters() {
    std::vector<uint32_t> out;
    for (++at_; peek() != '"';) {
      if (!more() || peek() == '\n') return wrong("a text without '\"' at its end");
      if (take("\\")) {
        SWY_LET(const uint32_t c, escape());
        out.push_back(c);
      } else {
        out.push_back(next_code_point(text_, at_));
      }
    }
    ++at_;
    return out;
  }

  // /pattern/ with flags.
  Result<Expr> regex() {
    std::string pattern;
    for (++at_; peek() != '/'; ++at_) {
      if (!more() || peek() == '\n') return wrong("a pattern without '/' at its end");
      if (peek() == '\\' && peek(1) == '/') ++at_;
      if (peek() == '\\' && peek(1) != '\0') pattern += text_[at_++];
      pattern += peek();
    }
    ++at_;
    RegexOptions options;
    for (; peek() == 'i' || peek() == 's' || peek() == 'u'; ++at_) {
      if (peek() == 'i') options.ignore_case = true;
      if (peek() == 's') options.dot_all = true;
    }
    if (peek() >= 'a' && peek() <= 'z') return wrong("of a pattern's flags, only i, s and u are supported");
    const auto parsed = parse_regex(x_, pattern, options);
    if (!parsed.ok()) return wrong("/" + printable(pattern) + "/: " + parsed.status().message());
    return *parsed;
  }

  Expressions& x_;
  RuleTerm ignored_{RuleTerm::Kind::either};
  bool in_rule_ = true;
};

}  // namespace

Result<NodeId> lark(Grammar& grammar, std::string_view text) {
  if (const size_t bad = invalid_utf8(text); bad != std::string_view::npos) {
    return error(Code::usage, "byte {} is not UTF-8", bad);
  }
  RuleSet rules;
  SWY_TRY(LarkReader(grammar, text).all(rules));
  RuleTerm whole{RuleTerm::Kind::sequence}, ignored{RuleTerm::Kind::rule}, start{RuleTerm::Kind::rule};
  ignored.name = " ignored";
  start.name = "start";
  whole.kids.push_back(std::move(ignored));
  whole.kids.push_back(std::move(start));
  if (!rules.has("start")) return error(Code::usage, "it has no rule 'start', which would be the whole text");
  SWY_TRY(rules.add(" whole", std::move(whole)));
  return rules.build(grammar, " whole");
}

}  // namespace switchyard::constrain
