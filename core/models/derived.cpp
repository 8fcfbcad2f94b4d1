// SPDX-License-Identifier: Apache-2.0
#include "core/models/derived.h"

#include <algorithm>

namespace switchyard {
namespace {

uint64_t matrix_rows(const SourceTensor& t) { return t.dims.size() < 2 ? 1 : t.dims[t.dims.size() - 2]; }

// Where the source has number i of n things, of which the odd ones come last here.
uint64_t place_of_turn(uint64_t i, uint64_t n) {
  const uint64_t evens = (n + 1) / 2;
  return i < evens ? 2 * i : 2 * (i - evens) + 1;
}

// A matrix is read in an order of its own, so its pages are given back when all its rows were.
void release_whole_matrices(const SourceTensor& source, uint64_t rows, uint64_t first, uint64_t count) {
  for (uint64_t m = first / rows; (m + 1) * rows <= first + count; ++m) {
    source.release_rows(m * matrix_rows(source), matrix_rows(source));
  }
}

}  // namespace

Transposed::Transposed(const SourceTensor& source) : source_(source) {
  dims = source.dims;
  if (dims.size() >= 2) std::swap(dims[dims.size() - 2], dims.back());
}

void Transposed::read_row(uint64_t row, std::span<float> out) const {
  const uint64_t columns = source_.width();
  source_.read_column(row / columns * out.size(), row % columns, out);
}

void Transposed::release_rows(uint64_t first, uint64_t count) const {
  release_whole_matrices(source_, source_.width(), first, count);
}

uint64_t RowsInTurns::place(uint64_t row) const {
  const uint64_t n = matrix_rows(source_);
  return row / n * n + place_of_turn(row % n, n);
}

void RowsInTurns::release_rows(uint64_t first, uint64_t count) const {
  release_whole_matrices(source_, matrix_rows(source_), first, count);
}

void ElementsInTurns::read_row(uint64_t row, std::span<float> out) const {
  std::vector<float> stored(out.size());
  source_.read_row(row, stored);
  for (size_t i = 0; i < out.size(); ++i) out[i] = stored[place_of_turn(i, out.size())];
}

Columns::Columns(const SourceTensor& source, uint64_t first, uint64_t count) : source_(source), first_(first) {
  dims = source.dims;
  dims.back() = count;
}

void Columns::read_row(uint64_t row, std::span<float> out) const {
  std::vector<float> stored(source_.width());
  source_.read_row(row, stored);
  std::copy_n(stored.begin() + static_cast<ptrdiff_t>(first_), out.size(), out.begin());
}

void GivenValues::read_row(uint64_t, std::span<float> out) const {
  std::copy_n(values_.begin(), std::min(values_.size(), out.size()), out.begin());
}

}  // namespace switchyard
