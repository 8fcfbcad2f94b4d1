// SPDX-License-Identifier: Apache-2.0
// Safetensors: the weights of a Hugging Face checkpoint, one file or many shards, mapped and never copied whole.
//
// Files are untrusted: every offset, shape and size is checked against the file before anything is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/os.h"
#include "core/base/status.h"

namespace switchyard {

enum class SourceType { f32, f16, bf16 };

struct SourceTensor {
  SourceType type = SourceType::bf16;
  std::vector<uint64_t> dims;
  std::span<const std::byte> bytes;  // row-major
  const MappedFile* file = nullptr;
  uint64_t file_offset = 0;

  uint64_t width() const { return dims.empty() ? 1 : dims.back(); }
};

// Elements [first, first + out.size()) as fp32.
void read_elements(const SourceTensor& tensor, uint64_t first, std::span<float> out);
// Gives the pages of these elements back to the system.
void release_elements(const SourceTensor& tensor, uint64_t first, uint64_t count);

class Checkpoint {
 public:
  // Opens `folder`/model.safetensors, or the shards that model.safetensors.index.json names. Errors: not_found, naming
  // the shard; invalid_data, naming the file and the tensor.
  static Result<Checkpoint> open(Os& os, const std::string& folder);

  // Takes in the tensors of one mapped file; messages call it `path`. Errors: invalid_data; unsupported, for a type of
  // elements.
  Status add_shard(const std::string& path, std::unique_ptr<MappedFile> file);

  const SourceTensor* find(const std::string& name) const;
  const std::map<std::string, SourceTensor>& tensors() const { return tensors_; }

 private:
  Status map_shard(Os& os, const std::string& path);

  std::vector<std::unique_ptr<MappedFile>> files_;
  std::map<std::string, SourceTensor> tensors_;
};

}  // namespace switchyard
