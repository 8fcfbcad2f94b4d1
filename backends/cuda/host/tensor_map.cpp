// SPDX-License-Identifier: Apache-2.0
#include "tensor_map.h"

#include <cuda_runtime_api.h>

#include "switchyard/sdk/error.hpp"

namespace gpu {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// The driver's function, found at run time: the driver is not linked.
Encode find_encode() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  const cudaError_t e =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
#else
  const cudaError_t e = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result);
#endif
  if (e != cudaSuccess || result != cudaDriverEntryPointSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  return reinterpret_cast<Encode>(found);
}

// A tensor of up to three dimensions, the innermost first; `pitch`: distance in bytes, of all but the innermost.
struct Tensor {
  const void* data;
  CUtensorMapDataType type;
  cuuint32_t rank;
  cuuint64_t size[3], pitch[2];
  cuuint32_t box[3];
  CUtensorMapSwizzle swizzle;
};

swy_status encode_map(const Tensor& t, CUtensorMap* out, swy_error* error) {
  static const Encode encode = find_encode();
  if (encode == nullptr) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "the driver has no tensor maps (CUDA 12.0 or newer)");
  }
  const cuuint32_t step[3] = {1, 1, 1};
  const CUresult e = encode(out, t.type, t.rank, const_cast<void*>(t.data), t.size, t.pitch, t.box, step,
                            CU_TENSOR_MAP_INTERLEAVE_NONE, t.swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (e == CUDA_SUCCESS) return SWY_OK;
  return swy::fail(
      error, SWY_INTERNAL, SWY_REASON_NONE, "the driver maps no matrix of %llu rows of %llu bytes (driver error %d)",
      static_cast<unsigned long long>(t.size[1]), static_cast<unsigned long long>(t.pitch[0]), static_cast<int>(e));
}

}  // namespace

swy_status map_matrix(const BoxedMatrix& m, CUtensorMap* out, swy_error* error) {
  return encode_map({m.data, m.type, 2, {m.columns, m.rows}, {m.row_bytes}, {m.box_columns, m.box_rows}, m.swizzle},
                    out, error);
}

swy_status map_columns(const void* data, uint64_t rows, uint64_t row_bytes, uint32_t box_rows, uint32_t box_columns,
                       CUtensorMap* out, swy_error* error) {
  return encode_map({data,
                     CU_TENSOR_MAP_DATA_TYPE_UINT8,
                     3,
                     {kBoxBytes, rows, row_bytes / kBoxBytes},
                     {row_bytes, kBoxBytes},
                     {kBoxBytes, box_rows, box_columns},
                     CU_TENSOR_MAP_SWIZZLE_128B},
                    out, error);
}

swy_status map_boxes(const Weight& w, uint32_t rows, CUtensorMap* out, swy_error* error) {
  return map_matrix({w.data, CU_TENSOR_MAP_DATA_TYPE_UINT8, w.row_bytes, w.rows, w.row_bytes, kBoxBytes, rows,
                     CU_TENSOR_MAP_SWIZZLE_128B},
                    out, error);
}

}  // namespace gpu
