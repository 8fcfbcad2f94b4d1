// SPDX-License-Identifier: Apache-2.0
// The probes' loops for x86-64. Each function names the instructions that it is compiled for, and is returned only if
// the processor has them: the rest of this file runs on any processor.
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench/probes.h"

namespace switchyard::bench::bursts {
namespace {

constexpr int kTurns = 20000;
volatile float sink_float;
volatile int sink_int;

bool has_avx2() { return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0; }
bool has_avx512() { return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0; }

// One bit of CPUID leaf 7: registers are numbered from eax.
bool leaf7(uint32_t subleaf, int reg, int bit) {
  uint32_t r[4] = {};
  return __get_cpuid_count(7, subleaf, &r[0], &r[1], &r[2], &r[3]) != 0 && ((r[reg] >> bit) & 1u) != 0;
}

// Linux gives tile registers only to a process that has requested them.
bool has_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return leaf7(0, 3, 24) && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// ---- vectors: enough independent sums to hide the latency of one. The compiler must not know that they begin equal,
// or it computes one for all.

[[gnu::target("avx512f")]] void fp32_avx512() {
  __m512 a[16];
  const __m512 m = _mm512_set1_ps(1.0001f), k = _mm512_set1_ps(1e-9f);
#pragma GCC unroll 16
  for (int j = 0; j < 16; ++j) {
    a[j] = _mm512_setzero_ps();
    __asm__ volatile("" : "+v"(a[j]));
  }
  for (int i = 0; i < kTurns; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j) a[j] = _mm512_fmadd_ps(a[j], m, k);
  }
#pragma GCC unroll 16
  for (int j = 1; j < 16; ++j) a[0] = _mm512_add_ps(a[0], a[j]);
  sink_float = _mm512_cvtss_f32(a[0]);
}

[[gnu::target("avx2,fma")]] void fp32_avx2() {
  __m256 a[12];
  const __m256 m = _mm256_set1_ps(1.0001f), k = _mm256_set1_ps(1e-9f);
#pragma GCC unroll 12
  for (int j = 0; j < 12; ++j) {
    a[j] = _mm256_setzero_ps();
    __asm__ volatile("" : "+x"(a[j]));
  }
  for (int i = 0; i < kTurns; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < 12; ++j) a[j] = _mm256_fmadd_ps(a[j], m, k);
  }
#pragma GCC unroll 12
  for (int j = 1; j < 12; ++j) a[0] = _mm256_add_ps(a[0], a[j]);
  sink_float = _mm256_cvtss_f32(a[0]);
}

[[gnu::target("avx512f,avx512bw,avx512vnni")]] void vnni_avx512() {
  __m512i a[16];
  const __m512i u = _mm512_set1_epi8(3), s = _mm512_set1_epi8(-2);
#pragma GCC unroll 16
  for (int j = 0; j < 16; ++j) {
    a[j] = _mm512_setzero_si512();
    __asm__ volatile("" : "+v"(a[j]));
  }
  for (int i = 0; i < kTurns; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j) a[j] = _mm512_dpbusd_epi32(a[j], u, s);
  }
#pragma GCC unroll 16
  for (int j = 1; j < 16; ++j) a[0] = _mm512_add_epi32(a[0], a[j]);
  sink_int = _mm512_cvtsi512_si32(a[0]);
}

[[gnu::target("avx2,avxvnni")]] void vnni_avx2() {
  __m256i a[12];
  const __m256i u = _mm256_set1_epi8(3), s = _mm256_set1_epi8(-2);
#pragma GCC unroll 12
  for (int j = 0; j < 12; ++j) {
    a[j] = _mm256_setzero_si256();
    __asm__ volatile("" : "+x"(a[j]));
  }
  for (int i = 0; i < kTurns; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < 12; ++j) a[j] = _mm256_dpbusd_avx_epi32(a[j], u, s);
  }
#pragma GCC unroll 12
  for (int j = 1; j < 12; ++j) a[0] = _mm256_add_epi32(a[0], a[j]);
  sink_int = _mm256_cvtsi256_si32(a[0]);
}

