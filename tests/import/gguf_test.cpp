// SPDX-License-Identifier: Apache-2.0
// GGUF files: what is read, bit for bit, and what is refused, in one line.
#include "core/import/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <functional>

#include "tests/import/gguf_file.h"
#include "tests/support/files.h"

namespace switchyard {
namespace {

using testing::GgufWriter;
using ::testing::HasSubstr;

std::string floats(size_t n) {
  std::string bytes;
  for (size_t i = 0; i < n; ++i) bytes += GgufWriter::raw(static_cast<float>(i));
  return bytes;
}

GgufWriter sample() {
  GgufWriter w;
  w.text("general.architecture", "qwen35moe").u32("a.count", 7).f32("a.rate", 0.5f).flag("a.flag", true);
  w.texts("tokens", {"x", "", "long one"}).u32s("sizes", {1, 2, 3});
  w.tensors = {{"one", {4, 3}, kGgufF32, floats(12)}, {"two", {32, 2, 2}, kGgufQ8_0, std::string(34 * 4, '\1')}};
  return w;
}

Result<GgufFile> open(const testing::TemporaryFolder& folder, const std::string& bytes,
                      const std::string& name = "m.gguf") {
  folder.write(name, bytes);
  return GgufFile::open(Os::real(), folder.path(name));
}

std::string refusal(const std::string& bytes) {
  const testing::TemporaryFolder folder;
  const auto file = open(folder, bytes);
  EXPECT_FALSE(file.ok());
  return file.ok() ? "" : file.status().message();
}

TEST(Gguf, ReadsValuesAndTensors) {
  const testing::TemporaryFolder folder;
  const auto file = open(folder, sample().file());
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->find("general.architecture")->text(), "qwen35moe");
  EXPECT_EQ(file->find("a.count")->whole(), 7u);
  EXPECT_EQ(file->find("a.rate")->number(), 0.5);
  EXPECT_EQ(file->find("a.flag")->flag(), true);
  EXPECT_EQ(file->find("a.flag")->whole(), std::nullopt);
  EXPECT_EQ(file->find("tokens")->texts(), (std::vector<std::string_view>{"x", "", "long one"}));
  EXPECT_EQ(file->find("sizes")->wholes(), (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(file->find("sizes")->texts(), std::nullopt);
  EXPECT_EQ(file->find("nothing"), nullptr);
  const GgufTensor* one = file->tensor("one");
  ASSERT_NE(one, nullptr);
  EXPECT_EQ(one->dims, (std::vector<uint64_t>{3, 4}));
  std::vector<float> row(4);
  decode_blocks(*one->block, one->bytes.subspan(one->row_bytes()), row);
  EXPECT_EQ(row, (std::vector<float>{4, 5, 6, 7}));
  const GgufTensor* two = file->tensor("two");
  EXPECT_EQ(two->dims, (std::vector<uint64_t>{2, 2, 32}));
  EXPECT_EQ(two->rows(), 4u);
  EXPECT_EQ(two->bytes.size(), 4u * 34);
}

// See tools/make_gguf_cases.py.
TEST(Gguf, BlocksStandForWhatTheFormatsOwnLibrarySays) {
  std::ifstream in(SWITCHYARD_TEST_DATA "/gguf/blocks.bin", std::ios::binary);
  const std::string all((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  size_t at = 0, types = 0;
  const auto take = [&](void* to, size_t size) {
    ASSERT_LE(size, all.size() - at);
    std::memcpy(to, all.data() + at, size);
    at += size;
  };
  for (; at < all.size(); ++types) {
    uint32_t id = 0, elements = 0, bytes = 0, count = 0;
    for (uint32_t* field : {&id, &elements, &bytes, &count}) take(field, 4);
    const auto block = gguf_block(id);
    ASSERT_TRUE(block.ok()) << block.status().message();
    ASSERT_EQ((*block)->elements, elements);
    ASSERT_EQ((*block)->bytes, bytes);
    std::vector<std::byte> blocks(size_t{count} * bytes);
    std::vector<float> want(size_t{count} * elements), got(want.size());
    take(blocks.data(), blocks.size());
    take(want.data(), want.size() * sizeof(float));
    decode_blocks(**block, blocks, got);
    for (size_t i = 0; i < want.size(); ++i) {
      if (std::isnan(want[i]) && std::isnan(got[i])) continue;
      ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i]))
          << (*block)->name << ", element " << i << ": " << got[i] << ", not " << want[i];
    }
  }
  EXPECT_EQ(types, 16u);
}

TEST(Gguf, TypesThatAreNotReadAreNamed) {
  for (const auto& [id, text] : std::vector<std::pair<uint32_t, const char*>>{{18, "type IQ3_XXS is not read"},
                                                                              {40, "type NVFP4 is not read"},
                                                                              {4, "type 4 was removed"},
                                                                              {138, "type 138 is unknown"}}) {
    EXPECT_THAT(gguf_block(id).status().message(), HasSubstr(text));
    GgufWriter w = sample();
    w.tensors[0].type = id;
    EXPECT_THAT(refusal(w.file()), HasSubstr(std::string("/m.gguf: tensor 'one': ") + text));
  }
}

TEST(Gguf, PartsAreOneModel) {
  const testing::TemporaryFolder folder;
  const auto part = [](uint16_t no, uint16_t count, const std::string& tensor) {
    GgufWriter w;
    w.u16("split.no", no).u16("split.count", count).u32("split.tensors.count", 2);
    w.tensors = {{tensor, {4}, kGgufF32, floats(4)}};
    return w.file();
  };
  const std::string first = "m-00001-of-00002.gguf", second = "m-00002-of-00002.gguf";
  EXPECT_THAT(open(folder, part(0, 2, "a"), first).status().message(), HasSubstr(second + " is missing"));
  folder.write(second, part(1, 2, "b"));
  const auto whole = open(folder, part(0, 2, "a"), first);
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  EXPECT_NE(whole->tensor("a"), nullptr);
  EXPECT_NE(whole->tensor("b"), nullptr);
  EXPECT_THAT(GgufFile::open(Os::real(), folder.path(second)).status().message(),
              HasSubstr("is part 2 of 2; name the first part"));
  EXPECT_THAT(open(folder, part(0, 2, "a"), "other.gguf").status().message(), HasSubstr("its name does not end in"));
  folder.write(second, part(1, 2, "a"));
  EXPECT_THAT(GgufFile::open(Os::real(), folder.path(first)).status().message(),
              HasSubstr("'a' is in an earlier part"));
  folder.write(second, part(0, 2, "b"));
  EXPECT_THAT(GgufFile::open(Os::real(), folder.path(first)).status().message(),
              HasSubstr("does not say that it is part 2 of 2"));
  folder.write(second, GgufWriter().u16("split.no", 1).u16("split.count", 2).file());
  EXPECT_THAT(GgufFile::open(Os::real(), folder.path(first)).status().message(),
              HasSubstr("have 1 tensors; the first says 2"));
}

// Every length of a file that is cut off ends in a refusal.
TEST(Gguf, CutFilesAreRefused) {
  const std::string whole = sample().file();
  for (size_t size = 0; size < whole.size(); ++size) {
    const testing::TemporaryFolder folder;
    ASSERT_FALSE(open(folder, whole.substr(0, size)).ok()) << size;
  }
}

// The kinds of faults that parsers of this format had, by what the file claims.
TEST(Gguf, ImpossibleClaimsAreRefused) {
  const auto with = [](const std::function<void(GgufWriter&)>& change) {
    GgufWriter w = sample();
    change(w);
    return refusal(w.file());
  };
  const auto patched = [](size_t at, auto value) {
    std::string bytes = sample().file();
    std::memcpy(bytes.data() + at, &value, sizeof value);
    return refusal(bytes);
  };
  EXPECT_THAT(refusal("GGML"), HasSubstr("is not a GGUF file"));
  EXPECT_THAT(patched(4, uint32_t{0x03000000}), HasSubstr("big-endian"));
  EXPECT_THAT(patched(4, uint32_t{1}), HasSubstr("version 1 of GGUF"));
  EXPECT_THAT(patched(8, ~uint64_t{0}), HasSubstr("cannot hold"));
  EXPECT_THAT(patched(16, uint64_t{1} << 62), HasSubstr("cannot hold"));
  EXPECT_THAT(patched(24, ~uint64_t{0}), HasSubstr("cut off or has an impossible length"));
  GgufWriter many;  // an entry takes several times the memory that it takes in the file
  for (uint32_t i = 0; i <= 65536; ++i) many.add(std::to_string(i), 0, "x");
  EXPECT_THAT(refusal(many.file()), HasSubstr("has 65537 values and 0 tensors; at most 65536"));
  EXPECT_THAT(with([](auto& w) { w.u32("a.count", 8); }), HasSubstr("the value 'a.count' is there twice"));
  EXPECT_THAT(with([](auto& w) { w.add("x", 13, ""); }), HasSubstr("unknown type 13"));
  EXPECT_THAT(with([](auto& w) { w.add("x", 9, w.raw(uint32_t{9}) + w.raw(uint64_t{0})); }),
              HasSubstr("an array of type 9"));
  EXPECT_THAT(with([](auto& w) { w.add("x", 9, w.raw(uint32_t{4}) + w.raw(uint64_t{1} << 62)); }),
              HasSubstr("impossible length"));
  EXPECT_THAT(with([](auto& w) { w.add("x", 9, w.raw(uint32_t{8}) + w.raw(uint64_t{1}) + w.raw(~uint64_t{0})); }),
              HasSubstr("impossible length"));
  for (const uint32_t alignment : {0u, 3u, 1u << 21}) {
    EXPECT_THAT(with([&](auto& w) { w.u32("general.alignment", alignment); }), HasSubstr("a power of two"));
  }
  EXPECT_THAT(with([](auto& w) { w.tensors[1].name = "one"; }), HasSubstr("tensor 'one' is there twice"));
  EXPECT_THAT(with([](auto& w) { w.tensors[0].dims = {}; }), HasSubstr("has 0 dimensions"));
  EXPECT_THAT(with([](auto& w) { w.tensors[0].dims = {1, 1, 1, 1, 1}; }), HasSubstr("has 5 dimensions"));
  EXPECT_THAT(with([](auto& w) { w.tensors[0].dims = {0, 3}; }), HasSubstr("impossible dimension 0"));
  EXPECT_THAT(with([](auto& w) { w.tensors[0].dims = {uint64_t{1} << 63}; }), HasSubstr("impossible dimension"));
  EXPECT_THAT(with([](auto& w) {
                w.tensors[0].dims = {uint64_t{1} << 32, uint64_t{1} << 32};
              }),
              HasSubstr("impossible dimension"));
  EXPECT_THAT(with([](auto& w) { w.tensors[0].dims = {4, 3000}; }), HasSubstr("is the file complete?"));
  EXPECT_THAT(with([](auto& w) { w.tensors[0].dims = {uint64_t{1} << 47}; }), HasSubstr("is the file complete?"));
  EXPECT_THAT(with([](auto& w) { w.tensors[1].dims = {33, 2}; }), HasSubstr("blocks of 32 (Q8_0) do not fill"));
  EXPECT_THAT(with([](auto& w) { w.tensors[0].dims = {4, 5}; }), HasSubstr("'one' and 'two' overlap"));
  EXPECT_THAT(with([](auto& w) { w.tensors[0].name = std::string(300, 'n'); }), HasSubstr("impossible length"));
  EXPECT_THAT(with([](auto& w) {
                w.tensors[0].name = "\x1b[2J";
                w.tensors[0].dims = {0};
              }),
              HasSubstr("\\x1B[2J"));
}

}  // namespace
}  // namespace switchyard
