// SPDX-License-Identifier: Apache-2.0
#include "core/generate/regex_mask.h"

#include <algorithm>
#include <iterator>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace switchyard {
namespace {

// Of one match. A pattern that needs more is treated as one that no token can follow.
constexpr uint32_t kMaxNested = 1000, kMaxHeapKiB = 64 << 10, kMaxSteps = 1'000'000;
constexpr size_t kWorkspace = 4096;  // of PCRE2's automaton, in ints: some hundreds of states at a time
// PCRE2_ENDANCHORED is not to be had with partial matching; \z is.
constexpr std::string_view kBefore = "(?:", kAfter = ")\\z";

// The automaton's state does not include the text before it. Returns true too often rather than too seldom, which only
// costs time.
bool looks_around(std::string_view pattern) {
  for (const std::string_view part : {"(?", "(*", "\\b", "\\B", "\\A", "\\G", "\\K", "^", "$"}) {
    if (pattern.find(part) != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace

// The automaton's state after some text, and the trial of what could follow.
struct RegexMask::Matcher {
  enum class Fit { no, begins, whole };

  pcre2_code* code = nullptr;
  pcre2_match_data* data = nullptr;
  pcre2_match_context* limits = nullptr;
  std::vector<int> state = std::vector<int>(kWorkspace), trial = std::vector<int>(kWorkspace);
  bool begun = false;    // `state` has seen some text
  bool scratch = false;  // the pattern looks around, so that every trial begins anew
  std::string seen;      // then: the text so far, followed by the candidate

  ~Matcher() {
    pcre2_match_context_free(limits);
    pcre2_match_data_free(data);
    pcre2_code_free(code);
  }

  // Runs from `state`, in `trial`.
  Fit run(std::string_view text, uint32_t partial) {
    uint32_t options = PCRE2_ANCHORED | partial;
    const size_t before = seen.size();
    if (scratch) text = seen += text;
    if (begun && !scratch) {
      std::copy(state.begin(), state.end(), trial.begin());
      options |= PCRE2_DFA_RESTART;
    }
    const int found = pcre2_dfa_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, options, data,
                                      limits, trial.data(), trial.size());
    seen.resize(before);
    if (found == PCRE2_ERROR_PARTIAL) return Fit::begins;
    return found >= 0 ? Fit::whole : Fit::no;
  }
  void advance(std::string_view text) {
    run(text, PCRE2_PARTIAL_HARD);
    if (scratch) seen += text;
    std::swap(state, trial);
    begun = true;
  }
};

RegexMask::~RegexMask() = default;

Result<std::unique_ptr<RegexMask>> RegexMask::create(const std::string& pattern, const Tokenizer& tokenizer,
                                                     uint32_t vocab, std::span<const int32_t> end_ids) {
  std::unique_ptr<RegexMask> m(new RegexMask);
  m->pattern_ = pattern;
  m->matcher_ = std::make_unique<Matcher>();
  int fault = 0;
  size_t at = 0;
  const std::string whole = fmt::format("{}{}{}", kBefore, pattern, kAfter);
  m->matcher_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(whole.data()), whole.size(), 0, &fault, &at, nullptr);
  if (m->matcher_->code == nullptr) {
    char text[256] = {};
    pcre2_get_error_message(fault, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof text);
    at = std::min(at - std::min(at, kBefore.size()), pattern.size());
    return error(Code::usage, "--allow-regex '{}' is wrong at byte {}: {}", pattern, at, text);
  }
  uint32_t references = 0;
  pcre2_pattern_info(m->matcher_->code, PCRE2_INFO_BACKREFMAX, &references);
  if (references > 0) {
    return error(Code::usage, "--allow-regex '{}' has a back reference, which cannot be followed token by token",
                 pattern);
  }
  m->matcher_->scratch = looks_around(pattern);
  m->matcher_->data = pcre2_match_data_create(1, nullptr);
  m->matcher_->limits = pcre2_match_context_create(nullptr);
  if (m->matcher_->data == nullptr || m->matcher_->limits == nullptr) {
    return error(Code::out_of_host_memory, "no memory for --allow-regex");
  }
  pcre2_set_depth_limit(m->matcher_->limits, kMaxNested);
  pcre2_set_heap_limit(m->matcher_->limits, kMaxHeapKiB);
  pcre2_set_match_limit(m->matcher_->limits, kMaxSteps);
  std::vector<int> workspace(kWorkspace);
  const int tried = pcre2_dfa_match(m->matcher_->code, reinterpret_cast<PCRE2_SPTR>(""), 0, 0, PCRE2_ANCHORED,
                                    m->matcher_->data, m->matcher_->limits, workspace.data(), workspace.size());
  if (tried < 0 && tried != PCRE2_ERROR_NOMATCH) {
    char text[256] = {};
    pcre2_get_error_message(tried, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof text);
    return error(Code::usage, "--allow-regex '{}' cannot be followed token by token: {}", pattern, text);
  }
  m->tokenizer_ = &tokenizer;
  std::copy_if(end_ids.begin(), end_ids.end(), std::back_inserter(m->end_ids_),
               [&](int32_t id) { return id >= 0 && static_cast<uint32_t>(id) < vocab; });
  for (int32_t id = 0; id < std::min(tokenizer.vocab_size(), static_cast<int32_t>(vocab)); ++id) {
    if (!tokenizer.is_special(id) && !tokenizer.piece(id).empty()) m->by_text_.push_back(id);
  }
  std::sort(m->by_text_.begin(), m->by_text_.end(),
            [&](int32_t a, int32_t b) { return tokenizer.piece(a) < tokenizer.piece(b); });
  return m;
}

std::string RegexMask::name() const { return fmt::format("--allow-regex '{}'", pattern_); }

void RegexMask::follow(std::span<const int32_t> drawn) {
  for (; followed_ < drawn.size(); ++followed_) {
    const std::string_view piece = tokenizer_->piece(drawn[followed_]);
    if (piece.empty() || tokenizer_->is_special(drawn[followed_])) continue;
    matcher_->advance(piece);
    text_ += piece;
  }
}

bool RegexMask::complete(std::span<const int32_t> drawn) {
  follow(drawn);
  return pcre2_dfa_match(matcher_->code, reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), 0, PCRE2_ANCHORED,
                         matcher_->data, matcher_->limits, matcher_->trial.data(), matcher_->trial.size()) >= 0;
}

bool RegexMask::finished(std::span<const int32_t> drawn) {
  if (!complete(drawn)) return false;
  for (int byte = 0; byte < 256; ++byte) {
    const char next = static_cast<char>(byte);
    if (matcher_->run({&next, 1}, PCRE2_PARTIAL_HARD) != Matcher::Fit::no) return false;
  }
  return true;
}

void RegexMask::allow(std::span<const int32_t> drawn, std::span<uint32_t> mask) {
  const auto set = [&](int32_t id) { mask[static_cast<size_t>(id) / 32] |= 1u << id % 32; };
  if (complete(drawn)) {
    for (const int32_t id : end_ids_) set(id);
  }
  // In order of text, so that one trial rules out all tokens that begin alike.
  std::string_view dead;
  for (size_t i = 0; i < by_text_.size(); ++i) {
    const std::string_view piece = tokenizer_->piece(by_text_[i]);
    if (!dead.empty() && piece.starts_with(dead)) continue;
    bool alive = true;
    const std::string_view before = i == 0 ? std::string_view() : tokenizer_->piece(by_text_[i - 1]);
    for (size_t n = 1; n < std::min<size_t>(piece.size(), 4) && alive; ++n) {
      if (before.starts_with(piece.substr(0, n))) continue;  // tried with the token before
      alive = matcher_->run(piece.substr(0, n), PCRE2_PARTIAL_HARD) == Matcher::Fit::begins;
      if (!alive) dead = piece.substr(0, n);
    }
    if (!alive) continue;
    if (matcher_->run(piece, PCRE2_PARTIAL_SOFT) != Matcher::Fit::no) {
      set(by_text_[i]);
    } else {
      dead = piece;
    }
  }
}

}  // namespace switchyard
