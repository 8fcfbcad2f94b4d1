// SPDX-License-Identifier: Apache-2.0
// Writing in pieces, in the wrong order, and with an operating system that fails.
#include "core/program/writer.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "switchyard/weights.h"
#include "tests/program/sample.h"

namespace switchyard {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

constexpr const char* kPath = "out.swy";

// Writes the sample with each segment in pieces of `step` bytes.
Status write_sample(Os& os, const std::string& path, size_t step) {
  const ProgramSpec spec = sample_spec();
  const Program plan = *parse(unchecked_file_of(spec));
  SWY_LET(ProgramWriter writer, ProgramWriter::create(os, path, spec));
  for (size_t t = 0; t < plan.tensors.size(); ++t) {
    for (size_t s = 0; s < plan.tensors[t].segments.size(); ++s) {
      const auto bytes = sample_bytes(t + s, plan.tensors[t].segments[s].bytes);
      SWY_TRY(writer.begin_segment(t, s));
      for (size_t at = 0; at < bytes.size(); at += step) {
        SWY_TRY(writer.append(std::span(bytes).subspan(at, std::min(step, bytes.size() - at))));
      }
      SWY_TRY(writer.end_segment());
    }
  }
  return writer.finish();
}

TEST(Writer, PiecesMakeTheSameFile) {
  const auto whole = file_of(sample_spec());
  for (const size_t step : {size_t{1}, size_t{7}, size_t{64}, size_t{100000}}) {
    MemoryOs os;
    ASSERT_TRUE(write_sample(os, kPath, step).ok());
    EXPECT_EQ(whole, os.files[kPath]);
  }
}

TEST(Writer, FileBytesAreKnownFromTheStart) {
  MemoryOs os;
  const auto writer = ProgramWriter::create(os, kPath, sample_spec());
  ASSERT_TRUE(writer.ok());
  EXPECT_EQ(file_of(sample_spec()).size(), writer->file_bytes());
}

TEST(Writer, PadsPlanesAndEnds) {
  ProgramSpec spec = sample_spec();
  MemoryOs os;
  auto writer = ProgramWriter::create(os, kPath, spec);
  ASSERT_TRUE(writer.ok());
  const Program plan = *parse(unchecked_file_of(spec));
  const swy_tensor shape = describe(plan.tensors[0]);  // [50, 40] of i4 in groups of 32
  swy_weight_planes p;
  ASSERT_EQ(0, swy_weight_planes_of(&shape, &p));
  const std::vector<std::byte> quants(p.rows * p.row_bytes, std::byte{0x11});
  const std::vector<std::byte> scales(p.rows * p.groups * 2, std::byte{0x22});
  ASSERT_TRUE(writer->begin_segment(0).ok());
  ASSERT_TRUE(writer->append(quants).ok());
  ASSERT_TRUE(writer->pad_to(p.scales).ok());
  EXPECT_EQ(Code::internal, writer->pad_to(0).code());
  ASSERT_TRUE(writer->append(scales).ok());
  ASSERT_TRUE(writer->end_segment().ok());
  for (size_t t = 1; t < plan.tensors.size(); ++t) {
    for (size_t s = 0; s < plan.tensors[t].segments.size(); ++s) {
      ASSERT_TRUE(writer->write_segment(t, sample_bytes(t, plan.tensors[t].segments[s].bytes), s).ok());
    }
  }
  ASSERT_TRUE(writer->finish().ok());
  const Program program = *parse(os.files[kPath]);
  EXPECT_TRUE(program.verify_weights().ok());
  EXPECT_EQ(std::byte{0x22}, program.segment_bytes(program.tensors[0])[p.scales]);
}

TEST(Writer, WrongOrdersAreRefused) {
  MemoryOs os;
  auto writer = ProgramWriter::create(os, kPath, sample_spec());
  ASSERT_TRUE(writer.ok());
  EXPECT_EQ(Code::internal, writer->append(sample_bytes(0, 1)).code());
  EXPECT_EQ(Code::internal, writer->end_segment().code());
  EXPECT_EQ(Code::internal, writer->begin_segment(1).code());
  EXPECT_EQ(Code::internal, writer->begin_segment(0, 1).code());
  EXPECT_EQ(Code::internal, writer->finish().code());
  ASSERT_TRUE(writer->begin_segment(0).ok());
  EXPECT_EQ(Code::internal, writer->begin_segment(0).code());
  EXPECT_EQ(Code::internal, writer->end_segment().code());
  EXPECT_EQ(Code::internal, writer->append(sample_bytes(0, 100000)).code());
  EXPECT_EQ(Code::internal, writer->finish().code());
  EXPECT_TRUE(os.files.empty());
}

// The padding of a segment's last plane may be left to the writer, and that is less than 64 bytes.
TEST(Writer, ASegmentMayLackItsPaddingAlone) {
  const ProgramSpec spec = sample_spec();
  for (const uint64_t missing : {63u, 64u}) {
    MemoryOs os;
    auto writer = ProgramWriter::create(os, "x.swy", spec);
    ASSERT_TRUE(writer.ok()) << writer.status().message();
    const auto program = parse(file_of(spec));
    ASSERT_TRUE(program.ok());
    const uint64_t bytes = program->tensors[0].segments[0].bytes;
    ASSERT_GT(bytes, missing);
    ASSERT_TRUE(writer->begin_segment(0, 0).ok());
    ASSERT_TRUE(writer->append(sample_bytes(0, bytes - missing)).ok());
    EXPECT_EQ(writer->end_segment().ok(), missing == 63);
  }
}

TEST(Writer, ABadSpecIsRefusedBeforeTheFileExists) {
  MemoryOs os;
  os.fail_create = true;  // would be reported if the spec were not refused first
  ProgramSpec spec = sample_spec();
  find_op_in(spec, 0, SWY_OP_ADD).inputs[0] = 1000;
  EXPECT_EQ(Code::invalid_data, ProgramWriter::create(os, kPath, spec).status().code());
  spec = sample_spec();
  spec.tensors[0].dtype = SWY_I32;
  const Status status = ProgramWriter::create(os, kPath, spec).status();
  EXPECT_NE(std::string::npos, status.message().find("'embed'")) << status.message();
  spec = sample_spec();
  spec.tensors[0].dims = {uint64_t{1} << 55, 2};
  spec.tensors[1].dims = {uint64_t{1} << 55};
  EXPECT_EQ(Code::invalid_data, ProgramWriter::create(os, kPath, spec).status().code());
}

TEST(Writer, AFullDiskLeavesNothing) {
  const uint64_t size = file_of(sample_spec()).size();
  for (uint64_t capacity = 0; capacity < size; capacity += 97) {
    MemoryOs os;
    os.capacity = capacity;
    EXPECT_EQ(Code::io, write_sample(os, kPath, 64).code()) << capacity;
    EXPECT_TRUE(os.files.empty());
  }
}

TEST(Writer, EveryRefusalOfTheSystemIsReported) {
  for (bool MemoryOs::*fault : {&MemoryOs::fail_create, &MemoryOs::fail_write_at, &MemoryOs::fail_commit}) {
    MemoryOs os;
    os.*fault = true;
    EXPECT_EQ(Code::io, write_sample(os, kPath, 4096).code());
    EXPECT_TRUE(os.files.empty());
  }
}

TEST(Writer, OnARealDisk) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "swy_writer_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "m.swy").string();
  {
    auto writer = ProgramWriter::create(Os::real(), path, sample_spec());
    ASSERT_TRUE(writer.ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder));  // an unfinished writer leaves nothing
  ASSERT_TRUE(write_sample(Os::real(), path, 4096).ok());
  const auto program = Program::load(Os::real(), path);
  ASSERT_TRUE(program.ok()) << program.status().message();
  EXPECT_TRUE(program->verify_weights().ok());
  EXPECT_EQ(Code::not_found, write_sample(Os::real(), (folder / "m.swy" / "x.swy").string(), 64).code());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace switchyard
