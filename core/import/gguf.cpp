// SPDX-License-Identifier: Apache-2.0
#include "core/import/gguf.h"

#include <algorithm>
#include <bit>

#include "core/base/load.h"
#include "core/base/printable.h"

namespace switchyard {
namespace {

using Type = GgufValue::Type;

constexpr uint64_t kMaxKeyBytes = 65535;  // as the format has it
constexpr uint64_t kMaxNameBytes = 255;   // llama.cpp allows 63
constexpr uint32_t kMaxRank = 4;
constexpr uint64_t kMaxElements = uint64_t{1} << 48;
constexpr uint32_t kDefaultAlignment = 32, kMaxAlignment = 1 << 20;
constexpr uint64_t kMaxParts = 99999;  // five digits
// Far above what models have. An entry takes several times the memory here that it takes in the file.
constexpr uint64_t kMaxValues = uint64_t{1} << 16, kMaxTensors = uint64_t{1} << 20;

// Bytes of one value; 0: it has no fixed size.
uint64_t fixed_size(Type type) {
  constexpr uint64_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return kSizes[static_cast<uint32_t>(type)];
}

bool is_type(uint32_t type) { return type <= static_cast<uint32_t>(Type::f64); }

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::optional<uint64_t> whole_of(Type type, const std::byte* p) {
  const auto positive = [](int64_t v) { return v < 0 ? std::nullopt : std::optional<uint64_t>(v); };
  switch (type) {
    case Type::u8:
      return load<uint8_t>(p);
    case Type::u16:
      return load<uint16_t>(p);
    case Type::u32:
      return load<uint32_t>(p);
    case Type::u64:
      return load<uint64_t>(p);
    case Type::i8:
      return positive(load<int8_t>(p));
    case Type::i16:
      return positive(load<int16_t>(p));
    case Type::i32:
      return positive(load<int32_t>(p));
    case Type::i64:
      return positive(load<int64_t>(p));
    default:
      return std::nullopt;
  }
}

}  // namespace

// ---- values

std::optional<uint64_t> GgufValue::whole() const {
  return fixed_size(type) == 0 ? std::nullopt : whole_of(type, data.data());
}

std::optional<double> GgufValue::number() const {
  if (type == Type::f32) return load<float>(data.data());
  if (type == Type::f64) return load<double>(data.data());
  if (const auto v = whole()) return static_cast<double>(*v);
  if (type == Type::i8) return load<int8_t>(data.data());
  if (type == Type::i16) return load<int16_t>(data.data());
  if (type == Type::i32) return load<int32_t>(data.data());
  if (type == Type::i64) return static_cast<double>(load<int64_t>(data.data()));
  return std::nullopt;
}

std::optional<bool> GgufValue::flag() const {
  return type == Type::boolean ? std::optional(load<uint8_t>(data.data()) != 0) : std::nullopt;
}

std::optional<std::string_view> GgufValue::text() const {
  return type == Type::text ? std::optional(text_of(data)) : std::nullopt;
}

std::optional<std::vector<uint64_t>> GgufValue::wholes() const {
  if (type != Type::array || fixed_size(element) == 0) return std::nullopt;
  std::vector<uint64_t> all;
  all.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    const auto v = whole_of(element, data.data() + i * fixed_size(element));
    if (!v) return std::nullopt;
    all.push_back(*v);
  }
  return all;
}

std::optional<std::vector<bool>> GgufValue::flags() const {
  if (type != Type::array || element != Type::boolean) return std::nullopt;
  std::vector<bool> all;
  for (const std::byte b : data) all.push_back(b != std::byte{0});
  return all;
}

// Their lengths were checked when the file was read.
std::optional<std::vector<std::string_view>> GgufValue::texts() const {
  if (type != Type::array || element != Type::text) return std::nullopt;
  std::vector<std::string_view> all;
  all.reserve(count);
  for (size_t at = 0; at < data.size();) {
    const auto length = load<uint64_t>(data.data() + at);
    all.push_back(text_of(data.subspan(at + sizeof length, length)));
    at += sizeof length + length;
  }
  return all;
}

