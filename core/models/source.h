// SPDX-License-Identifier: Apache-2.0
// Tensors of a model to convert, whatever the format of its files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "switchyard/ops.h"

namespace switchyard {

// How a weight is stored in a program.
struct WeightEncoding {
  swy_dtype dtype = SWY_BF16;
  uint32_t group = 0;

  bool operator==(const WeightEncoding&) const = default;
};

// The one of the two that takes more bits: of one type, that with the smaller groups.
WeightEncoding more_bits(WeightEncoding a, WeightEncoding b);

// A matrix of rows; its dims but the last count as more rows. All members are thread-safe.
class SourceTensor {
 public:
  virtual ~SourceTensor() = default;

  std::vector<uint64_t> dims;

  uint64_t width() const { return dims.empty() ? 1 : dims.back(); }
  uint64_t rows() const {
    uint64_t n = 1;
    for (size_t i = 0; i + 1 < dims.size(); ++i) n *= dims[i];
    return n;
  }

  // The encoding that holds its values as they are, or as nearly as any.
  virtual WeightEncoding encoding() const = 0;
  // A row [width] in fp32.
  virtual void read_row(uint64_t row, std::span<float> out) const = 0;
  // Element `column` of as many rows as `out` has room for.
  virtual void read_column(uint64_t first_row, uint64_t column, std::span<float> out) const;
  // A row in `encoding`, without going through fp32: quants as weights.h lays them out, a scale per group (of SWY_MXFP4
  // its byte, as a number), and with SWY_I4A an offset per group. False: it cannot, and has written nothing that
  // counts.
  virtual bool encode_row(uint64_t row, std::span<std::byte> quants, std::span<uint16_t> scales,
                          std::span<uint16_t> offsets) const {
    (void)row, (void)quants, (void)scales, (void)offsets;
    return false;
  }
  // Gives the pages of these rows back to the system.
  virtual void release_rows(uint64_t first, uint64_t count) const = 0;
};

// The tensors of one model, by the names that they have in its Hugging Face checkpoint.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // NULL: there is none of this name. The tensor lives as long as this object.
  virtual const SourceTensor* find(const std::string& name) const = 0;
  virtual std::vector<std::string> names() const = 0;
};

}  // namespace switchyard
