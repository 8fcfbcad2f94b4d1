// SPDX-License-Identifier: Apache-2.0
// The file of schema version 1, as it was first written. It must load forever.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "tests/program/sample.h"

namespace switchyard {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

const std::string kGolden = SWITCHYARD_GOLDEN "/program-v1.swy";

TEST(Golden, Version1Loads) {
  const auto program = Program::load(Os::real(), kGolden);
  ASSERT_TRUE(program.ok()) << program.status().message();
  EXPECT_EQ(1u, program->schema_version);
  EXPECT_TRUE(program->verify_weights().ok());
  EXPECT_EQ("main", program->main().name);
  uint32_t dtypes = 0;
  for (const Tensor& tensor : program->tensors) dtypes |= SWY_DTYPE_BIT(tensor.dtype);
  EXPECT_EQ(SWY_DTYPE_BIT(SWY_F32) | SWY_DTYPE_BIT(SWY_BF16) | SWY_DTYPE_BIT(SWY_I8) | SWY_DTYPE_BIT(SWY_I4) |
                SWY_DTYPE_BIT(SWY_I4A),
            dtypes);
}

void write(const std::string& path, const std::vector<std::byte>& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

void expect_file(const std::string& path, const std::vector<std::byte>& now) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> recorded((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  ASSERT_EQ(recorded.size(), now.size()) << path;
  EXPECT_EQ(0, std::memcmp(recorded.data(), now.data(), now.size())) << path;
  EXPECT_LT(now.size(), 64u << 10);
}

// Until the freeze, a change of the format re-records the file, and the fuzzer's first inputs with it:
// SWITCHYARD_RECORD=1 program_test --gtest_filter='Golden.*'
TEST(Golden, Version1IsWhatTheWriterGives) {
  const auto now = file_of(sample_spec());
  if (std::getenv("SWITCHYARD_RECORD") != nullptr) {
    write(kGolden, now);
    write(SWITCHYARD_CORPUS "/sample.swy", now);
    write(SWITCHYARD_CORPUS "/tiny.swy", file_of(tiny_spec()));
    write(SWITCHYARD_RUN_CORPUS "/sample.swy", now);
    write(SWITCHYARD_RUN_CORPUS "/pieces.swy", file_of(pieces_spec()));
    write(SWITCHYARD_RUN_CORPUS "/tiny.swy", file_of(tiny_spec()));
    write(SWITCHYARD_CORPUS "/revisions.swy", file_of(revisions_spec()));
    write(SWITCHYARD_RUN_CORPUS "/revisions.swy", file_of(revisions_spec()));
    write(SWITCHYARD_CORPUS "/named.swy", file_of(named_spec()));
    write(SWITCHYARD_RUN_CORPUS "/named.swy", file_of(named_spec()));
  }
  expect_file(kGolden, now);
  expect_file(SWITCHYARD_RUN_CORPUS "/named.swy", file_of(named_spec()));
  expect_file(SWITCHYARD_RUN_CORPUS "/revisions.swy", file_of(revisions_spec()));
}

}  // namespace
}  // namespace switchyard
