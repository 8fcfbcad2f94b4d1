// SPDX-License-Identifier: Apache-2.0
// Damaged and foreign files: each is refused in one line that says what is wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "core/program/file_header.h"
#include "core/program/verify.h"
#include "program_generated.h"
#include "tests/program/sample.h"

namespace switchyard {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

void expect_refused(std::vector<std::byte> file, Code code, const std::string& part) {
  const auto program = parse(std::move(file));
  ASSERT_FALSE(program.ok()) << "expected: " << part;
  EXPECT_EQ(code, program.status().code());
  EXPECT_NE(std::string::npos, program.status().message().find(part)) << program.status().message();
  EXPECT_EQ(std::string::npos, program.status().message().find('\n'));
}

template <class T>
void put(std::vector<std::byte>& file, size_t at, T value) {
  std::memcpy(file.data() + at, &value, sizeof value);
}

size_t description_end(const std::vector<std::byte>& file) {
  uint64_t bytes = 0;
  std::memcpy(&bytes, file.data() + 16, sizeof bytes);
  return kHeaderBytes + bytes;
}

TEST(Format, EveryFlippedBitOfTheDescriptionIsFound) {
  const auto file = file_of(sample_spec());
  const size_t end = description_end(file);
  for (size_t at = 0; at < end; ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      auto bad = file;
      bad[at] ^= static_cast<std::byte>(1 << bit);
      ASSERT_FALSE(parse(std::move(bad)).ok()) << "byte " << at << " bit " << bit;
    }
  }
}

// A segment that ends within the 64 bytes in which the next one begins shares up to 63 bytes with it.
TEST(Format, SegmentsShareNoByte) {
  const auto file = file_of(sample_spec());
  auto program = parse(file);
  ASSERT_TRUE(program.ok()) << program.status().message();
  ASSERT_TRUE(verify_program(*program, file.size()).ok());
  std::vector<Segment*> order;
  for (Segment& s : program->segments) order.push_back(&s);
  std::sort(order.begin(), order.end(), [](const Segment* a, const Segment* b) { return a->offset < b->offset; });
  size_t tried = 0;
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    const uint64_t end = order[i]->offset + order[i]->bytes, was = order[i + 1]->offset;
    if (end % kSegmentAlignment == 0) continue;
    order[i + 1]->offset = end / kSegmentAlignment * kSegmentAlignment;
    const Status shared = verify_program(*program, file.size());
    EXPECT_NE(shared.message().find(" overlap"), std::string::npos) << end % kSegmentAlignment << shared.message();
    order[i + 1]->offset = was;
    ++tried;
  }
  EXPECT_GT(tried, 5u);
  const uint64_t end = order.back()->offset + order.back()->bytes;  // in a file that ends before
  EXPECT_NE(verify_program(*program, end - 1).message().find(" lies outside"), std::string::npos);
}

TEST(Format, EveryTruncationIsFound) {
  const auto file = file_of(sample_spec());
  const size_t end = description_end(file);
  for (size_t size = 0; size < file.size(); size += size < end + 256 ? 1 : 61) {
    ASSERT_FALSE(parse({file.begin(), file.begin() + static_cast<ptrdiff_t>(size)}).ok()) << size;
  }
  expect_refused({file.begin(), file.end() - 1}, Code::invalid_data, "truncated");
  expect_refused({file.begin(), file.begin() + 40}, Code::invalid_data, "less than its header");
  auto longer = file;
  longer.push_back(std::byte{0});
  expect_refused(longer, Code::invalid_data, "damaged");
}

TEST(Format, ForeignFilesAreNamedAsSuch) {
  expect_refused({}, Code::invalid_data, "empty");
  expect_refused(bytes_of("Once upon a time"), Code::invalid_data, "not a switchyard program");
  expect_refused(bytes_of("x"), Code::invalid_data, "not a switchyard program");
  std::string elf =
      "\x7f"
      "ELF\x02\x01\x01";
  elf.resize(4096);
  expect_refused(bytes_of(elf), Code::invalid_data, "not a switchyard program");
  std::string safetensors = "\x40";  // the header's size, then the header
  safetensors.resize(8);
  safetensors += "{\"a\":{\"dtype\":\"F32\"";
  safetensors.resize(4096, ' ');
  expect_refused(bytes_of(safetensors), Code::invalid_data, "switchyard convert");
  std::string zeros(4096, '\0');
  expect_refused(bytes_of(zeros), Code::invalid_data, "not a switchyard program");
}

TEST(Format, LoadNamesThePath) {
  MemoryOs os;
  os.files["a/b.swy"] = bytes_of("text");
  const auto program = Program::load(os, "a/b.swy");
  EXPECT_EQ(0u, program.status().message().find("a/b.swy: "));
  EXPECT_EQ(Code::not_found, Program::load(os, "none.swy").status().code());
}

TEST(Format, HeadersThatLie) {
  const auto file = file_of(sample_spec());
  const auto with = [&](size_t at, auto value) {
    auto bad = file;
    put(bad, at, value);
    return bad;
  };
  expect_refused(with(8, uint32_t{2}), Code::unsupported, "file version 2 is newer than version 1");
  expect_refused(with(8, uint32_t{0}), Code::invalid_data, "header is damaged");
  expect_refused(with(12, uint32_t{128}), Code::invalid_data, "header is damaged");
  expect_refused(with(16, uint64_t{file.size()}), Code::invalid_data, "header is damaged");
  expect_refused(with(16, UINT64_MAX), Code::invalid_data, "header is damaged");
  expect_refused(with(24, UINT64_MAX), Code::invalid_data, "truncated");
  expect_refused(with(56, uint64_t{1}), Code::invalid_data, "checksum differs");
}

