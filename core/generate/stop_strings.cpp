// SPDX-License-Identifier: Apache-2.0
#include "core/generate/stop_strings.h"

#include <algorithm>

namespace switchyard {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& s) { return s.empty(); });
}

std::string StopStrings::push(std::string_view part) {
  if (stopped_) return {};
  held_ += part;
  size_t shown = held_.size(), end = std::string::npos;
  for (const std::string& stop : stops_) {  // the one that is complete first, however the text was cut
    const size_t at = held_.find(stop);
    if (at == std::string::npos || at + stop.size() > end || (at + stop.size() == end && at > shown)) continue;
    shown = at;
    end = at + stop.size();
    stopped_ = true;
  }
  if (!stopped_) {  // the longest end of the text that some stop string begins with stays
    for (const std::string& stop : stops_) {
      for (size_t n = std::min(stop.size() - 1, held_.size()); n > held_.size() - shown; --n) {
        if (held_.compare(held_.size() - n, n, stop, 0, n) == 0) {
          shown = held_.size() - n;
          break;
        }
      }
    }
  }
  std::string out = held_.substr(0, shown);
  held_.erase(0, shown);
  return out;
}

std::string StopStrings::flush() {
  std::string out;
  if (!stopped_) out.swap(held_);
  return out;
}

}  // namespace switchyard
