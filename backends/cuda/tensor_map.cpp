#include "tensor_map.h"

#include <cuda_runtime_api.h>

#include "switchyard/sdk/error.hpp"

namespace gpu {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// The driver's function; the driver is not linked.
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

}  // namespace

swy_status map_matrix(const BoxedMatrix& m, CUtensorMap* out, swy_error* error) {
  static const Encode encode = find_encode();
  if (encode == nullptr) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "the driver has no tensor maps (CUDA 12.0 or newer)");
  }
  const cuuint64_t size[2] = {m.columns, m.rows}, pitch[1] = {m.row_bytes};
  const cuuint32_t box[2] = {m.box_columns, m.box_rows}, step[2] = {1, 1};
  const CUresult e =
      encode(out, m.type, 2, const_cast<void*>(m.data), size, pitch, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
             m.swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (e == CUDA_SUCCESS) return SWY_OK;
  return swy::fail(
      error, SWY_INTERNAL, SWY_REASON_NONE, "the driver maps no matrix of %llu rows of %llu bytes (driver error %d)",
      static_cast<unsigned long long>(m.rows), static_cast<unsigned long long>(m.row_bytes), static_cast<int>(e));
}

swy_status map_boxes(const Weight& w, uint32_t rows, CUtensorMap* out, swy_error* error) {
  return map_matrix({w.data, CU_TENSOR_MAP_DATA_TYPE_UINT8, w.row_bytes, w.rows, w.row_bytes, kBoxBytes, rows,
                     CU_TENSOR_MAP_SWIZZLE_128B},
                    out, error);
}

}  // namespace gpu
