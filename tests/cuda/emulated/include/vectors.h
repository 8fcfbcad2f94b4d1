// SPDX-License-Identifier: Apache-2.0
// CUDA's vectors of two to four numbers.
#pragma once

#include <cstdint>

#define SWY_VECTORS(name, type, align2, align4)                                  \
  struct name##1 {                                                               \
    type x;                                                                      \
  };                                                                             \
  struct alignas(align2) name##2 {                                               \
    type x, y;                                                                   \
  };                                                                             \
  struct name##3 {                                                               \
    type x, y, z;                                                                \
  };                                                                             \
  struct alignas(align4) name##4 {                                               \
    type x, y, z, w;                                                             \
  };                                                                             \
  constexpr name##2 make_##name##2(type x, type y) { return {x, y}; }            \
  constexpr name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; } \
  constexpr name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

using uint = unsigned int;
SWY_VECTORS(char, signed char, 2, 4)
SWY_VECTORS(uchar, unsigned char, 2, 4)
SWY_VECTORS(short, short, 4, 8)
SWY_VECTORS(ushort, unsigned short, 4, 8)
SWY_VECTORS(int, int, 8, 16)
SWY_VECTORS(uint, unsigned int, 8, 16)
SWY_VECTORS(float, float, 8, 16)
SWY_VECTORS(double, double, 16, 16)
SWY_VECTORS(longlong, long long, 16, 16)
SWY_VECTORS(ulonglong, unsigned long long, 16, 16)
#undef SWY_VECTORS

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}  // NOLINT: CUDA's converts
};
