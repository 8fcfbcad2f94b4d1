// SPDX-License-Identifier: Apache-2.0
// Follows constraints for scripts: a JSON object a line in, one a line out.
//
//   constrain_probe VOCABULARY     a tokenizer.json, or a file of a token's bytes a line, in hexadecimal
//
// In:  kind, text: the constraint; texts: is each one whole text of it?; tokens: lists of ids to follow, and the time
//      of each mask; more_tokens: the same, without times; walk: {seed, steps}: draws tokens at random from the masks;
//      masks: lists of ids, along which each mask is written; check: texts, along which each mask is compared with
//      what can be followed, token by token.
// Out: error, compile_us, first_mask_us, accepted, followed (the number of tokens that were in their masks, and
//      whether the text may end there), mask_us, walk (the text, and whether it ended), masks (in hexadecimal, a
//      byte for eight tokens), checked: the masks, and the first token of a mask that is wrong.
#include <ctime>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "core/constrain/constraint.h"
#include "core/text/tokenizer.h"

namespace {

using namespace switchyard;  // NOLINT(google-build-using-namespace)
using nlohmann::json;

// Of this thread's processor time, so that other programs do not count.
struct Clock {
  using time_point = double;
  static double now() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
  }
};
double us_since(double from) { return Clock::now() - from; }

ConstraintKind kind_of(const std::string& name) {
  const std::pair<const char*, ConstraintKind> kinds[] = {
      {"regex", ConstraintKind::regex},   {"json_schema", ConstraintKind::json_schema},
      {"choice", ConstraintKind::choice}, {"gbnf", ConstraintKind::gbnf},
      {"lark", ConstraintKind::lark},     {"tool_calls", ConstraintKind::tool_calls}};
  for (const auto& [text, kind] : kinds) {
    if (name == text) return kind;
  }
  return ConstraintKind::json_object;
}

Result<std::shared_ptr<const TokenTrie>> vocabulary(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (path.ends_with(".json")) {
    std::stringstream text;
    text << in.rdbuf();
    auto parsed = Tokenizer::parse(text.str());
    if (!parsed.ok()) return parsed.status();
    const Tokenizer& t = *parsed;
    return TokenTrie::create(static_cast<uint32_t>(t.vocab_size()), [&](uint32_t id) {
      return t.is_special(static_cast<int32_t>(id)) ? std::string_view() : t.piece(static_cast<int32_t>(id));
    });
  }
  std::vector<std::string> pieces;
  for (std::string line; std::getline(in, line);) {
    std::string& piece = pieces.emplace_back();
    for (size_t i = 0; i + 1 < line.size(); i += 2) {
      piece += static_cast<char>(std::stoi(line.substr(i, 2), nullptr, 16));
    }
  }
  return TokenTrie::create(static_cast<uint32_t>(pieces.size()),
                           [&](uint32_t id) -> std::string_view { return pieces[id]; });
}

bool has(const std::vector<uint32_t>& mask, int32_t id) {
  return (mask[static_cast<size_t>(id) / 32] >> id % 32 & 1) != 0;
}

json follow(const std::shared_ptr<const Constraint>& c, const json& ids, json& times) {
  ConstraintMatcher matcher(c);
  std::vector<uint32_t> mask(c->vocabulary().mask_words());
  size_t n = 0;
  for (const int32_t id : ids) {
    std::fill(mask.begin(), mask.end(), 0);
    const auto from = Clock::now();
    const Status masked = matcher.mask(mask);
    times.push_back(us_since(from));
    if (!masked.ok() || !has(mask, id) || !matcher.accept(id).ok()) break;
    ++n;
  }
  return {n, n == ids.size() && matcher.can_end()};
}

json walk(const std::shared_ptr<const Constraint>& c, uint64_t seed, size_t steps) {
  ConstraintMatcher matcher(c);
  std::mt19937_64 random(seed);
  std::vector<uint32_t> mask(c->vocabulary().mask_words());
  for (size_t i = 0; i < steps; ++i) {
    if (matcher.can_end() && (matcher.finished() || random() % 8 == 0)) return {matcher.text(), true};
    std::fill(mask.begin(), mask.end(), 0);
    if (const Status s = matcher.mask(mask); !s.ok()) return {s.message(), false};
    std::vector<int32_t> ids;
    for (uint32_t id = 0; id < c->vocabulary().vocab(); ++id) {
      if (has(mask, static_cast<int32_t>(id))) ids.push_back(static_cast<int32_t>(id));
    }
    if (ids.empty()) return {"dead end: " + matcher.text(), true};
    (void)matcher.accept(ids[random() % ids.size()]);
  }
  return {matcher.text(), false};
}

