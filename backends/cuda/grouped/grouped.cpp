// SPDX-License-Identifier: Apache-2.0
#include "grouped.h"

#include "host/tensor_map.h"

namespace gpu {
namespace {

swy_status map_quants(const Weight& w, CUtensorMap* out, swy_error* error) {
  if (w.dtype == SWY_BF16) {
    return map_matrix({w.data, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, w.width, w.rows, w.row_bytes, kSpan / 2, kBoxRows,
                       CU_TENSOR_MAP_SWIZZLE_128B},
                      out, error);
  }
  const bool bytes = w.dtype == SWY_I8;
  return map_matrix({w.data, CU_TENSOR_MAP_DATA_TYPE_UINT8, w.row_bytes, w.rows, w.row_bytes, bytes ? kSpan : kSpan / 2,
                     kBoxRows, bytes ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE},
                    out, error);
}

swy_status map_scales(const Weight& w, const uint16_t* data, CUtensorMap* out, swy_error* error) {
  return map_matrix({data, CU_TENSOR_MAP_DATA_TYPE_UINT16, w.groups, w.rows, uint64_t{w.groups} * 2, 8, kBoxRows,
                     CU_TENSOR_MAP_SWIZZLE_NONE},
                    out, error);
}

}  // namespace

bool streamable(const swy_tensor& t) {
  if (t.dtype == SWY_BF16) return t.dims[t.rank - 1] % 8 == 0;
  if (!is_quantized(t.dtype) || !readable_in_pieces(t)) return false;
  const uint32_t least = t.dtype == SWY_I8 ? 16 : 32;
  return t.group == 0 || t.group >= t.dims[t.rank - 1] || (t.group >= least && t.group <= 1024);
}

swy_status stream_weight(const Weight& w, StreamedWeight* out, swy_error* error) {
  *out = {};
  out->rows = w.rows;
  out->groups = w.groups;
  out->scale_data = w.scales;
  out->offset_data = w.offsets;
  out->group_shift = w.groups > 1 ? static_cast<uint32_t>(__builtin_ctz(w.group)) : 31;
  out->scales_mapped = w.scales != nullptr && w.groups % 8 == 0 && w.dtype != SWY_MXFP4;
  SWY_CUDA_TRY(map_quants(w, &out->quants, error));
  if (!out->scales_mapped) return SWY_OK;
  SWY_CUDA_TRY(map_scales(w, w.scales, &out->scales, error));
  return w.offsets == nullptr ? SWY_OK : map_scales(w, w.offsets, &out->offsets, error);
}

}  // namespace gpu
