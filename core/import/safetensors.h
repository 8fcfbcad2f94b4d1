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
#include "core/models/source.h"

namespace switchyard {

class SafetensorsTensor final : public SourceTensor {
 public:
  enum class Type { f32, f16, bf16, u8 };

  Type type = Type::bf16;
  std::span<const std::byte> bytes;  // row-major
  const MappedFile* file = nullptr;
  uint64_t file_offset = 0;

  WeightEncoding encoding() const override { return {type == Type::bf16 ? SWY_BF16 : SWY_F32, 0}; }
  void read_row(uint64_t row, std::span<float> out) const override;
  void read_column(uint64_t first_row, uint64_t column, std::span<float> out) const override;
  void release_rows(uint64_t first, uint64_t count) const override;
};

// NAME_blocks and NAME_scales, the two halves of a tensor in MXFP4: 16 bytes with two elements each, the lower nibble
// first, and a power of two.
class Mxfp4Tensor final : public SourceTensor {
 public:
  // Errors: invalid_data, for shapes that do not belong together.
  static Result<Mxfp4Tensor> create(const SafetensorsTensor& blocks, const SafetensorsTensor& scales);

  WeightEncoding encoding() const override { return {SWY_MXFP4, 32}; }
  void read_row(uint64_t row, std::span<float> out) const override;
  bool encode_row(uint64_t row, std::span<std::byte> quants, std::span<uint16_t> scales,
                  std::span<uint16_t> offsets) const override;
  void release_rows(uint64_t first, uint64_t count) const override;

 private:
  SafetensorsTensor blocks_, scales_;
};

class Checkpoint final : public TensorSource {
 public:
  // Opens `folder`/model.safetensors, or the shards that model.safetensors.index.json names. Errors: not_found, naming
  // the shard; invalid_data, naming the file and the tensor.
  static Result<Checkpoint> open(Os& os, const std::string& folder);

  // Takes in the tensors of one mapped file; messages call it `path`. Errors: invalid_data; unsupported, for a type of
  // elements.
  Status add_shard(const std::string& path, std::unique_ptr<MappedFile> file);

  const SourceTensor* find(const std::string& name) const override;
  std::vector<std::string> names() const override;

 private:
  Status map_shard(Os& os, const std::string& path);
  // After the last shard: the halves may lie in two.
  Status join_halves();

  std::vector<std::unique_ptr<MappedFile>> files_;
  std::map<std::string, SafetensorsTensor> tensors_;
  std::map<std::string, Mxfp4Tensor> mxfp4_;
};

}  // namespace switchyard
