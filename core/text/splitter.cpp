// SPDX-License-Identifier: Apache-2.0
#include "core/text/splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "core/base/os.h"

namespace switchyard {
namespace {

constexpr size_t kMaxPatternBytes = 16384;
constexpr uint32_t kMaxSteps = 1'000'000;  // of one match from one place, more for long texts
constexpr uint32_t kStepsPerByte = 16;
constexpr uint32_t kMaxHeapKiB = 64 << 10;
constexpr size_t kPlaces = 8;                  // at which one call looks for a match
constexpr uint64_t kBaseNs = 1'000'000'000;    // of processor time for a text,
constexpr uint64_t kNsPerByte = 1000;          // and for each byte of it; splitting takes about 60
constexpr uint32_t kMatchesBetweenLooks = 16;  // at the clock, which is a system call

std::string reason(int code) {
  PCRE2_UCHAR text[256];
  return pcre2_get_error_message(code, text, sizeof text) < 0 ? fmt::format("PCRE2 error {}", code)
                                                              : reinterpret_cast<const char*>(text);
}

struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* limits) const { pcre2_match_context_free(limits); }
};

// The first byte of a character at `at` or after it.
size_t next_character(std::string_view text, size_t at) {
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
  return at;
}

}  // namespace

SplitBudget::SplitBudget(size_t text_bytes) : end_ns_(thread_cpu_ns() + kBaseNs + kNsPerByte * text_bytes) {}

Status SplitBudget::charge() {
  if (++matches_ % kMatchesBetweenLooks != 0 || thread_cpu_ns() < end_ns_) return {};
  return error(Code::invalid_data, "the tokenizer's patterns take too long to split this text into words");
}

void Splitter::Free::operator()(void* code) const { pcre2_code_free(static_cast<pcre2_code*>(code)); }

Result<Splitter> Splitter::compile(const std::string& pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return error(Code::unsupported, "the split pattern has {} bytes; at most {} are supported", pattern.size(),
                 kMaxPatternBytes);
  }
  int code = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* compiled =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT, &code, &offset, nullptr);
  if (compiled == nullptr) {
    return error(Code::unsupported, "the split pattern cannot be used: {} at offset {}", reason(code), offset);
  }
  Splitter s;
  s.code_.reset(compiled);
  return s;
}

// PCRE2's just-in-time compiler would be four times as fast, but it does not count the steps of every pattern, and
// splitting takes less than a tenth of encoding. The limit of steps holds for one place in the text, so each call looks
// at few of them.
Status Splitter::split(std::string_view text, SplitBudget& budget,
                       const std::function<void(std::string_view)>& piece) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(pcre2_match_data_create_from_pattern(code, nullptr));
  const std::unique_ptr<pcre2_match_context, FreeMatch> limits(pcre2_match_context_create(nullptr));
  if (match == nullptr || limits == nullptr) return error(Code::out_of_host_memory, "no memory to split a text");
  pcre2_set_match_limit(
      limits.get(), static_cast<uint32_t>(
                        kMaxSteps + std::min<uint64_t>(uint64_t{kStepsPerByte} * text.size(), UINT32_MAX - kMaxSteps)));
  pcre2_set_heap_limit(limits.get(), kMaxHeapKiB);
  size_t done = 0, at = 0;
  while (at <= text.size()) {
    SWY_TRY(budget.charge());
    const size_t last = std::min(at + kPlaces, text.size());
    pcre2_set_offset_limit(limits.get(), last);
    const int n = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, PCRE2_NO_UTF_CHECK,
                              match.get(), limits.get());
    if (n == PCRE2_ERROR_NOMATCH) {
      if (last == text.size()) break;
      at = next_character(text, last + 1);
      continue;
    }
    if (n < 0) return error(Code::invalid_data, "splitting the text into words failed at byte {}: {}", at, reason(n));
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(match.get());
    if (span[0] > done) piece(text.substr(done, span[0] - done));
    if (span[1] > span[0]) piece(text.substr(span[0], span[1] - span[0]));
    done = span[1];
    at = done;
    if (span[1] == span[0]) at = next_character(text, at + 1);  // an empty match: go on after the next character
  }
  if (done < text.size()) piece(text.substr(done));
  return {};
}

}  // namespace switchyard
