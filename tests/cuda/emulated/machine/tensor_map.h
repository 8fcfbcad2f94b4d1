// SPDX-License-Identifier: Apache-2.0
// What is in a tensor map of the emulated device.
#pragma once

#include <cstdint>
#include <cstring>

namespace emulated {

struct TensorMap {
  const char* data;
  uint32_t rank, element, box[3];
  uint64_t size[3], pitch[2];  // in elements; in bytes
  bool swizzled;
};
static_assert(sizeof(TensorMap) <= 128);

inline TensorMap read_map(const void* map) {
  TensorMap m;
  std::memcpy(&m, map, sizeof m);
  return m;
}

// Copies a box to `target`, whose place in shared memory is `place`; zeros where the box is beyond the tensor.
void copy_tensor_box(const TensorMap& map, int x, int y, int z, char* target, uint32_t place);

}  // namespace emulated
