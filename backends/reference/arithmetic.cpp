// SPDX-License-Identifier: Apache-2.0
#include "arithmetic.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace reference {
namespace {

// Tests with sanitizers would spend nine tenths of their time here, so this loop is compiled without them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SWY_AS_RELEASED __attribute__((no_sanitize("address,thread,undefined"), optimize("O3")))
#else
#define SWY_AS_RELEASED
#endif

// The same functions for three processors. Lanes are added in the same order in each, and products of two floats are
// exact in fp64, so that adding one in the same instruction changes nothing: all give the same bits.
#define SWY_REFERENCE_DOT(name, target_attribute)                                                             \
  SWY_AS_RELEASED target_attribute double name(const float* a, const float* b, uint64_t n) {                  \
    double lanes[8] = {};                                                                                     \
    uint64_t i = 0;                                                                                           \
    for (; i + 8 <= n; i += 8) {                                                                              \
      for (int l = 0; l < 8; ++l) lanes[l] += static_cast<double>(a[i + l]) * static_cast<double>(b[i + l]);  \
    }                                                                                                         \
    for (; i < n; ++i) lanes[i % 8] += static_cast<double>(a[i]) * static_cast<double>(b[i]);                 \
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7])); \
  }                                                                                                           \
  void name##_block(const Block& rows, const float* x, uint64_t n, Sums& sums) {                              \
    for (uint64_t k = 0; k < kBlock; ++k) sums[k] = name(rows[k], x, n);                                      \
  }
SWY_REFERENCE_DOT(dot_baseline, )
#if defined(__x86_64__)
SWY_REFERENCE_DOT(dot_v3, __attribute__((target("arch=x86-64-v3"))))

// The lanes in a register for each of `count` rows, which the compiler does not make of the loops above.
// Where a mask says "all of it", the form without one makes GCC 12 warn of its own headers.
#define SWY_V4 __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx512cd,fma")))
constexpr __mmask8 kAll = 0xff;
template <uint64_t count>
SWY_AS_RELEASED SWY_V4 void sums_v4(const float* const* rows, const float* x, uint64_t n, double* sums) {
  __m512d lanes[count];
  for (uint64_t k = 0; k < count; ++k) lanes[k] = _mm512_setzero_pd();
  uint64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m512d eight = _mm512_maskz_cvtps_pd(kAll, _mm256_loadu_ps(x + i));
    for (uint64_t k = 0; k < count; ++k) {
      lanes[k] = _mm512_fmadd_pd(_mm512_maskz_cvtps_pd(kAll, _mm256_loadu_ps(rows[k] + i)), eight, lanes[k]);
    }
  }
  if (i < n) {
    const auto left = static_cast<__mmask8>((1u << (n - i)) - 1);
    const __m512d some = _mm512_maskz_cvtps_pd(kAll, _mm256_maskz_loadu_ps(left, x + i));
    for (uint64_t k = 0; k < count; ++k) {
      lanes[k] = _mm512_mask3_fmadd_pd(_mm512_maskz_cvtps_pd(kAll, _mm256_maskz_loadu_ps(left, rows[k] + i)), some,
                                       lanes[k], left);
    }
  }
  for (uint64_t k = 0; k < count; ++k) {
    const __m256d four =
        _mm256_add_pd(_mm512_maskz_extractf64x4_pd(kAll, lanes[k], 0), _mm512_maskz_extractf64x4_pd(kAll, lanes[k], 1));
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    sums[k] = _mm_cvtsd_f64(two) + _mm_cvtsd_f64(_mm_unpackhi_pd(two, two));
  }
}
SWY_V4 double dot_v4(const float* a, const float* b, uint64_t n) {
  double sum;
  sums_v4<1>(&a, b, n, &sum);
  return sum;
}
SWY_V4 void dot_v4_block(const Block& rows, const float* x, uint64_t n, Sums& sums) {
  sums_v4<kBlock>(rows, x, n, sums);
}
#endif

struct Dots {
  double (*one)(const float*, const float*, uint64_t);
  void (*block)(const Block&, const float*, uint64_t, Sums&);
};

Dots choose_dots() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512cd")) {
    return {dot_v4, dot_v4_block};
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) {
    return {dot_v3, dot_v3_block};
  }
#endif
  return {dot_baseline, dot_baseline_block};
}

}  // namespace

double (*const dot)(const float*, const float*, uint64_t) = choose_dots().one;
void (*const dots)(const Block&, const float*, uint64_t, Sums&) = choose_dots().block;

void linear_rows(const swy::Call& call, const Weight& w, const float* x, uint32_t rows, float* y, uint64_t stride,
                 float* row_scratch, const Weight* bias) {
  const uint64_t in = w.width();
  const auto [first, last] = call.split(w.rows());
  for (uint64_t o = first; o < last; o += kBlock) {
    const uint64_t count = std::min(kBlock, last - o);
    Block block;
    fill(block, count, [&](uint64_t k) { return w.row(o + k, row_scratch + k * in); });
    for (uint32_t r = 0; r < rows; ++r) {
      Sums sums;
      dots(block, x + r * in, in, sums);
      for (uint64_t k = 0; k < count; ++k) {
        y[r * stride + o + k] = static_cast<float>(sums[k] + (bias == nullptr ? 0.0 : bias->at(o + k)));
      }
    }
  }
}

void rms_norm_row(const float* x, const Weight& w, double bias, double eps, uint64_t n, float* y) {
  const double factor = 1.0 / std::sqrt(dot(x, x, n) / static_cast<double>(n) + eps);
  for (uint64_t i = 0; i < n; ++i) y[i] = static_cast<float>(x[i] * factor * (bias + w.at(i)));
}

void gated_rms_norm_row(const float* x, const float* z, const Weight& w, double eps, uint64_t n, float* y) {
  const double factor = 1.0 / std::sqrt(dot(x, x, n) / static_cast<double>(n) + eps);
  for (uint64_t i = 0; i < n; ++i) y[i] = static_cast<float>(x[i] * factor * w.at(i) * silu(z[i]));
}

double generic_cost(const swy_op& op, const swy_bucket& bucket) {
  double work = 0;
  for (uint32_t i = 0; i < op.weight_count; ++i) {
    double elements = 1;
    for (uint32_t d = 0; d < op.weights[i]->rank; ++d) elements *= static_cast<double>(op.weights[i]->dims[d]);
    work += elements;
  }
  work *= bucket.rows;
  for (uint32_t i = 0; i < op.output_count; ++i) {
    work += static_cast<double>(op.outputs[i]->dims[0]) * static_cast<double>(op.outputs[i]->dims[1]) * 8;
  }
  return cost_of(work);
}

}  // namespace reference
