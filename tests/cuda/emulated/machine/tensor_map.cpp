// SPDX-License-Identifier: Apache-2.0
#include "machine/tensor_map.h"

#include <cuda.h>

namespace emulated {

void copy_tensor_box(const TensorMap& m, int x, int y, int z, char* target, uint32_t place) {
  const uint32_t row_bytes = m.box[0] * m.element;
  char* window = target - place;
  const auto inside = [](int at, uint64_t size) { return at >= 0 && static_cast<uint64_t>(at) < size; };
  for (uint32_t k = 0; k < m.box[2]; ++k) {
    for (uint32_t r = 0; r < m.box[1]; ++r) {
      const bool there =
          inside(y + static_cast<int>(r), m.size[1]) && (m.rank < 3 || inside(z + static_cast<int>(k), m.size[2]));
      const char* row = m.data + static_cast<uint64_t>(y + static_cast<int>(r)) * m.pitch[0] +
                        (m.rank < 3 ? 0 : static_cast<uint64_t>(z + static_cast<int>(k)) * m.pitch[1]);
      const uint32_t first = (k * m.box[1] + r) * row_bytes;
      for (uint32_t c = 0; c < m.box[0]; ++c) {
        uint32_t to = place + first + c * m.element;
        if (m.swizzled) to ^= (to >> 7 & 7) << 4;
        const int column = x + static_cast<int>(c);
        if (there && inside(column, m.size[0])) {
          std::memcpy(window + to, row + static_cast<uint64_t>(column) * m.element, m.element);
        } else {
          std::memset(window + to, 0, m.element);
        }
      }
    }
  }
}

}  // namespace emulated

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* data,
                                const cuuint64_t* sizes, const cuuint64_t* pitches, const cuuint32_t* box,
                                const cuuint32_t* steps, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  emulated::TensorMap m{};
  m.data = static_cast<const char*>(data), m.rank = rank;
  m.element = type == CU_TENSOR_MAP_DATA_TYPE_UINT8 ? 1 : 2;
  m.swizzled = swizzle == CU_TENSOR_MAP_SWIZZLE_128B;
  if (rank < 2 || rank > 3 || reinterpret_cast<uintptr_t>(data) % 16 != 0) return CUDA_ERROR_INVALID_VALUE;
  for (uint32_t i = 0; i < 3; ++i) m.box[i] = 1, m.size[i] = 1;
  for (uint32_t i = 0; i < rank; ++i) {
    m.box[i] = box[i], m.size[i] = sizes[i];
    if (box[i] == 0 || box[i] > 256 || sizes[i] == 0 || steps[i] != 1) return CUDA_ERROR_INVALID_VALUE;
    if (i + 1 == rank) continue;
    m.pitch[i] = pitches[i];
    if (pitches[i] % 16 != 0 || pitches[i] == 0) return CUDA_ERROR_INVALID_VALUE;
  }
  const uint32_t row = m.box[0] * m.element;
  if (row % 16 != 0 || (m.swizzled && row > 128)) return CUDA_ERROR_INVALID_VALUE;
  static_assert(sizeof(CUtensorMap) >= sizeof m);
  std::memset(map, 0, sizeof *map);
  std::memcpy(map, &m, sizeof m);
  return CUDA_SUCCESS;
}
