#include "grouped.h"

#include <cuda.h>

#include "switchyard/sdk/error.hpp"

namespace gpu {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// The driver's function, which is found when it is first wanted: nothing is linked with the driver.
Encode encode_tiled() {
  static const Encode function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const cudaError_t e =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
    return e == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(found) : nullptr;
  }();
  return function;
}

// A matrix [rows, columns] of which boxes of 128 rows are copied.
struct Matrix {
  CUtensorMapDataType type;
  const void* data;
  uint64_t columns, rows, row_bytes;
  uint32_t box_columns;
  CUtensorMapSwizzle swizzle;
};

bool map(const Matrix& m, CUtensorMap* out) {
  const Encode encode = encode_tiled();
  if (encode == nullptr) return false;
  const cuuint64_t dims[2] = {m.columns, m.rows}, strides[1] = {m.row_bytes};
  const cuuint32_t box[2] = {m.box_columns, kBoxRows}, steps[2] = {1, 1};
  return encode(out, m.type, 2, const_cast<void*>(m.data), dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                m.swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool map_quants(const Weight& w, CUtensorMap* out) {
  if (w.dtype == SWY_BF16) {
    return map(
        {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, w.data, w.width, w.rows, w.row_bytes, kSpan / 2, CU_TENSOR_MAP_SWIZZLE_128B},
        out);
  }
  const bool bytes = w.dtype == SWY_I8;
  return map({CU_TENSOR_MAP_DATA_TYPE_UINT8, w.data, w.row_bytes, w.rows, w.row_bytes, bytes ? kSpan : kSpan / 2,
              bytes ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE},
             out);
}

bool map_scales(const Weight& w, const uint16_t* data, CUtensorMap* out) {
  return map(
      {CU_TENSOR_MAP_DATA_TYPE_UINT16, data, w.groups, w.rows, uint64_t{w.groups} * 2, 8, CU_TENSOR_MAP_SWIZZLE_NONE},
      out);
}

}  // namespace

bool streamable(const swy_tensor& t) {
  if (t.dtype == SWY_BF16) return t.dims[t.rank - 1] % 8 == 0;
  if (!is_quantized(t.dtype) || !readable_in_pieces(t)) return false;
  return t.group == 0 || t.group >= t.dims[t.rank - 1] || (t.group >= 32 && t.group <= 1024);
}

swy_status stream_weight(const Weight& w, StreamedWeight* out, swy_error* error) {
  *out = {};
  out->rows = w.rows;
  out->groups = w.groups;
  out->scale_data = w.scales;
  out->offset_data = w.offsets;
  out->group_shift = w.groups > 1 ? static_cast<uint32_t>(__builtin_ctz(w.group)) : 31;
  out->scales_mapped = w.scales != nullptr && w.groups % 8 == 0;
  bool done = map_quants(w, &out->quants);
  if (out->scales_mapped) done = done && map_scales(w, w.scales, &out->scales);
  if (out->scales_mapped && w.offsets != nullptr) done = done && map_scales(w, w.offsets, &out->offsets);
  if (done) return SWY_OK;
  return swy::fail(error, SWY_INTERNAL, SWY_REASON_NONE, "the driver maps no matrix of %u rows of %u bytes", w.rows,
                   w.row_bytes);
}

}  // namespace gpu
