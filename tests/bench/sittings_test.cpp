// SPDX-License-Identifier: Apache-2.0
// Which processes are loaded together.
#include "cli/bench_sittings.h"

#include <gtest/gtest.h>

namespace switchyard::cli {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

ProcessNeed need(uint64_t weights, const std::string& device = "") { return {weights, 0, device.empty(), device}; }

std::vector<std::vector<size_t>> processes(const std::vector<Sitting>& sittings) {
  std::vector<std::vector<size_t>> all;
  for (const Sitting& s : sittings) all.push_back(s.processes);
  return all;
}

TEST(Sittings, AllTogetherWhereTheyFit) {
  const auto s = sittings_of({need(2 * kGiB), need(2 * kGiB)}, {{"", 8 * kGiB}}, 2);
  EXPECT_EQ(processes(s), (std::vector<std::vector<size_t>>{{0, 1}, {0, 1}}));
  EXPECT_TRUE(s[0].first && !s[0].last && !s[1].first && s[1].last);
}

TEST(Sittings, OneAtATimeWhereTheyDoNot) {
  const auto s = sittings_of({need(5 * kGiB), need(5 * kGiB)}, {{"", 8 * kGiB}}, 1);
  EXPECT_EQ(processes(s), (std::vector<std::vector<size_t>>{{0}, {1}, {1}, {0}})) << "A B B A";
  EXPECT_TRUE(s[1].stays && !s[2].stays) << "B is loaded once";
  EXPECT_TRUE(s[0].first && s[3].last && s[1].first && s[2].last);
}

TEST(Sittings, DevicesHaveRoomOfTheirOwn) {
  const std::vector<DeviceRoom> room = {{"", 8 * kGiB}, {"cuda:0", 6 * kGiB}};
  EXPECT_EQ(sittings_of({need(5 * kGiB), need(4 * kGiB, "cuda:0")}, room, 1).size(), 1u);
  EXPECT_EQ(sittings_of({need(3 * kGiB, "cuda:0"), need(4 * kGiB, "cuda:0")}, room, 1).size(), 4u);
}

TEST(Sittings, OneProcessIsTriedWhateverItTakes) {
  EXPECT_EQ(sittings_of({need(50 * kGiB)}, {{"", 8 * kGiB}}, 1).size(), 1u);
}

}  // namespace
}  // namespace switchyard::cli
