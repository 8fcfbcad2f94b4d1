// SPDX-License-Identifier: Apache-2.0
// Checkpoints are untrusted: the input is a model.safetensors, once as it is, and once as the header's text under a
// length that fits it. Every tensor that is accepted can be read from its first element to its last.
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/import/safetensors.h"
#include "tests/fuzz/bytes.h"

namespace {

using namespace switchyard;  // NOLINT(google-build-using-namespace)

void open(std::vector<std::byte> file) {
  Checkpoint checkpoint;
  if (const Status added = checkpoint.add_shard("x.safetensors", std::make_unique<testing::Bytes>(std::move(file)));
      !added.ok()) {
    if (added.message().size() > 1000) __builtin_trap();  // a line, not a dump of the file
    return;
  }
  std::vector<float> row;
  for (const std::string& name : checkpoint.names()) {
    const SourceTensor& t = *checkpoint.find(name);
    row.resize(t.width());
    for (uint64_t r = 0; r < t.rows(); ++r) t.read_row(r, row);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  open({input.begin(), input.end()});
  constexpr size_t kWeights = 64;
  std::vector<std::byte> file(8 + size + kWeights);
  const uint64_t header = size;
  std::memcpy(file.data(), &header, sizeof header);
  if (size != 0) std::memcpy(file.data() + 8, data, size);
  open(std::move(file));
  return 0;
}
