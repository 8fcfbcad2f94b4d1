// SPDX-License-Identifier: Apache-2.0
#include "core/models/source.h"

#include <algorithm>
#include <iterator>

namespace switchyard {

WeightEncoding more_bits(WeightEncoding a, WeightEncoding b) {
  constexpr swy_dtype kByBits[] = {SWY_MXFP4, SWY_I4, SWY_I4A, SWY_I8, SWY_BF16, SWY_F32};
  const auto rank = [&](WeightEncoding e) { return std::find(std::begin(kByBits), std::end(kByBits), e.dtype); };
  if (a.dtype != b.dtype) return rank(a) < rank(b) ? b : a;
  const auto per_scale = [](WeightEncoding e) { return e.group == 0 ? UINT32_MAX : e.group; };
  return per_scale(a) <= per_scale(b) ? a : b;
}

void SourceTensor::read_column(uint64_t first_row, uint64_t column, std::span<float> out) const {
  std::vector<float> row(width());
  for (size_t i = 0; i < out.size(); ++i) {
    read_row(first_row + i, row);
    out[i] = row[column];
  }
}

}  // namespace switchyard
