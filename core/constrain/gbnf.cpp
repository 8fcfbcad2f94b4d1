// SPDX-License-Identifier: Apache-2.0
// The grammar format of llama.cpp: name ::= alternatives, of "text", [class], ., (group), name, with * + ? {n,m}.
#include "core/constrain/front_ends.h"
#include "core/constrain/grammar_scanner.h"

namespace switchyard::constrain {
namespace {

bool is_gbnf_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

class GbnfReader : public GrammarScanner {
 public:
  GbnfReader(Grammar& grammar, std::string_view text) : GrammarScanner(text), x_(grammar.expressions) {}

  Status all(RuleSet& rules) {
    for (space("#", true); more(); space("#", true)) {
      const std::string name(word(is_gbnf_name));
      if (name.empty()) return wrong("a rule begins with its name: name ::= ...");
      space("#", false);
      if (!take("::=")) return wrong("'::=' is missing after the rule's name");
      space("#", true);
      SWY_LET(RuleTerm body, alternatives(0));
      if (more() && peek() != '\n' && peek() != '\r') return wrong("something follows the rule in its line");
      SWY_TRY(rules.add(name, std::move(body)));
    }
    return {};
  }

 private:
  Result<RuleTerm> alternatives(unsigned depth) {
    if (depth > kMaxGrammarDepth) return wrong("groups nest too deep");
    RuleTerm out{RuleTerm::Kind::either};
    do {
      space("#", true);
      SWY_LET(RuleTerm way, sequence(depth));
      out.kids.push_back(std::move(way));
    } while (take("|"));
    return out;
  }

  Result<RuleTerm> sequence(unsigned depth) {
    RuleTerm out{RuleTerm::Kind::sequence};
    for (;; space("#", depth > 0)) {
      const char c = peek();
      RuleTerm item{RuleTerm::Kind::leaf};
      if (c == '"') {
        SWY_LET(item.expr, text());
      } else if (c == '[') {
        SWY_LET(item.expr, characters());
      } else if (take(".")) {
        item.expr = x_.character();
      } else if (take("(")) {
        SWY_LET(item, alternatives(depth + 1));
        space("#", true);
        if (!take(")")) return wrong("a group without ')'");
      } else if (c == '<') {
        return wrong("tokens as symbols, <...>, are not supported");
      } else if (is_gbnf_name(c)) {
        item.kind = RuleTerm::Kind::rule;
        item.name = word(is_gbnf_name);
      } else {
        if (c == '*' || c == '+' || c == '?' || c == '{') return wrong("nothing to repeat");
        if (more() && c != '|' && c != ')' && c != '\n' && c != '\r') return wrong("an unexpected character");
        return out;
      }
      space("#", depth > 0);
      SWY_TRY(quantifiers(item));
      out.kids.push_back(std::move(item));
    }
  }

  Status quantifiers(RuleTerm& item) {
    uint32_t min = 0, max = kUnbounded;
    if (take_repeat(min, max)) {
    } else if (take("{")) {
      SWY_TRY(counts(min, max));
    } else {
      return {};
    }
    item = repeated(std::move(item), min, max);
    return {};
  }

  Result<Expr> text() {
    ++at_;
    std::vector<Expr> parts;
    while (peek() != '"') {
      if (!more() || peek() == '\n') return wrong("a text without '\"' at its end");
      SWY_LET(const uint32_t c, character());
      const std::pair<uint32_t, uint32_t> one[] = {{c, c}};
      parts.push_back(x_.characters(one));
    }
    ++at_;
    Expr e = kEpsilon;
    for (size_t i = parts.size(); i-- > 0;) e = x_.concat(parts[i], e);
    return e;
  }

  Result<uint32_t> character() {
    if (take("\\")) return escape();
    return next_code_point(text_, at_);
  }

  Result<Expr> characters() {
    ++at_;
    const bool invert = take("^");
    CodePoints set;
    while (peek() != ']') {
      if (!more()) return wrong("a class without ']'");
      SWY_LET(const uint32_t low, character());
      uint32_t high = low;
      if (peek() == '-' && peek(1) != ']') {
        ++at_;
        if (!more()) return wrong("a class without ']'");
        SWY_LET(high, character());
        if (high < low) return wrong("a range that ends before it begins");
      }
      set.emplace_back(low, high);
    }
    ++at_;
    set = invert ? inverted(std::move(set)) : normalized(std::move(set));
    return x_.characters(set);
  }

  Expressions& x_;
};

}  // namespace

Result<NodeId> gbnf(Grammar& grammar, std::string_view text) {
  if (const size_t bad = invalid_utf8(text); bad != std::string_view::npos) {
    return error(Code::usage, "byte {} is not UTF-8", bad);
  }
  RuleSet rules;
  SWY_TRY(GbnfReader(grammar, text).all(rules));
  return rules.build(grammar, "root");
}

}  // namespace switchyard::constrain
