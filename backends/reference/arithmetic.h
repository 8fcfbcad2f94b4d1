// SPDX-License-Identifier: Apache-2.0
// Shared by the kernels: sums in fp64 in one fixed order, weights as fp32 rows, and cost estimates.
//
// Every output element is one such sum, or a fixed chain of them, whatever the team, the chunk or the other rows are.
// This makes the backend deterministic and batch-invariant. A composite calls the functions of its pieces, so both give
// the same bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include "switchyard/sdk/kernel.hpp"
#include "switchyard/weights.h"

namespace reference {

// Sum of a[i] * b[i]. Products of two floats are exact in fp64; eight partial sums are combined in a fixed order.
extern double (*const dot)(const float* a, const float* b, uint64_t n);

// Weight rows that are multiplied with one x at a time: their sums, each as `dot` gives it, do not wait for each other.
inline constexpr uint64_t kBlock = 4;
using Block = const float* [kBlock];
using Sums = double[kBlock];
extern void (*const dots)(const Block& rows, const float* x, uint64_t n, Sums& sums);
// row(k) for k below `count`, at least 1; the sums of the other rows are nobody's.
template <class Row>
void fill(Block& block, uint64_t count, Row row) {
  block[0] = row(0);
  for (uint64_t k = 1; k < kBlock; ++k) block[k] = k < count ? row(k) : block[0];
}

inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
inline double silu(double x) { return x * sigmoid(x); }

// act(gate, up) of ops.h.
inline double activate(const swy_activation_attrs& a, double gate, double up) {
  if (a.activation == SWY_ACT_SILU) return silu(gate) * up;
  const double limit = a.act_limit, g = std::min(gate, limit), u = std::min(std::max(up, -limit), limit);
  return g * sigmoid(a.act_alpha * g) * (u + 1);
}
// Of the attributes of an operation that has an activation.
template <class Attrs>
swy_activation_attrs activation_of(const Attrs& a) {
  return {sizeof(swy_activation_attrs), a.activation, a.act_alpha, a.act_limit};
}

// swy_kernel.weight_dtypes of all kernels that read matrices: every type.
inline constexpr uint32_t kMatrices = SWY_DTYPE_BIT(SWY_F32) | SWY_DTYPE_BIT(SWY_BF16) | SWY_DTYPE_BIT(SWY_I8) |
                                      SWY_DTYPE_BIT(SWY_I4) | SWY_DTYPE_BIT(SWY_I4A) | SWY_DTYPE_BIT(SWY_MXFP4);

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

// Empty where the operation does not have it.
inline std::optional<Weight> optional_weight(const swy::Call& call, swy::OperandName name) {
  return swy::has(*call.op, name) ? std::optional<Weight>(std::in_place, call, name) : std::nullopt;
}

// Per-member scratch of `floats` inside a workspace that begins with it.
inline uint64_t scratch_bytes(uint64_t floats) { return swy_align64(floats * 4) * swy::team_width; }
inline float* scratch(const swy::Call& call, uint64_t floats) {
  return call.work<float>(swy_align64(floats * 4) * call.rank());
}

// y[r, o] = x[r] . w[o] + bias[o] for rows [0, rows), all outputs split over the team. `stride` is y's width; without a
// bias it is NULL. `row_scratch` has kBlock rows of w.
void linear_rows(const swy::Call& call, const Weight& w, const float* x, uint32_t rows, float* y, uint64_t stride,
                 float* row_scratch, const Weight* bias = nullptr);

// The experts of each row and their weights [rows, top_k], as MOE has them, from its router's logits [rows, experts].
// `choices` [rows, experts] is scratch, which only a router that has_choices needs. The rows are split over the team.
inline bool has_choices(const swy_moe_attrs& a) { return a.correction_bias != 0 || a.expert_groups > 1; }
void route(const swy::Call& call, const swy_moe_attrs& a, const float* logits, double* choices, int32_t* ids,
           float* weights);

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
