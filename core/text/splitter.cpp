#include "core/text/splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace switchyard {
namespace {

std::string reason(int code) {
  PCRE2_UCHAR text[256];
  return pcre2_get_error_message(code, text, sizeof text) < 0 ? fmt::format("PCRE2 error {}", code)
                                                              : reinterpret_cast<const char*>(text);
}

struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

}  // namespace

void Splitter::Free::operator()(void* code) const { pcre2_code_free(static_cast<pcre2_code*>(code)); }

Result<Splitter> Splitter::compile(const std::string& pattern) {
  int code = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* compiled = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                       PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &offset, nullptr);
  if (compiled == nullptr) {
    return error(Code::unsupported, "the split pattern cannot be used: {} at offset {}", reason(code), offset);
  }
  pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);  // without it matching is slower, not different
  Splitter s;
  s.code_.reset(compiled);
  return s;
}

Status Splitter::split(std::string_view text, const std::function<void(std::string_view)>& piece) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(pcre2_match_data_create_from_pattern(code, nullptr));
  if (match == nullptr) return error(Code::out_of_host_memory, "no memory to split a text");
  size_t done = 0, at = 0;
  while (at <= text.size()) {
    const int n = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, PCRE2_NO_UTF_CHECK,
                              match.get(), nullptr);
    if (n == PCRE2_ERROR_NOMATCH) break;
    if (n < 0) return error(Code::internal, "splitting the text into words failed at byte {}: {}", at, reason(n));
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(match.get());
    if (span[0] > done) piece(text.substr(done, span[0] - done));
    if (span[1] > span[0]) piece(text.substr(span[0], span[1] - span[0]));
    done = span[1];
    at = done;
    if (span[1] == span[0]) {  // an empty match: go on after the next character
      ++at;
      while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
    }
  }
  if (done < text.size()) piece(text.substr(done));
  return {};
}

}  // namespace switchyard