std::string GgufValue::describe() const {
  constexpr size_t kShown = 60;
  if (const auto v = flag()) return *v ? "true" : "false";
  if (const auto v = whole()) return std::to_string(*v);
  if (const auto v = number()) return fmt::format("{}", *v);
  if (const auto v = text()) return fmt::format("\"{}\"", printable(*v, kShown));
  constexpr const char* kKinds[] = {"u8",   "i8",   "u16",   "i16", "u32", "i32", "f32",
                                    "bool", "text", "array", "u64", "i64", "f64"};
  return fmt::format("{} of {}", count, kKinds[static_cast<uint32_t>(element)]);
}

uint64_t GgufTensor::rows() const {
  uint64_t n = 1;
  for (size_t i = 0; i + 1 < dims.size(); ++i) n *= dims[i];
  return n;
}

// ---- one part

// A place in a file. What it reads is there, or it remembers that it was not.
struct GgufFile::Reader {
  std::span<const std::byte> bytes;
  size_t at = 0;

  uint64_t left() const { return bytes.size() - at; }
  bool take(uint64_t size, std::span<const std::byte>& out) {
    if (size > left()) return false;
    out = bytes.subspan(at, size);
    at += size;
    return true;
  }
  template <class T>
  bool take(T& out) {
    std::span<const std::byte> raw;
    if (!take(sizeof out, raw)) return false;
    out = load<T>(raw.data());
    return true;
  }
  bool take_text(uint64_t most, std::string_view& out) {
    uint64_t length = 0;
    std::span<const std::byte> raw;
    if (!take(length) || length > most || !take(length, raw)) return false;
    out = text_of(raw);
    return true;
  }
  Status cut(std::string_view what) const {
    return error(Code::invalid_data, "{} at byte {} is cut off or has an impossible length; the file has {} bytes",
                 what, at, bytes.size());
  }

  Status take_array(const std::string& what, GgufValue& v) {
    uint32_t element = 0;
    if (!take(element) || !take(v.count)) return cut(what);
    if (!is_type(element) || static_cast<Type>(element) == Type::array) {
      return error(Code::invalid_data, "{} is an array of type {}; numbers, flags and texts are read", what, element);
    }
    v.element = static_cast<Type>(element);
    if (const uint64_t size = fixed_size(v.element); size != 0) {
      if (v.count > left() / size || !take(v.count * size, v.data)) return cut(what);
      return {};
    }
    const size_t begin = at;
    if (v.count > left() / sizeof(uint64_t)) return cut(what);
    for (uint64_t i = 0; i < v.count; ++i) {
      std::string_view text;
      if (!take_text(left(), text)) return cut(what);
    }
    v.data = bytes.subspan(begin, at - begin);
    return {};
  }

  Status take_value(const std::string& what, GgufValue& v) {
    uint32_t type = 0;
    if (!take(type)) return cut(what);
    if (!is_type(type)) return error(Code::invalid_data, "{} has the unknown type {}", what, type);
    v.type = static_cast<Type>(type);
    if (v.type == Type::array) return take_array(what, v);
    if (v.type == Type::text) {
      std::string_view text;
      if (!take_text(left(), text)) return cut(what);
      v.data = std::as_bytes(std::span(text));
      return {};
    }
    return take(fixed_size(v.type), v.data) ? Status() : cut(what);
  }

  // Its place in the file is still relative to the data's beginning.
  Status take_tensor(GgufTensor& t) {
    std::string_view name;
    uint32_t rank = 0, type = 0;
    if (!take_text(kMaxNameBytes, name) || !take(rank)) return cut("a tensor's name");
    t.name = name;
    const std::string what = fmt::format("tensor '{}'", printable(name));
    if (rank == 0 || rank > kMaxRank) {
      return error(Code::invalid_data, "{} has {} dimensions; 1 to {} are possible", what, rank, kMaxRank);
    }
    uint64_t elements = 1;
    t.dims.resize(rank);
    for (uint32_t i = 0; i < rank; ++i) {
      uint64_t d = 0;
      if (!take(d)) return cut(what);
      if (d == 0 || d > kMaxElements / elements) {
        return error(Code::invalid_data, "{} has the impossible dimension {}", what, d);
      }
      elements *= d;
      t.dims[rank - 1 - i] = d;
    }
    if (!take(type) || !take(t.file_offset)) return cut(what);
    auto block = gguf_block(type);
    if (!block.ok()) return block.status().in(what);
    t.block = *block;
    if (t.width() % t.block->elements != 0) {
      return error(Code::invalid_data, "{} has rows of {} elements, which blocks of {} ({}) do not fill", what,
                   t.width(), t.block->elements, t.block->name);
    }
    return {};
  }
};

