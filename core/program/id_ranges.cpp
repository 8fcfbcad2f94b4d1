// SPDX-License-Identifier: Apache-2.0
#include "core/program/id_ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/base/printable.h"

namespace switchyard {

IdRanges IdRanges::of(std::vector<uint32_t> ids) {
  std::sort(ids.begin(), ids.end());
  IdRanges out;
  for (const uint32_t id : ids) {
    if (!out.empty() && id < out.end()) continue;
    if (!out.empty() && id == out.end()) {
      ++out.ranges_.back().count;
    } else {
      out.ranges_.push_back({id, 1});
    }
  }
  return out;
}

Result<IdRanges> IdRanges::parse(std::string_view text, uint32_t vocab) {
  IdRanges out;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&](uint32_t& to) {
    const auto [next, ec] = std::from_chars(at, end, to);
    at = next;
    return ec == std::errc() && to < vocab;
  };
  while (at != end) {
    uint32_t first = 0, last = 0;
    bool good = number(first);
    last = first;
    if (good && at != end && *at == '-') good = (++at, number(last));
    good = good && last >= first && (out.empty() || first >= out.end()) && (at == end || *at++ == ' ');
    if (!good) {
      const auto offset = static_cast<size_t>(at - text.data());
      return error(Code::invalid_data, "the shortlist '{}' has no rising token ids below {} at byte {}",
                   printable(text.substr(0, 40)), vocab, offset);
    }
    out.ranges_.push_back({first, last - first + 1});
  }
  return out;
}

std::string IdRanges::text() const {
  std::string out;
  for (const Range& r : ranges_) {
    if (!out.empty()) out += ' ';
    out += r.count == 1 ? fmt::format("{}", r.first) : fmt::format("{}-{}", r.first, r.first + r.count - 1);
  }
  return out;
}

uint32_t IdRanges::count() const {
  uint32_t n = 0;
  for (const Range& r : ranges_) n += r.count;
  return n;
}

}  // namespace switchyard
