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

swy_status map_boxes(const Weight& weight, uint32_t rows, CUtensorMap* out, swy_error* error) {
  static const Encode encode = find_encode();
  if (encode == nullptr) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "the driver has no tensor maps (CUDA 12.0 or newer)");
  }
  const cuuint64_t size[2] = {weight.row_bytes, weight.rows}, pitch[1] = {weight.row_bytes};
  const cuuint32_t box[2] = {kBoxBytes, rows}, step[2] = {1, 1};
  const CUresult e = encode(out, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<uint8_t*>(weight.data), size, pitch, box,
                            step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                            CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (e == CUDA_SUCCESS) return SWY_OK;
  return swy::fail(error, SWY_INTERNAL, SWY_REASON_NONE, "no tensor map for rows of %u bytes (driver error %d)",
                   weight.row_bytes, static_cast<int>(e));
}

}  // namespace gpu
