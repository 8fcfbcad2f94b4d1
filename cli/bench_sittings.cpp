// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_sittings.h"

#include <numeric>

namespace switchyard::cli {
namespace {

bool fit_together(const std::vector<ProcessNeed>& needs, const std::vector<DeviceRoom>& room) {
  for (const DeviceRoom& r : room) {
    uint64_t all = 0;
    for (const ProcessNeed& n : needs) {
      if (r.device.empty()) all += n.host_bytes();
      if (!r.device.empty() && n.device == r.device) all += n.device_bytes();
    }
    if (r.free_bytes != 0 && all > r.free_bytes / 10 * 9) return false;
  }
  return true;
}

}  // namespace

std::vector<Sitting> sittings_of(const std::vector<ProcessNeed>& needs, const std::vector<DeviceRoom>& room,
                                 uint32_t starts) {
  std::vector<size_t> all(needs.size());
  std::iota(all.begin(), all.end(), 0);
  std::vector<Sitting> sittings;
  if (needs.size() == 1 || fit_together(needs, room)) {
    for (uint32_t s = 0; s < starts; ++s) sittings.push_back({all, s, starts, s == 0, s + 1 == starts, false});
    return sittings;
  }
  for (const size_t p : all) sittings.push_back({{p}, 0, 2, true, false, false});
  for (auto p = all.rbegin(); p != all.rend(); ++p) sittings.push_back({{*p}, 1, 2, false, true, false});
  sittings[all.size() - 1].stays = true;
  return sittings;
}

}  // namespace switchyard::cli
