// SPDX-License-Identifier: Apache-2.0
#include "core/serve/job.h"

#include <algorithm>

namespace switchyard {

bool before(const Job& a, const Job& b) {
  if (a.request.priority != b.request.priority) return a.request.priority > b.request.priority;
  return a.order < b.order;
}

std::vector<int32_t> Job::part(size_t from, size_t to) const {
  std::vector<int32_t> tokens;
  tokens.reserve(to - from);
  size_t begin = 0;  // of the list, in the whole text
  for (const auto* list : {&request.history, &request.prompt, &ids}) {
    const size_t first = std::clamp(from, begin, begin + list->size()) - begin;
    const size_t last = std::clamp(to, begin, begin + list->size()) - begin;
    tokens.insert(tokens.end(), list->begin() + static_cast<ptrdiff_t>(first),
                  list->begin() + static_cast<ptrdiff_t>(last));
    begin += list->size();
  }
  return tokens;
}

}  // namespace switchyard