// The mask before each token, and the last one.
json masks(const std::shared_ptr<const Constraint>& c, const json& ids) {
  ConstraintMatcher at(c);
  std::vector<uint32_t> mask(c->vocabulary().mask_words());
  json out = json::array();
  for (size_t i = 0; i <= ids.size(); ++i) {
    std::fill(mask.begin(), mask.end(), 0);
    if (!at.mask(mask).ok()) break;
    std::string text;
    for (const uint32_t word : mask) {
      for (uint32_t shift = 0; shift < 32; shift += 8) {
        for (const uint32_t half : {word >> shift >> 4 & 15, word >> shift & 15}) text += "0123456789abcdef"[half];
      }
    }
    out.push_back(text);
    if (i < ids.size() && !at.accept(ids[i].get<int32_t>()).ok()) break;
  }
  return out;
}

// Masks after every seventh byte.
json check(const std::shared_ptr<const Constraint>& c, const json& texts) {
  const TokenTrie& trie = c->vocabulary();
  std::vector<uint32_t> mask(trie.mask_words());
  size_t masks = 0;
  for (const std::string text : texts) {
    ConstraintMatcher at(c);
    for (size_t i = 0; i <= text.size(); ++i) {
      if (i > 0 && !at.accept_text(text.substr(i - 1, 1)).ok()) break;
      if (i % 7 != 0) continue;
      std::fill(mask.begin(), mask.end(), 0);
      if (const Status s = at.mask(mask); !s.ok()) return {masks, s.message()};
      ++masks;
      for (uint32_t id = 0; id < trie.vocab(); ++id) {
        if (trie.piece(id).empty()) continue;
        const auto token = static_cast<int32_t>(id);
        ConstraintMatcher other = at;
        if (other.accept(token).ok() != has(mask, token)) {
          return {masks, (has(mask, token) ? "allowed after " : "not allowed after ") + at.text() + ": " +
                             std::string(trie.piece(id))};
        }
      }
    }
  }
  return {masks, nullptr};
}

json answer(const json& in, const std::shared_ptr<const TokenTrie>& trie) {
  json out;
  const auto from = Clock::now();
  auto compiled = Constraint::compile(kind_of(in["kind"]), in["text"].get<std::string>(), trie);
  out["compile_us"] = us_since(from);
  if (!compiled.ok()) {
    out["error"] = compiled.status().message();
    return out;
  }
  {
    ConstraintMatcher first(*compiled);
    std::vector<uint32_t> mask(trie->mask_words());
    const Status masked = first.mask(mask);
    out["first_mask_us"] = us_since(from);  // compiling included
    if (!masked.ok()) out["error"] = masked.message();
  }
  for (const json& text : in.value("texts", json::array())) {
    ConstraintMatcher matcher(*compiled);
    out["accepted"].push_back(matcher.accept_text(text.get<std::string>()).ok() && matcher.can_end());
  }
  json times = json::array();
  for (const json& ids : in.value("tokens", json::array())) out["followed"].push_back(follow(*compiled, ids, times));
  out["mask_us"] = times;
  json untimed;
  for (const json& ids : in.value("more_tokens", json::array())) {
    out["followed_more"].push_back(follow(*compiled, ids, untimed));
  }
  for (const json& ids : in.value("masks", json::array())) out["masks"].push_back(masks(*compiled, ids));
  if (in.contains("check")) out["checked"] = check(*compiled, in["check"]);
  if (in.contains("walk")) out["walk"] = walk(*compiled, in["walk"]["seed"], in["walk"]["steps"]);
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: constrain_probe VOCABULARY < requests\n";
    return 2;
  }
  const auto trie = vocabulary(argv[1]);
  if (!trie.ok()) {
    std::cerr << trie.status().message() << "\n";
    return 1;
  }
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);) {
    const json in = json::parse(line, nullptr, false);
    if (in.is_discarded()) return 1;
    std::cout << answer(in, *trie).dump(-1, ' ', true, json::error_handler_t::replace) << std::endl;
  }
  return 0;
}
