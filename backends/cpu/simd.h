// SPDX-License-Identifier: Apache-2.0
// The beginning of every file with vector code. Highway's foreach_target compiles such a file once per instruction set;
// CPU_BEST(f) is the version of `f` for the instruction set in use.
//
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "this_file.cpp"
//   #include "simd.h"
//   #include <hwy/foreach_target.h>
//   #include <hwy/highway.h>
#ifndef CPU_SIMD_H_
#define CPU_SIMD_H_

#include "isa.h"

// Levels of isa.h: SSE4 is the baseline, AVX3 is AVX-512. The other targets of Highway are not built.
#define HWY_DISABLED_TARGETS (~(HWY_SSE4 | HWY_AVX2 | HWY_AVX3))

#define CPU_BEST(f) \
  (::cpu::isa() >= ::cpu::Isa::avx512 ? &N_AVX3::f : ::cpu::isa() >= ::cpu::Isa::avx2 ? &N_AVX2::f : &N_SSE4::f)

#endif  // CPU_SIMD_H_
