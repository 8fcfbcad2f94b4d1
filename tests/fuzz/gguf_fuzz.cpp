// SPDX-License-Identifier: Apache-2.0
// GGUF files are untrusted: every value of one that is accepted can be described and taken apart, and every tensor read
// from its first block to its last.
#include <cstdint>
#include <memory>
#include <vector>

#include "core/import/gguf.h"
#include "tests/fuzz/bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace switchyard;  // NOLINT(google-build-using-namespace)
  const auto input = std::as_bytes(std::span(data, size));
  const auto file =
      GgufFile::parse("x.gguf", std::make_unique<testing::Bytes>(std::vector<std::byte>(input.begin(), input.end())));
  if (!file.ok()) {
    if (file.status().message().size() > 1000) __builtin_trap();  // a line, not a dump of the file
    return 0;
  }
  size_t read = 0;
  for (const auto& [key, value] : file->metadata()) {
    read += value.describe().size();
    if (const auto all = value.wholes()) read += all->size();
    if (const auto all = value.flags()) read += all->size();
    if (const auto all = value.texts()) {
      for (const std::string_view text : *all) read += text.size();
    }
  }
  std::vector<float> row;
  for (const GgufTensor& t : file->tensors()) {
    row.resize(t.width());
    for (uint64_t r = 0; r < t.rows(); ++r) {
      decode_blocks(*t.block, t.bytes.subspan(r * t.row_bytes(), t.row_bytes()), row);
    }
  }
  if (read == SIZE_MAX) __builtin_trap();
  return 0;
}
