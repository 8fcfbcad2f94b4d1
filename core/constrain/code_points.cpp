// SPDX-License-Identifier: Apache-2.0
#include "core/constrain/code_points.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>

namespace switchyard::constrain {

CodePoints normalized(CodePoints set) {
  std::sort(set.begin(), set.end());
  CodePoints out;
  for (const auto& range : set) {
    if (!out.empty() && range.first <= out.back().second + 1) {
      out.back().second = std::max(out.back().second, range.second);
    } else {
      out.push_back(range);
    }
  }
  return out;
}

CodePoints inverted(CodePoints set) {
  CodePoints out;
  uint32_t from = 0;
  for (const auto& [low, high] : normalized(std::move(set))) {
    if (low > from) out.emplace_back(from, low - 1);
    from = high + 1;
  }
  if (from <= kLastCodePoint) out.emplace_back(from, kLastCodePoint);
  return out;
}

CodePoints without_case(CodePoints set) {
  constexpr size_t kMany = 4096;
  size_t count = 0;
  for (const auto& [low, high] : set) count += high - low + 1;
  CodePoints out = set;
  for (const auto& [low, high] : set) {
    for (uint32_t c = low; c <= (count > kMany ? std::min(high, 127u) : high); ++c) {
      for (const int32_t other :
           {utf8proc_tolower(static_cast<int32_t>(c)), utf8proc_toupper(static_cast<int32_t>(c))}) {
        if (other >= 0) out.emplace_back(static_cast<uint32_t>(other), static_cast<uint32_t>(other));
      }
    }
  }
  return normalized(std::move(out));
}

namespace {

struct Name {
  std::string_view brief, full;
};
constexpr Name kCategories[] = {
    {"C", "Other"},
    {"Cc", "Control"},
    {"Cf", "Format"},
    {"Cn", "Unassigned"},
    {"Co", "Private_Use"},
    {"L", "Letter"},
    {"Ll", "Lowercase_Letter"},
    {"Lm", "Modifier_Letter"},
    {"Lo", "Other_Letter"},
    {"Lt", "Titlecase_Letter"},
    {"Lu", "Uppercase_Letter"},
    {"M", "Mark"},
    {"Mc", "Spacing_Mark"},
    {"Me", "Enclosing_Mark"},
    {"Mn", "Nonspacing_Mark"},
    {"N", "Number"},
    {"Nd", "Decimal_Number"},
    {"Nd", "digit"},
    {"Nl", "Letter_Number"},
    {"No", "Other_Number"},
    {"P", "Punctuation"},
    {"Pc", "Connector_Punctuation"},
    {"Pd", "Dash_Punctuation"},
    {"Pe", "Close_Punctuation"},
    {"Pf", "Final_Punctuation"},
    {"Pi", "Initial_Punctuation"},
    {"Po", "Other_Punctuation"},
    {"Ps", "Open_Punctuation"},
    {"S", "Symbol"},
    {"Sc", "Currency_Symbol"},
    {"Sk", "Modifier_Symbol"},
    {"Sm", "Math_Symbol"},
    {"So", "Other_Symbol"},
    {"Z", "Separator"},
    {"Zl", "Line_Separator"},
    {"Zp", "Paragraph_Separator"},
    {"Zs", "Space_Separator"},
};

std::map<std::string_view, CodePoints> all_categories() {
  std::map<std::string, CodePoints> by_code;
  for (uint32_t c = 0; c <= kLastCodePoint; ++c) {
    CodePoints& set = by_code[utf8proc_category_string(static_cast<int32_t>(c))];
    if (!set.empty() && set.back().second + 1 == c) {
      set.back().second = c;
    } else {
      set.emplace_back(c, c);
    }
  }
  std::map<std::string_view, CodePoints> out;
  for (const Name& name : kCategories) {
    CodePoints set;
    for (const auto& [code, ranges] : by_code) {
      if (std::string_view(code).starts_with(name.brief)) set.insert(set.end(), ranges.begin(), ranges.end());
    }
    out[name.brief] = out[name.full] = normalized(std::move(set));
  }
  return out;
}

}  // namespace

std::optional<CodePoints> category(std::string_view name) {
  static const std::map<std::string_view, CodePoints> all = all_categories();
  const auto found = all.find(name);
  if (found == all.end()) return std::nullopt;
  return found->second;
}

uint32_t next_code_point(std::string_view text, size_t& at) {
  utf8proc_int32_t c = 0;
  const auto left = static_cast<utf8proc_ssize_t>(text.size() - at);
  const utf8proc_ssize_t n = utf8proc_iterate(reinterpret_cast<const uint8_t*>(text.data()) + at, left, &c);
  at += n > 0 ? static_cast<size_t>(n) : 1;
  return n > 0 ? static_cast<uint32_t>(c) : 0xFFFD;
}

size_t invalid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t c = 0;
    const utf8proc_ssize_t n = utf8proc_iterate(reinterpret_cast<const uint8_t*>(text.data()) + at,
                                                static_cast<utf8proc_ssize_t>(text.size() - at), &c);
    if (n <= 0) return at;
    at += static_cast<size_t>(n);
  }
  return std::string_view::npos;
}

}  // namespace switchyard::constrain
