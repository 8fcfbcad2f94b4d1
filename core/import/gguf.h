// SPDX-License-Identifier: Apache-2.0
// GGUF: the model files of llama.cpp, one file or several parts, mapped and never copied whole. Versions 2 and 3,
// little endian (ggml-org/ggml, docs/gguf.md).
//
// Files are untrusted: every count, length, product, offset and alignment is checked against the real file before
// anything is allocated or read by it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/os.h"
#include "core/base/status.h"
#include "core/import/gguf_blocks.h"

namespace switchyard {

// A value of the metadata. Texts and arrays point into the file.
class GgufValue {
 public:
  enum class Type : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, text, array, u64, i64, f64 };

  Type type = Type::u8;
  Type element = Type::u8;               // of an array
  uint64_t count = 1;                    // elements of an array
  std::span<const std::byte> data = {};  // the value; of an array, its elements; of a text, its bytes

  // Nothing, where the value is of another kind or out of range.
  std::optional<uint64_t> whole() const;  // any integer that is not negative
  std::optional<double> number() const;   // any number
  std::optional<bool> flag() const;
  std::optional<std::string_view> text() const;
  // The elements of an array; nothing where one is of another kind.
  std::optional<std::vector<uint64_t>> wholes() const;
  std::optional<std::vector<std::string_view>> texts() const;
  std::optional<std::vector<bool>> flags() const;

  std::string describe() const;  // for people: short, and safe to print
};

struct GgufTensor {
  std::string name;
  const GgufBlock* block = nullptr;  // how its elements are stored
  std::vector<uint64_t> dims;        // slowest first, as in all of Switchyard: [experts, out, in]
  std::span<const std::byte> bytes;  // rows of blocks, row-major
  const MappedFile* file = nullptr;
  uint64_t file_offset = 0;

  uint64_t width() const { return dims.back(); }
  uint64_t rows() const;
  uint64_t row_bytes() const { return width() / block->elements * block->bytes; }
};

class GgufFile {
 public:
  // Opens `path`, and the other parts where it is the first of several ("NAME-00001-of-00003.gguf"). Errors: not_found,
  // naming the part; invalid_data, naming what is wrong and where; unsupported, for a version, a byte order or a type
  // of blocks that is not read.
  static Result<GgufFile> open(Os& os, const std::string& path);

  // One part by itself; messages call it `path`.
  static Result<GgufFile> parse(const std::string& path, std::unique_ptr<MappedFile> file);

  uint32_t version() const { return version_; }
  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  const GgufValue* find(std::string_view key) const;
  const std::vector<GgufTensor>& tensors() const { return tensors_; }  // in the order of the files
  const GgufTensor* tensor(std::string_view name) const;
  uint64_t bytes() const;  // of all parts

 private:
  struct Reader;

  Status take_part(Os& os, const std::string& first, uint64_t part, uint64_t parts);

  uint32_t version_ = 0;
  std::vector<std::unique_ptr<MappedFile>> files_;
  std::map<std::string, GgufValue, std::less<>> metadata_;  // of the first part
  std::vector<GgufTensor> tensors_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

}  // namespace switchyard
