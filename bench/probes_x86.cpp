// The probes' loops for x86-64. This file is compiled for the widest instructions; each loop asks the processor first.
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>

#include "bench/probes.h"

namespace switchyard::bench::loops {
namespace {

struct Cpu {
  bool avx2 = false, avx512 = false, vnni = false, amx_int8 = false, amx_bf16 = false;
};

const Cpu& cpu() {
  static const Cpu found = [] {
    Cpu c;
    c.avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
    c.avx512 = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0;
    c.vnni = c.avx512 && __builtin_cpu_supports("avx512vnni") != 0;
    uint32_t a = 0, b = 0, x = 0, d = 0;
    constexpr long kRequestPermission = 0x1023, kTileData = 18;
    if (__get_cpuid_count(7, 0, &a, &b, &x, &d) != 0 && (d >> 24 & 1u) != 0 &&
        syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0) {
      c.amx_int8 = (d >> 25 & 1u) != 0;
      c.amx_bf16 = (d >> 22 & 1u) != 0;
    }
    return c;
  }();
  return found;
}

// Repeats `body`, which does `work` operations, for about `seconds`; operations per second.
template <class Body>
double rate(double work, double seconds, Body body) {
  const auto begin = std::chrono::steady_clock::now();
  double elapsed = 0, total = 0;
  while (elapsed < seconds) {
    body();
    total += work;
    elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  return total / elapsed;
}

constexpr int kTurns = 20000;  // of an inner loop: some tens of microseconds
volatile float sink_float;
volatile int sink_int;

double fp32_avx512(double seconds) {
  return rate(16.0 * 2 * 16 * kTurns, seconds, [] {
    __m512 a[16];
#pragma GCC unroll 16
    for (auto& x : a) {
      x = _mm512_setzero_ps();
      __asm__ volatile("" : "+v"(x));  // or the compiler sees that all sixteen are equal, and computes one
    }
    const __m512 m = _mm512_set1_ps(1.0001f), k = _mm512_set1_ps(1e-9f);
    for (int i = 0; i < kTurns; ++i) {
#pragma GCC unroll 16
      for (auto& x : a) x = _mm512_fmadd_ps(x, m, k);
    }
    for (int i = 1; i < 16; ++i) a[0] = _mm512_add_ps(a[0], a[i]);
    sink_float = _mm512_reduce_add_ps(a[0]);
  });
}

double fp32_avx2(double seconds) {
  return rate(12.0 * 2 * 8 * kTurns, seconds, [] {
    __m256 a[12];
#pragma GCC unroll 16
    for (auto& x : a) {
      x = _mm256_setzero_ps();
      __asm__ volatile("" : "+x"(x));
    }
    const __m256 m = _mm256_set1_ps(1.0001f), k = _mm256_set1_ps(1e-9f);
    for (int i = 0; i < kTurns; ++i) {
#pragma GCC unroll 16
      for (auto& x : a) x = _mm256_fmadd_ps(x, m, k);
    }
    for (int i = 1; i < 12; ++i) a[0] = _mm256_add_ps(a[0], a[i]);
    sink_float = _mm256_cvtss_f32(a[0]);
  });
}

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Runs `body` with eight tiles of zeros.
template <class Body>
double on_tiles(double seconds, Body body) {
  const TileConfig config;
  __asm__ volatile("" : : "r"(&config) : "memory");  // GCC 12 declares 8 of the 64 bytes that the next line reads
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  const double r = body(seconds);
  _tile_release();
  return r;
}

}  // namespace

double read(const void* data, uint64_t bytes, double seconds) {
  const auto* p = static_cast<const char*>(data);
  if (!cpu().avx512) {
    return rate(static_cast<double>(bytes), seconds, [&] {
      __m128i sum = _mm_setzero_si128();
      for (uint64_t i = 0; i < bytes; i += 64) {
        for (int k = 0; k < 4; ++k) {
          sum = _mm_xor_si128(sum, _mm_load_si128(reinterpret_cast<const __m128i*>(p + i) + k));
        }
      }
      sink_int = _mm_cvtsi128_si32(sum);
    });
  }
  return rate(static_cast<double>(bytes), seconds, [&] {
    __m512i sum[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
    for (uint64_t i = 0; i < bytes; i += 256) {
      for (int k = 0; k < 4; ++k) {
        _mm_prefetch(p + i + 4096 + 64 * k, _MM_HINT_T0);
        sum[k] = _mm512_xor_si512(sum[k], _mm512_load_si512(p + i + 64 * k));
      }
    }
    const __m512i all = _mm512_xor_si512(_mm512_xor_si512(sum[0], sum[1]), _mm512_xor_si512(sum[2], sum[3]));
    sink_int = _mm512_reduce_add_epi32(all);
  });
}

double fp32(double seconds) { return cpu().avx512 ? fp32_avx512(seconds) : cpu().avx2 ? fp32_avx2(seconds) : 0; }

double vnni(double seconds) {
  if (!cpu().vnni) return 0;
  return rate(16.0 * 2 * 64 * kTurns, seconds, [] {
    __m512i a[16];
#pragma GCC unroll 16
    for (auto& x : a) {
      x = _mm512_setzero_si512();
      __asm__ volatile("" : "+v"(x));
    }
    const __m512i u = _mm512_set1_epi8(3), s = _mm512_set1_epi8(-2);
    for (int i = 0; i < kTurns; ++i) {
#pragma GCC unroll 16
      for (auto& x : a) x = _mm512_dpbusd_epi32(x, u, s);
    }
    for (int i = 1; i < 16; ++i) a[0] = _mm512_add_epi32(a[0], a[i]);
    sink_int = _mm512_reduce_add_epi32(a[0]);
  });
}

double amx_int8(double seconds) {
  if (!cpu().amx_int8) return 0;
  return on_tiles(seconds, [](double s) {
    return rate(4.0 * 2 * 16 * 16 * 64 * kTurns / 10, s, [] {
      for (int i = 0; i < kTurns / 10; ++i) {
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
      }
    });
  });
}

double amx_bf16(double seconds) {
  if (!cpu().amx_bf16) return 0;
  return on_tiles(seconds, [](double s) {
    return rate(4.0 * 2 * 16 * 16 * 32 * kTurns / 10, s, [] {
      for (int i = 0; i < kTurns / 10; ++i) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
    });
  });
}

}  // namespace switchyard::bench::loops
