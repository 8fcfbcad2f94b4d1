// SPDX-License-Identifier: Apache-2.0
// Constraints: the first byte chooses the kind, the second among the tokens that a mask allows, the rest is the text.
// Compiling and following it ends soon; a mask allows a token if and only if it can be followed, and never leads to a
// dead end.
#include <cstdint>
#include <string>
#include <vector>

#include "core/constrain/constraint.h"

namespace {

using namespace switchyard;  // NOLINT(google-build-using-namespace)

const std::vector<std::string>& pieces() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> out = {""};
    for (int b = 0; b < 256; ++b) out.emplace_back(1, static_cast<char>(b));
    for (const char* more : {"ab", "abc", "aa", "10", "true", "null", "{\"", "\":", "\",", "]}", "\\u00", "\xC3\xA9"}) {
      out.emplace_back(more);
    }
    return out;
  }();
  return all;
}

const std::shared_ptr<const TokenTrie>& vocabulary() {
  static const auto trie = *TokenTrie::create(static_cast<uint32_t>(pieces().size()),
                                              [](uint32_t id) -> std::string_view { return pieces()[id]; });
  return trie;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  constexpr ConstraintKind kKinds[] = {ConstraintKind::regex, ConstraintKind::json_schema, ConstraintKind::gbnf,
                                       ConstraintKind::lark,  ConstraintKind::tool_calls,  ConstraintKind::choice};
  const std::string text(reinterpret_cast<const char*>(data) + 2, size - 2);
  ConstraintLimits limits;
  limits.expressions = 1 << 16;
  limits.new_states = 1 << 12;
  limits.memory_bytes = 4 << 20;
  const auto compiled = Constraint::compile(kKinds[data[0] % 6], text, vocabulary(), limits);
  if (!compiled.ok()) return 0;
  const int32_t end[] = {0};
  ConstraintMatcher matcher(*compiled, end);
  for (size_t step = 0; step < 8; ++step) {
    std::vector<uint32_t> mask((pieces().size() + 31) / 32);
    if (!matcher.mask(mask).ok()) return 0;  // a limit
    std::vector<int32_t> allowed;
    for (size_t id = 1; id < pieces().size(); ++id) {
      if ((mask[id / 32] >> id % 32 & 1) != 0) allowed.push_back(static_cast<int32_t>(id));
    }
    if ((mask[0] & 1) != (matcher.can_end() ? 1u : 0u)) __builtin_trap();
    if (allowed.empty() && !matcher.can_end()) __builtin_trap();  // a dead end
    if (allowed.empty()) return 0;
    const auto tried = static_cast<int32_t>(1 + (data[1] * 31 + step * 7) % (pieces().size() - 1));
    ConstraintMatcher other = matcher;
    const Status followed = other.accept(tried);
    const bool in_mask = (mask[static_cast<size_t>(tried) / 32] >> tried % 32 & 1) != 0;
    if (followed.ok() != in_mask && followed.code() != Code::unsupported) __builtin_trap();
    const Status next = matcher.accept(allowed[(data[1] + step * 7) % allowed.size()]);
    if (!next.ok()) {
      if (next.code() != Code::unsupported) __builtin_trap();
      return 0;
    }
  }
  return 0;
}