Result<GgufFile> GgufFile::parse(const std::string& path, std::unique_ptr<MappedFile> file) {
  GgufFile out;
  Reader r{file->bytes()};
  const auto fail = [&](Status s) { return s.in(path); };
  uint32_t magic = 0;
  uint64_t tensor_count = 0, value_count = 0;
  constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
  if (!r.take(magic) || magic != kMagic) return error(Code::invalid_data, "{} is not a GGUF file", path);
  if (!r.take(out.version_)) return fail(r.cut("the header"));
  if (out.version_ != 0 && (out.version_ & 0xffff) == 0) {
    return error(Code::unsupported, "{} is in big-endian byte order; convert it on a little-endian machine", path);
  }
  if (out.version_ < 2 || out.version_ > 3) {
    return error(Code::unsupported, "{} has version {} of GGUF; 2 and 3 are read", path, out.version_);
  }
  if (!r.take(tensor_count) || !r.take(value_count)) return fail(r.cut("the header"));
  constexpr uint64_t kLeastValue = 8 + 4 + 1, kLeastTensor = 8 + 4 + 8 + 4 + 8;  // bytes
  if (value_count > r.left() / kLeastValue || tensor_count > r.left() / kLeastTensor) {
    return error(Code::invalid_data, "{} claims {} values and {} tensors, which its {} bytes cannot hold", path,
                 value_count, tensor_count, r.bytes.size());
  }
  if (value_count > kMaxValues || tensor_count > kMaxTensors) {
    return error(Code::unsupported, "{} has {} values and {} tensors; at most {} and {} are read", path, value_count,
                 tensor_count, kMaxValues, kMaxTensors);
  }
  for (uint64_t i = 0; i < value_count; ++i) {
    std::string_view key;
    if (!r.take_text(kMaxKeyBytes, key)) return fail(r.cut("a key"));
    GgufValue value;
    const std::string what = fmt::format("the value '{}'", printable(key));
    if (Status s = r.take_value(what, value); !s.ok()) return fail(std::move(s));
    if (!out.metadata_.emplace(key, value).second)
      return error(Code::invalid_data, "{}: {} is there twice", path, what);
  }
  uint64_t alignment = kDefaultAlignment;
  if (const GgufValue* v = out.find("general.alignment"); v != nullptr) {
    alignment = v->whole().value_or(0);
    if (!std::has_single_bit(alignment) || alignment > kMaxAlignment) {
      return error(Code::invalid_data, "{}: general.alignment is {}; it must be a power of two up to {}", path,
                   v->describe(), kMaxAlignment);
    }
  }
  out.tensors_.reserve(tensor_count);
  for (uint64_t i = 0; i < tensor_count; ++i) {
    if (Status s = r.take_tensor(out.tensors_.emplace_back()); !s.ok()) return fail(std::move(s));
  }
  const uint64_t data = std::min<uint64_t>((r.at + alignment - 1) / alignment * alignment, r.bytes.size());
  for (GgufTensor& t : out.tensors_) {
    const uint64_t size = t.rows() * t.row_bytes();  // at most 2^48 elements of at most 4 bytes
    if (t.file_offset % alignment != 0 || t.file_offset > r.bytes.size() - data ||
        size > r.bytes.size() - data - t.file_offset) {
      return error(Code::invalid_data,
                   "{}: tensor '{}' lies at byte {} of the data with {} bytes; the data has {} bytes, in units of {}; "
                   "is the file complete?",
                   path, printable(t.name), t.file_offset, size, r.bytes.size() - data, alignment);
    }
    t.file_offset += data;
    t.bytes = r.bytes.subspan(t.file_offset, size);
    t.file = file.get();
  }
  std::vector<const GgufTensor*> in_order;
  for (const GgufTensor& t : out.tensors_) in_order.push_back(&t);
  std::sort(in_order.begin(), in_order.end(), [](auto* a, auto* b) { return a->file_offset < b->file_offset; });
  for (size_t i = 1; i < in_order.size(); ++i) {
    if (in_order[i]->file_offset < in_order[i - 1]->file_offset + in_order[i - 1]->bytes.size()) {
      return error(Code::invalid_data, "{}: the tensors '{}' and '{}' overlap", path, printable(in_order[i - 1]->name),
                   printable(in_order[i]->name));
    }
  }
  for (size_t i = 0; i < out.tensors_.size(); ++i) {
    if (!out.by_name_.emplace(out.tensors_[i].name, i).second) {
      return error(Code::invalid_data, "{}: tensor '{}' is there twice", path, printable(out.tensors_[i].name));
    }
  }
  out.files_.push_back(std::move(file));
  return out;
}

