// SPDX-License-Identifier: Apache-2.0
// IdRanges: some token ids, rising. Those of the shortlist of a multi-token prediction layer, whose head has a row for
// each of them in this order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace switchyard {

// In a program's metadata: the ids of the layer's logits. Without it these are the whole vocabulary.
inline constexpr std::string_view kShortlistKey = "mtp.shortlist";

class IdRanges {
 public:
  struct Range {
    uint32_t first = 0, count = 0;
  };

  static IdRanges of(std::vector<uint32_t> ids);  // in any order, also several times
  // "0-98303 248044-248069 248077". Errors: invalid_data, for anything else, ids that do not rise, and those that are
  // not below `vocab`.
  static Result<IdRanges> parse(std::string_view text, uint32_t vocab);
  std::string text() const;

  bool empty() const { return ranges_.empty(); }
  uint32_t count() const;
  uint32_t end() const { return empty() ? 0 : ranges_.back().first + ranges_.back().count; }  // the largest id + 1
  const std::vector<Range>& ranges() const { return ranges_; }

 private:
  std::vector<Range> ranges_;
};

}  // namespace switchyard