// Changes the description of a good file and fixes its checksums: only the rules can refuse it.
template <class Change>
std::vector<std::byte> changed(const Change& change) {
  auto file = file_of(sample_spec());
  change(*fb::GetMutableProgram(file.data() + kHeaderBytes));
  seal(file);
  return file;
}

fb::Segment& segment(fb::Program& p, uint32_t tensor) {
  return *p.mutable_tensors()->GetMutableObject(tensor)->mutable_segments()->GetMutableObject(0);
}

TEST(Format, SegmentsOutOfPlace) {
  const auto file = file_of(sample_spec());
  const auto at = [](uint64_t offset) { return changed([=](fb::Program& p) { segment(p, 0).mutate_offset(offset); }); };
  expect_refused(at(64), Code::invalid_data, "outside the weights");
  expect_refused(at((file.size() + 63) / 64 * 64), Code::invalid_data, "outside the weights");
  expect_refused(at(UINT64_MAX - 63), Code::invalid_data, "outside the weights");
  expect_refused(at(4097), Code::invalid_data, "no multiple of 64");
  const auto overlapping = changed([](fb::Program& p) { segment(p, 0).mutate_offset(segment(p, 1).offset()); });
  expect_refused(overlapping, Code::invalid_data, "overlap");
  const auto longer = changed([](fb::Program& p) { segment(p, 0).mutate_bytes(segment(p, 0).bytes() + 1); });
  expect_refused(longer, Code::invalid_data, "its shape and encoding take");
  const auto huge = changed([](fb::Program& p) { segment(p, 0).mutate_bytes(UINT64_MAX); });
  expect_refused(huge, Code::invalid_data, "its shape and encoding take");
}

TEST(Format, DimensionsThatOverflow) {
  for (const uint64_t dim : {uint64_t{0}, UINT64_MAX, uint64_t{1} << 63, uint64_t{1} << 33}) {
    auto file = changed([=](fb::Program& p) {
      auto* dims = const_cast<flatbuffers::Vector<uint64_t>*>(p.mutable_tensors()->GetMutableObject(0)->dims());
      dims->Mutate(0, dim);
      dims->Mutate(1, dim);
    });
    expect_refused(file, Code::invalid_data, "not a weight");
    file = changed([=](fb::Program& p) {
      auto* dims = const_cast<flatbuffers::Vector<uint64_t>*>(p.mutable_states()->GetMutableObject(0)->dims());
      dims->Mutate(0, dim);
      dims->Mutate(1, dim);
    });
    expect_refused(file, Code::invalid_data, "impossible shape");
  }
}

// A file around any bytes, with a valid header and checksum.
std::vector<std::byte> wrap(std::span<const uint8_t> flatbuffer) {
  const auto bytes = std::as_bytes(flatbuffer);
  const HeaderBytes header = make_header(bytes, kHeaderBytes + bytes.size());
  std::vector<std::byte> file(kHeaderBytes + bytes.size());
  std::copy(header.begin(), header.end(), file.begin());
  std::copy(bytes.begin(), bytes.end(), file.begin() + kHeaderBytes);
  return file;
}

TEST(Format, ADescriptionThatIsNone) {
  expect_refused(wrap({}), Code::invalid_data, "no 'SWYP' mark");
  const std::vector<uint8_t> noise(4096, 0x5a);
  expect_refused(wrap(noise), Code::invalid_data, "no 'SWYP' mark");
  auto marked = noise;
  std::memcpy(marked.data() + 4, "SWYP", 4);
  expect_refused(wrap(marked), Code::invalid_data, "malformed");
  for (const size_t size : {1u, 4u, 8u, 12u, 15u})
    expect_refused(wrap(std::span(marked).first(size)), Code::invalid_data, "SWYP");
}

// One table listed many times: small in the file, huge in memory.
TEST(Format, SharedTablesCannotUseUpMemory) {
  flatbuffers::FlatBufferBuilder b;
  const auto op = fb::CreateOp(b, SWY_OP_ADD, 1);
  const auto ops = b.CreateVector(std::vector(300000, op));
  const auto values = b.CreateVector(std::vector<flatbuffers::Offset<fb::Value>>());
  const auto function =
      fb::CreateFunction(b, b.CreateString("main"), values, ops, 0, b.CreateVector(std::vector<uint32_t>()));
  b.Finish(fb::CreateProgram(b, 1, 0, b.CreateVector(std::vector{function})), fb::ProgramIdentifier());
  expect_refused(wrap({b.GetBufferPointer(), b.GetSize()}), Code::invalid_data, "more than twice");
}

TEST(Format, SharedFunctionsAreBounded) {
  flatbuffers::FlatBufferBuilder b;
  const auto op = fb::CreateOp(b, SWY_OP_ADD, 1);
  const auto ops = b.CreateVector(std::vector(3000, op));
  const auto values = b.CreateVector(std::vector<flatbuffers::Offset<fb::Value>>());
  const auto function =
      fb::CreateFunction(b, b.CreateString("main"), values, ops, 0, b.CreateVector(std::vector<uint32_t>()));
  b.Finish(fb::CreateProgram(b, 1, 0, b.CreateVector(std::vector(3000, function))), fb::ProgramIdentifier());
  expect_refused(wrap({b.GetBufferPointer(), b.GetSize()}), Code::invalid_data, "malformed");
}

TEST(Format, AnEmptyProgramHasNoMainFunction) {
  flatbuffers::FlatBufferBuilder b;
  b.Finish(fb::CreateProgram(b, 1, 0, b.CreateVector(std::vector<flatbuffers::Offset<fb::Function>>())),
           fb::ProgramIdentifier());
  expect_refused(wrap({b.GetBufferPointer(), b.GetSize()}), Code::invalid_data, "no function");
}

}  // namespace
}  // namespace switchyard
