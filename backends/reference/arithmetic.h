// SPDX-License-Identifier: Apache-2.0
// Shared by the kernels: sums in fp64 in one fixed order, weights as fp32 rows, and cost estimates.
//
// Every output element is one such sum, or a fixed chain of them, whatever the team, the chunk or the other rows are.
// This makes the backend deterministic and batch-invariant. A composite calls the functions of its pieces, so both give
// the same bits.
#pragma once

#include <cmath>
#include <cstdint>

#include "switchyard/sdk/kernel.hpp"
#include "switchyard/weights.h"

namespace reference {

// Sum of a[i] * b[i]. Products of two floats are exact in fp64; eight partial sums are combined in a fixed order.
extern double (*const dot)(const float* a, const float* b, uint64_t n);

inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
inline double silu(double x) { return x * sigmoid(x); }

// A weight operand: its description, its planes, its bytes.
class Weight {
 public:
  Weight(const swy::Call& call, swy::OperandName name) : Weight(call, swy::at(*call.op, name)) {}
  Weight(const swy::Call& call, uint32_t index) : tensor_(call.op->weights[index]), data_(call.weights[index]) {
    swy_weight_planes_of(tensor_, &planes_);
  }
  uint64_t rows() const { return planes_.rows; }
  uint64_t width() const { return tensor_->dims[tensor_->rank - 1]; }
  // fp32 values of a row: in place if they are stored like that, otherwise in `scratch` [width].
  const float* row(uint64_t r, float* scratch) const {
    if (tensor_->dtype == SWY_F32) return static_cast<const float*>(data_) + r * width();
    swy_weight_row(tensor_, &planes_, data_, r, scratch);
    return scratch;
  }
  // One element of a plain (fp32 or bf16) weight.
  double at(uint64_t i) const {
    if (tensor_->dtype == SWY_F32) return static_cast<const float*>(data_)[i];
    return swy_bf16_to_f32(static_cast<const uint16_t*>(data_)[i]);
  }

 private:
  const swy_tensor* tensor_;
  const void* data_;
  swy_weight_planes planes_;
};

// Per-member scratch of `floats` inside a workspace that begins with it.
inline uint64_t scratch_bytes(uint64_t floats) { return swy_align64(floats * 4) * swy::team_width; }
inline float* scratch(const swy::Call& call, uint64_t floats) {
  return call.work<float>(swy_align64(floats * 4) * call.rank());
}

// y[r, first_output + o] = x[r] . w[o] for rows [0, rows), all outputs split over the team. `stride` is y's width.
void linear_rows(const swy::Call& call, const Weight& w, const float* x, uint32_t rows, float* y, uint64_t stride,
                 float* row_scratch);

// LM_HEAD: logits [logit rows, vocab] of the wanted rows, gathered into `rows` first.
void lm_head_rows(const swy::Call& call, const Weight& w, float* rows, float* logits);

// Norm over [n], with the weight w[i] + bias: y may be x.
void rms_norm_row(const float* x, const Weight& w, double bias, double eps, uint64_t n, float* y);

// rms_norm(x) * w * silu(z) over [n]: y may be x.
void gated_rms_norm_row(const float* x, const float* z, const Weight& w, double eps, uint64_t n, float* y);

// Microseconds at a nominal, slow rate, so that any other backend is cheaper.
inline double cost_of(double multiply_adds) { return 5.0 + multiply_adds / 500.0; }
// Default estimate: every weight element times every row, plus the activations.
double generic_cost(const swy_op& op, const swy_bucket& bucket);

}  // namespace reference