// ---- all parts

namespace {

// "NAME-00002-of-00003.gguf" for part 1 of 3, from the name of part 0; "" where that is named otherwise.
std::string part_path(const std::string& first, uint64_t part, uint64_t parts) {
  const std::string ending = fmt::format("-00001-of-{:05}.gguf", parts);
  if (!first.ends_with(ending)) return {};
  return first.substr(0, first.size() - ending.size()) + fmt::format("-{:05}-of-{:05}.gguf", part + 1, parts);
}

uint64_t whole_or(const GgufFile& file, const char* key, uint64_t otherwise) {
  const GgufValue* v = file.find(key);
  return v == nullptr ? otherwise : v->whole().value_or(otherwise);
}

}  // namespace

Result<GgufFile> GgufFile::open(Os& os, const std::string& path) {
  SWY_LET(auto mapped, os.map(path));
  SWY_LET(GgufFile file, parse(path, std::move(mapped)));
  const uint64_t parts = whole_or(file, "split.count", 1);
  if (parts <= 1) return file;
  if (const uint64_t part = whole_or(file, "split.no", 0); part != 0) {
    return error(Code::usage, "{} is part {} of {}; name the first part, which ends in -00001-of-{:05}.gguf", path,
                 part + 1, parts, parts);
  }
  if (parts > kMaxParts || part_path(path, 0, parts).empty()) {
    return error(Code::invalid_data, "{} is the first of {} parts, and its name does not end in -00001-of-{:05}.gguf",
                 path, parts, parts);
  }
  for (uint64_t part = 1; part < parts; ++part) SWY_TRY(file.take_part(os, path, part, parts));
  const uint64_t expected = whole_or(file, "split.tensors.count", file.tensors_.size());
  if (expected != file.tensors_.size()) {
    return error(Code::invalid_data, "{} and its other parts have {} tensors; the first says {}", path,
                 file.tensors_.size(), expected);
  }
  return file;
}

Status GgufFile::take_part(Os& os, const std::string& first, uint64_t part, uint64_t parts) {
  const std::string path = part_path(first, part, parts);
  if (!os.exists(path)) {
    return error(Code::not_found, "{} is missing; the model has {} parts, and all must lie in one folder", path, parts);
  }
  SWY_LET(auto mapped, os.map(path));
  SWY_LET(GgufFile more, parse(path, std::move(mapped)));
  if (whole_or(more, "split.no", parts) != part || whole_or(more, "split.count", 0) != parts) {
    return error(Code::invalid_data, "{} does not say that it is part {} of {}", path, part + 1, parts);
  }
  for (GgufTensor& t : more.tensors_) {
    if (!by_name_.emplace(t.name, tensors_.size()).second) {
      return error(Code::invalid_data, "{}: tensor '{}' is in an earlier part, too", path, printable(t.name));
    }
    tensors_.push_back(std::move(t));
  }
  std::move(more.files_.begin(), more.files_.end(), std::back_inserter(files_));
  return {};
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto it = metadata_.find(key);
  return it == metadata_.end() ? nullptr : &it->second;
}

const GgufTensor* GgufFile::tensor(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

uint64_t GgufFile::bytes() const {
  uint64_t n = 0;
  for (const auto& f : files_) n += f->bytes().size();
  return n;
}

}  // namespace switchyard
