// SPDX-License-Identifier: Apache-2.0
// Extensions of the tile shaders, and the shape of their tiles; included first.
#extension GL_GOOGLE_include_directive : require
#ifdef COOPERATIVE
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#ifndef EMULATE
#pragma use_vulkan_memory_model
#extension GL_KHR_memory_scope_semantics : require
#extension GL_NV_cooperative_matrix : require
#endif
// TILE_M rows of A and TILE_N of B, TILE_K elements of them at a time; a subgroup has SUB_M x SUB_N.
#ifndef TILE_M
#define TILE_M 128
#endif
#ifndef TILE_N
#define TILE_N 128
#endif
#ifndef TILE_K
#define TILE_K 64
#endif
#ifndef SUB_M
#define SUB_M 32
#endif
#ifndef SUB_N
#define SUB_N 64
#endif
#define TILE_THREADS (TILE_M / SUB_M * (TILE_N / SUB_N) * 32)
#else
#define TILE_THREADS 256
#endif
