// SPDX-License-Identifier: Apache-2.0
#include "arithmetic.h"

namespace reference {
namespace {

// Tests with sanitizers would spend nine tenths of their time here, so this loop is compiled without them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SWY_AS_RELEASED __attribute__((no_sanitize("address,thread,undefined"), optimize("O3")))
#else
#define SWY_AS_RELEASED
#endif

// The same function for three processors. Lanes are added in the same order in each, so all give the same bits.
#define SWY_REFERENCE_DOT(name, target_attribute)                                                             \
  SWY_AS_RELEASED target_attribute double name(const float* a, const float* b, uint64_t n) {                  \
    double lanes[8] = {};                                                                                     \
    uint64_t i = 0;                                                                                           \
    for (; i + 8 <= n; i += 8) {                                                                              \
      for (int l = 0; l < 8; ++l) lanes[l] += static_cast<double>(a[i + l]) * static_cast<double>(b[i + l]);  \
    }                                                                                                         \
    for (; i < n; ++i) lanes[i % 8] += static_cast<double>(a[i]) * static_cast<double>(b[i]);                 \
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7])); \
  }
#if defined(__x86_64__)
SWY_REFERENCE_DOT(dot_v4, __attribute__((target("arch=x86-64-v4,prefer-vector-width=512"))))
SWY_REFERENCE_DOT(dot_v3, __attribute__((target("arch=x86-64-v3"))))
#endif
SWY_REFERENCE_DOT(dot_baseline, )

auto choose_dot() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512cd")) {
    return dot_v4;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) return dot_v3;
#endif
  return dot_baseline;
}

}  // namespace

double (*const dot)(const float*, const float*, uint64_t) = choose_dot();

void linear_rows(const swy::Call& call, const Weight& w, const float* x, uint32_t rows, float* y, uint64_t stride,
                 float* row_scratch, const Weight* bias) {
  const uint64_t in = w.width();
  const auto [first, last] = call.split(w.rows());
  for (uint64_t o = first; o < last; ++o) {
    const float* row = w.row(o, row_scratch);
    const double add = bias == nullptr ? 0.0 : bias->at(o);
    for (uint32_t r = 0; r < rows; ++r) y[r * stride + o] = static_cast<float>(dot(row, x + r * in, in) + add);
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
