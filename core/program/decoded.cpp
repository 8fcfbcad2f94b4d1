// SPDX-License-Identifier: Apache-2.0
#include "core/program/decoded.h"

#include <cstring>
#include <vector>

#include "switchyard/weights.h"

namespace switchyard {

swy_tensor decoded_form(const swy_tensor& encoded, swy_dtype dtype) {
  swy_tensor out = encoded;
  out.dtype = dtype;
  out.group = 0;
  out.encoding = nullptr;
  return out;
}

void decode_weight(const swy_tensor& encoded, const std::byte* segment, swy_dtype dtype, std::byte* to) {
  swy_weight_planes planes;
  if (swy_weight_planes_of(&encoded, &planes) != 0) return;
  const uint64_t width = encoded.dims[encoded.rank - 1];
  std::vector<float> row(width);
  std::vector<uint16_t> rounded(dtype == SWY_BF16 ? width : 0);
  for (uint64_t r = 0; r < planes.rows; ++r) {
    swy_weight_row(&encoded, &planes, segment, r, row.data());
    for (size_t i = 0; i < rounded.size(); ++i) rounded[i] = swy_f32_to_bf16(row[i]);
    const void* from = rounded.empty() ? static_cast<const void*>(row.data()) : rounded.data();
    const size_t bytes = width * (rounded.empty() ? sizeof(float) : sizeof(uint16_t));
    std::memcpy(to, from, bytes);
    to += bytes;
  }
}

}  // namespace switchyard
