// SPDX-License-Identifier: Apache-2.0
// Writes GGUF files, right and wrong ones.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace switchyard::testing {

class GgufWriter {
 public:
  struct Tensor {
    std::string name;
    std::vector<uint64_t> dims;  // fastest first, as in the file
    uint32_t type = 0;
    std::string bytes;
  };

  uint32_t version = 3;
  uint64_t alignment = 32;
  std::vector<Tensor> tensors;

  GgufWriter& text(const std::string& key, const std::string& value) { return add(key, 8, with_length(value)); }
  GgufWriter& u32(const std::string& key, uint32_t value) { return add(key, 4, raw(value)); }
  GgufWriter& u16(const std::string& key, uint16_t value) { return add(key, 2, raw(value)); }
  GgufWriter& f32(const std::string& key, float value) { return add(key, 6, raw(value)); }
  GgufWriter& flag(const std::string& key, bool value) { return add(key, 7, raw(static_cast<uint8_t>(value))); }
  GgufWriter& texts(const std::string& key, const std::vector<std::string>& values) {
    std::string bytes = raw(uint32_t{8}) + raw(uint64_t{values.size()});
    for (const std::string& v : values) bytes += with_length(v);
    return add(key, 9, bytes);
  }
  GgufWriter& u32s(const std::string& key, const std::vector<uint32_t>& values) {
    std::string bytes = raw(uint32_t{4}) + raw(uint64_t{values.size()});
    for (const uint32_t v : values) bytes += raw(v);
    return add(key, 9, bytes);
  }
  GgufWriter& add(const std::string& key, uint32_t type, const std::string& bytes) {
    values_ += with_length(key) + raw(type) + bytes;
    ++value_count_;
    return *this;
  }

  std::string file() const {
    std::string out = "GGUF" + raw(version) + raw(uint64_t{tensors.size()}) + raw(value_count_) + values_;
    uint64_t offset = 0;
    for (const Tensor& t : tensors) {
      out += with_length(t.name) + raw(static_cast<uint32_t>(t.dims.size()));
      for (const uint64_t d : t.dims) out += raw(d);
      out += raw(t.type) + raw(offset);
      offset = padded(offset + t.bytes.size());
    }
    for (const Tensor& t : tensors) {
      out.resize(padded(out.size()));
      out += t.bytes;
    }
    return out;
  }

  template <class T>
  static std::string raw(T value) {
    std::string s(sizeof value, '\0');
    std::memcpy(s.data(), &value, sizeof value);
    return s;
  }
  static std::string with_length(const std::string& text) { return raw(uint64_t{text.size()}) + text; }

 private:
  uint64_t padded(uint64_t n) const { return (n + alignment - 1) / alignment * alignment; }

  std::string values_;
  uint64_t value_count_ = 0;
};

}  // namespace switchyard::testing
