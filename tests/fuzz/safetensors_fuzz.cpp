// SPDX-License-Identifier: Apache-2.0
// Checkpoints are untrusted: the input is a model.safetensors, once as it is, and once as the header's text under a
// length that fits it. Every tensor that is accepted can be read from its first element to its last.
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/base/os.h"
#include "core/import/safetensors.h"

namespace {

using namespace switchyard;  // NOLINT(google-build-using-namespace)

class Bytes final : public MappedFile {
 public:
  explicit Bytes(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  std::span<const std::byte> bytes() const override { return bytes_; }
  void release(size_t, size_t) const override {}

 private:
  std::vector<std::byte> bytes_;
};

void open(std::vector<std::byte> file) {
  Checkpoint checkpoint;
  if (const Status added = checkpoint.add_shard("x.safetensors", std::make_unique<Bytes>(std::move(file)));
      !added.ok()) {
    if (added.message().size() > 1000) __builtin_trap();  // a line, not a dump of the file
    return;
  }
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    uint64_t elements = 1;
    for (const uint64_t dim : tensor.dims) elements *= dim;
    std::array<float, 64> part;
    for (uint64_t at = 0; at < elements; at += part.size()) {
      read_elements(tensor, at, std::span(part).first(std::min<uint64_t>(part.size(), elements - at)));
    }
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
