// SPDX-License-Identifier: Apache-2.0
#include "bytes.h"

namespace gpu {

bool multiplied_as_bytes(const swy_tensor& t) {
  const uint64_t width = t.dims[t.rank - 1], rows = t.dims[t.rank - 2];
  if (t.dtype != SWY_I4 || !streamable(t) || width % kByteGroup != 0 || rows % 8 != 0) return false;
  return t.group == 0 || t.group >= width || t.group % kByteGroup == 0;
}

swy_status stream_bytes(const Weight& w, StreamedWeight* out, swy_error* error) {
  SWY_CUDA_TRY(stream_weight(w, out, error));
  return map_boxes(w, kBoxRows, &out->quants, error);
}

}  // namespace gpu
