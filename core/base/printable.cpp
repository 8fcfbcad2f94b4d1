#include "core/base/printable.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>

namespace switchyard {
namespace {

bool harmless(utf8proc_int32_t character) {
  switch (utf8proc_category(character)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CO:
      return false;
    default:
      return true;
  }
}

}  // namespace

std::string printable(std::string_view text, size_t max_bytes) {
  constexpr std::string_view kCut = "...";
  std::string out;
  size_t cut = 0;  // the longest beginning of `out` that leaves room for kCut
  while (!text.empty()) {
    utf8proc_int32_t character = 0;
    const auto n = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                    static_cast<utf8proc_ssize_t>(text.size()), &character);
    const size_t bytes = n > 0 ? static_cast<size_t>(n) : 1;
    if (n > 0 && harmless(character)) {
      out += text.substr(0, bytes);
    } else {
      for (const char c : text.substr(0, bytes)) out += fmt::format("\\x{:02X}", static_cast<unsigned char>(c));
    }
    if (out.size() + kCut.size() <= max_bytes) cut = out.size();
    if (out.size() > max_bytes) return out.substr(0, cut).append(kCut);
    text.remove_prefix(bytes);
  }
  return out;
}

}  // namespace switchyard
