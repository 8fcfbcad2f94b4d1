// SPDX-License-Identifier: Apache-2.0
#include "core/import/shortlist.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/base/json.h"
#include "core/base/printable.h"

namespace switchyard {
namespace {

constexpr uint64_t kMaxShortlistBytes = uint64_t{64} << 20;

// Ids between spaces and ends of lines.
Result<std::vector<uint32_t>> ids_in(std::string_view text, const std::string& path, uint32_t vocab) {
  std::vector<uint32_t> ids;
  uint64_t line = 1;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == ' ' || text[at] == '\t' || text[at] == '\r' || text[at] == '\n') {
      line += text[at++] == '\n' ? 1 : 0;
      continue;
    }
    const size_t end = std::min(text.find_first_of(" \t\r\n", at), text.size());
    uint32_t id = 0;
    const auto [last, ec] = std::from_chars(text.data() + at, text.data() + end, id);
    if (ec != std::errc() || last != text.data() + end || id >= vocab) {
      return error(Code::invalid_data, "{}, line {}: '{}' is no token id; this model has those below {}", path, line,
                   printable(text.substr(at, std::min<size_t>(end - at, 40))), vocab);
    }
    ids.push_back(id);
    at = end;
  }
  if (ids.empty()) return error(Code::invalid_data, "{} has no token ids", path);
  return ids;
}

// Those that were added to the vocabulary of the merges: ends of turns, and marks of tools and of reasoning.
Result<std::vector<uint32_t>> added_ids(std::string_view tokenizer_json, uint32_t vocab) {
  std::vector<uint32_t> ids;
  if (tokenizer_json.empty()) return ids;
  SWY_LET(const nlohmann::json parsed, read_json(tokenizer_json, "tokenizer.json"));
  if (!parsed.is_object() || !parsed.contains("added_tokens")) return ids;
  for (const nlohmann::json& token : parsed["added_tokens"]) {
    if (!token.is_object() || !token.contains("id") || !token["id"].is_number_unsigned()) continue;
    if (const uint64_t id = token["id"].get<uint64_t>(); id < vocab) ids.push_back(static_cast<uint32_t>(id));
  }
  return ids;
}

}  // namespace

Result<IdRanges> make_shortlist(Os& os, const std::string& wanted, std::string_view tokenizer_json, uint32_t vocab) {
  if (wanted == "off") return IdRanges();
  uint32_t tokens = kShortlistTokens;
  if (wanted == "auto") {
    if (vocab < kShortlistTokens + kShortlistTokens / 2) return IdRanges();
  } else {
    const auto [last, ec] = std::from_chars(wanted.data(), wanted.data() + wanted.size(), tokens);
    const bool number = ec == std::errc() && last == wanted.data() + wanted.size();
    if (!number && os.exists(wanted)) {
      SWY_LET(const std::string text, os.read(wanted, kMaxShortlistBytes));
      SWY_LET(std::vector<uint32_t> listed, ids_in(text, wanted, vocab));
      return IdRanges::of(std::move(listed));
    }
    if (!number || tokens == 0) {
      return error(Code::usage, "--mtp-shortlist is '{}'; it must be auto, off, a number of tokens or a file of ids",
                   printable(wanted));
    }
    if (tokens >= vocab) return IdRanges();
  }
  SWY_LET(std::vector<uint32_t> ids, added_ids(tokenizer_json, vocab));
  const size_t added = ids.size();
  ids.resize(added + tokens);
  std::iota(ids.begin() + static_cast<ptrdiff_t>(added), ids.end(), 0u);
  return IdRanges::of(std::move(ids));
}

}  // namespace switchyard
