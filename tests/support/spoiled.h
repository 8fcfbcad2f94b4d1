// SPDX-License-Identifier: Apache-2.0
// A model that guesses less well than the one it is made of: with other bytes in some weights of its experts.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "core/program/program.h"
#include "tests/support/files.h"

namespace switchyard {

inline std::string spoiled(const testing::TemporaryFolder& folder, const std::string& model) {
  std::string bytes = testing::read_file(model);
  const auto program = Program::load(Os::real(), model);
  EXPECT_TRUE(program.ok()) << program.status().message();
  std::mt19937 random(5);
  size_t changed = 0;
  for (const Tensor& t : program->tensors) {
    if (std::string(t.name).find("gate_up") == std::string::npos) continue;
    const Segment& s = t.segments[0];
    // The low bits of some pairs of bytes, so that no element of any encoding becomes infinite.
    for (size_t i = 0; i < s.bytes / 2; i += 2 * (1 + random() % 20)) {
      bytes[s.offset + i] ^= static_cast<char>(random() % 128);
    }
    ++changed;
  }
  EXPECT_GT(changed, 0u);
  return folder.write("spoiled.swy", bytes);
}

}  // namespace switchyard
