// SPDX-License-Identifier: Apache-2.0
// Tensors that a checkpoint has in another order than a program, and tensors that follow from the configuration.
#pragma once

#include <utility>
#include <vector>

#include "core/models/source.h"

namespace switchyard {

// Of each matrix [rows, columns] of the source the matrix [columns, rows].
class Transposed final : public SourceTensor {
 public:
  explicit Transposed(const SourceTensor& source);

  WeightEncoding encoding() const override { return source_.encoding(); }
  void read_row(uint64_t row, std::span<float> out) const override;
  void release_rows(uint64_t first, uint64_t count) const override;

 private:
  const SourceTensor& source_;
};

// Two things take turns in the source, in the rows of each matrix: here stand all of the first, then all of the second.
class RowsInTurns final : public SourceTensor {
 public:
  explicit RowsInTurns(const SourceTensor& source) : source_(source) { dims = source.dims; }

  WeightEncoding encoding() const override { return source_.encoding(); }
  void read_row(uint64_t row, std::span<float> out) const override { source_.read_row(place(row), out); }
  bool encode_row(uint64_t row, std::span<std::byte> quants, std::span<uint16_t> scales,
                  std::span<uint16_t> offsets) const override {
    return source_.encode_row(place(row), quants, scales, offsets);
  }
  void release_rows(uint64_t first, uint64_t count) const override;

 private:
  uint64_t place(uint64_t row) const;

  const SourceTensor& source_;
};

// The same in the elements of each row.
class ElementsInTurns final : public SourceTensor {
 public:
  explicit ElementsInTurns(const SourceTensor& source) : source_(source) { dims = source.dims; }

  WeightEncoding encoding() const override { return source_.encoding(); }
  void read_row(uint64_t row, std::span<float> out) const override;
  void release_rows(uint64_t first, uint64_t count) const override { source_.release_rows(first, count); }

 private:
  const SourceTensor& source_;
};

// Some columns of a matrix.
class Columns final : public SourceTensor {
 public:
  Columns(const SourceTensor& source, uint64_t first, uint64_t count);

  WeightEncoding encoding() const override { return source_.encoding(); }
  void read_row(uint64_t row, std::span<float> out) const override;
  void release_rows(uint64_t first, uint64_t count) const override { source_.release_rows(first, count); }

 private:
  const SourceTensor& source_;
  uint64_t first_;
};

// One row of given values.
class GivenValues final : public SourceTensor {
 public:
  explicit GivenValues(std::vector<float> values) : values_(std::move(values)) { dims = {values_.size()}; }

  WeightEncoding encoding() const override { return {SWY_F32, 0}; }
  void read_row(uint64_t, std::span<float> out) const override;
  void release_rows(uint64_t, uint64_t) const override {}

 private:
  std::vector<float> values_;
};

}  // namespace switchyard