// ---- tiles: sums in 0 to 3, operands in 4 to 7

constexpr int kTileTurns = kTurns / 10;

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// The same 16 bits everywhere: 1 as bf16, and small numbers as bytes.
struct alignas(64) TileData {
  uint16_t values[16 * 32];
  TileData() {
    for (uint16_t& v : values) v = 0x3f80;
  }
};

[[gnu::target("amx-tile")]] void tiles_begin() {
  const TileConfig config;
  static const TileData data;
  __asm__ volatile("" : : "r"(&config) : "memory");  // GCC 12 declares 8 of the 64 bytes that the next line reads
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, data.values, 64);
  _tile_loadd(5, data.values, 64);
  _tile_loadd(6, data.values, 64);
  _tile_loadd(7, data.values, 64);
}

[[gnu::target("amx-tile,amx-int8")]] void tiles_int8() {
  tiles_begin();
  for (int i = 0; i < kTileTurns; ++i) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  _tile_release();
}

[[gnu::target("amx-tile,amx-bf16")]] void tiles_bf16() {
  tiles_begin();
  for (int i = 0; i < kTileTurns; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
}

// ---- memory: the widest loads, prefetched ahead of the hardware's own guess

constexpr uint64_t kAhead = 4096;

[[gnu::target("avx512f")]] void read_avx512(const char* p, uint64_t bytes) {
  __m512i sum[4];
  for (__m512i& s : sum) s = _mm512_setzero_si512();
  for (uint64_t i = 0; i < bytes; i += 256) {
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      _mm_prefetch(p + i + kAhead + 64 * k, _MM_HINT_T0);
      sum[k] = _mm512_xor_si512(sum[k], _mm512_load_si512(p + i + 64 * k));
    }
  }
  const __m512i all = _mm512_xor_si512(_mm512_xor_si512(sum[0], sum[1]), _mm512_xor_si512(sum[2], sum[3]));
  sink_int = _mm512_cvtsi512_si32(all);
}

void read_sse2(const char* p, uint64_t bytes) {
  __m128i sum[4];
  for (__m128i& s : sum) s = _mm_setzero_si128();
  for (uint64_t i = 0; i < bytes; i += 64) {
    _mm_prefetch(p + i + kAhead, _MM_HINT_T0);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      sum[k] = _mm_xor_si128(sum[k], _mm_load_si128(reinterpret_cast<const __m128i*>(p + i) + k));
    }
  }
  sink_int = _mm_cvtsi128_si32(_mm_xor_si128(_mm_xor_si128(sum[0], sum[1]), _mm_xor_si128(sum[2], sum[3])));
}

}  // namespace

Burst fp32() {
  if (has_avx512()) return {fp32_avx512, 16.0 * 2 * 16 * kTurns};
  if (has_avx2()) return {fp32_avx2, 12.0 * 2 * 8 * kTurns};
  return {};
}

Burst vnni() {
  if (has_avx512() && __builtin_cpu_supports("avx512vnni") != 0) return {vnni_avx512, 16.0 * 2 * 64 * kTurns};
  if (has_avx2() && leaf7(1, 0, 4)) return {vnni_avx2, 12.0 * 2 * 32 * kTurns};
  return {};
}

Burst amx_int8() {
  if (!leaf7(0, 3, 25) || !has_tiles()) return {};
  return {tiles_int8, 4.0 * 2 * 16 * 16 * 64 * kTileTurns};
}

Burst amx_bf16() {
  if (!leaf7(0, 3, 22) || !has_tiles()) return {};
  return {tiles_bf16, 4.0 * 2 * 16 * 16 * 32 * kTileTurns};
}

void read(const void* data, uint64_t bytes) {
  const auto* p = static_cast<const char*>(data);
  if (has_avx512()) {
    read_avx512(p, bytes);
  } else {
    read_sse2(p, bytes);
  }
}

}  // namespace switchyard::bench::bursts
