// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "switchyard/sdk/row_kernels.hpp"

namespace swy {

extern const RowKernels kRowKernelsPortable;
#if defined(__x86_64__)
extern const RowKernels kRowKernelsAvx2;
extern const RowKernels kRowKernelsAvx512;
#endif

std::span<const RowKernels* const> row_kernels() {
#if defined(__x86_64__)
  static constexpr std::array kAll = {&kRowKernelsAvx512, &kRowKernelsAvx2, &kRowKernelsPortable};
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  const size_t first = avx512 ? 0 : __builtin_cpu_supports("avx2") ? 1 : 2;
  return std::span<const RowKernels* const>(kAll).subspan(first);
#else
  static constexpr std::array kAll = {&kRowKernelsPortable};
  return kAll;
#endif
}

const RowKernels& row_kernels_within(uint32_t vector_bytes) {
  const auto all = row_kernels();
  for (const RowKernels* k : all) {
    if (k->vector_bytes <= vector_bytes) return *k;
  }
  return *all.back();
}

}  // namespace swy
