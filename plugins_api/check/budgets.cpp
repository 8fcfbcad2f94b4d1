// SPDX-License-Identifier: Apache-2.0
// Where the numbers come from
//
// fp32. One rounding is 2^-24 = 6e-8 of a value. A sum of K products in fp32 errs by about sqrt(K) roundings, 3e-6 for
// K = 2048, and by less when it is cut into lanes; a chain of elementwise functions by a few roundings, and by more
// where exp is approximated to some units in the last place. Each budget is 3 to 10 times what plain fp32 kernels with
// fp32 accumulation measure; the reference backend, with sums in fp64, stays below 2e-7 everywhere.
//
// bf16. Rounding to 8 bits of mantissa errs by at most 2^-9 of a value, 2^-9 / sqrt(3) = 1.1e-3 on average over values
// (rms). The errors of a product's terms are independent, so that the sum has the same relative error as its terms;
// with activations and dequantized weights both rounded, 1.6e-3, and some times that for a row whose terms cancel.
//
// fp16. Three bits of mantissa more than bf16, so an eighth of its budget. A kernel that computes in fp32 names it if
// states that it keeps from step to step are that exact, or more. (The suite `states` learns from the device how exact
// they are, and holds a step to one rounding.)
//
// int8. One scale per block of activations, the largest value being 127: the step is largest / 127 and its error
// step / sqrt(12) in rms. The largest of 32 to 128 normal values is 2 to 3 times their rms: 2.8 / (127 sqrt(12)) = 6e-3
// of a product, 1 / 254 of the largest value at most per element. The experts quantize twice, and silu(gate) * up has
// longer tails (largest 5 times the rms): 1.5e-2.
//
// A row of keys or values in int8 is stored, not multiplied: of 256 normal values the largest is 2.9 times their rms on
// average and seldom beyond 4, so that the error of a row is (2.9 to 4) / (127 sqrt(12)) = 6.6e-3 to 9.1e-3; narrow
// rows have smaller ones. One element is off by half a step, 1 / 254 of the largest, at most: 4 / 254 / 8 = 2e-3 of the
// measure of single elements. Cut off instead of rounded, the error would be twice as large.
//
// An affine encoding (i4a) adds the offset times the sum of the activations, which cancels most of the quants' share:
// rounding weighs twice as much.
#include "plugins_api/check/budgets.h"

#include <algorithm>
#include <iterator>

namespace switchyard::check {
namespace {

struct Entry {
  swy_op_id op;
  Budget fp32, bf16, int8;
};

constexpr Budget kExact = {0, 0};
constexpr Budget kElement = {1e-6, 5e-7};      // a few roundings per element
constexpr Budget kNorm = {3e-6, 1.5e-6};       // a sum of squares, a root, a quotient
constexpr Budget kSum = {1e-5, 5e-6};          // a product
constexpr Budget kSums = {3e-5, 1e-5};         // products of products
constexpr Budget kRoundedBf16 = {4e-3, 3e-3};  // rounded once, by at most 2^-8; cut off would be 3.3e-3 on average
constexpr Budget kRoundedInt8 = {1.2e-2, 8e-3};
constexpr Budget kElementBf16 = {8e-3, 4e-3};
constexpr Budget kSumBf16 = {1.5e-2, 8e-3};
constexpr Budget kSumsBf16 = {4e-2, 2e-2};
constexpr Budget kSumInt8 = {4e-2, 2e-2};
constexpr Budget kSumsInt8 = {8e-2, 4e-2};

constexpr Entry kTable[] = {
    {SWY_OP_EMBEDDING, kElement, kElementBf16, kElementBf16},
    {SWY_OP_RMS_NORM, kNorm, kElementBf16, kElementBf16},
    {SWY_OP_LINEAR, kSum, kSumBf16, kSumInt8},
    {SWY_OP_ATTENTION, kSum, kSumBf16, kSumInt8},
    {SWY_OP_GATED_DELTA, kSums, kSumsBf16, kSumsInt8},
    {SWY_OP_MOE, kSums, kSumsBf16, kSumsInt8},
    {SWY_OP_MLP, kSums, kSumsBf16, kSumsInt8},
    {SWY_OP_ADD, kElement, kElementBf16, kElementBf16},
    {SWY_OP_LM_HEAD, kSum, kSumBf16, kSumInt8},
    {SWY_OP_SAMPLE, kExact, kExact, kExact},
    {SWY_OP_TOP_CANDIDATES, kExact, kExact, kExact},

    {SWY_OP_ADD_RMS_NORM, kNorm, kElementBf16, kElementBf16},
    {SWY_OP_RMS_NORM_LINEAR, kSum, kSumBf16, kSumInt8},
    {SWY_OP_LINEAR_ADD, kSum, kSumBf16, kSumInt8},
    {SWY_OP_MOE_ADD, kSums, kSumsBf16, kSumsInt8},
    {SWY_OP_MLP_ADD, kSums, kSumsBf16, kSumsInt8},
    {SWY_OP_LM_HEAD_SAMPLE, kExact, kExact, kExact},  // of the same backend's LM_HEAD

    {SWY_OP_CAST, kExact, kExact, kExact},
    {SWY_OP_GATHER_ROWS, kExact, kExact, kExact},
    {SWY_OP_HEAD_SPLIT, kExact, kExact, kExact},
    {SWY_OP_HEAD_RMS_NORM, kNorm, kElementBf16, kElementBf16},
    {SWY_OP_ROPE, kSum, kElementBf16, kElementBf16},  // an angle of p radians is known to p * 6e-8
    {SWY_OP_KV_APPEND, kExact, kRoundedBf16, kRoundedInt8},
    {SWY_OP_ATTEND, kSum, kSumBf16, kSumInt8},
    {SWY_OP_SIGMOID_MUL, kElement, kElementBf16, kElementBf16},
    {SWY_OP_CAUSAL_CONV, kNorm, kElementBf16, kElementBf16},
    {SWY_OP_DELTA_GATES, kNorm, kNorm, kNorm},  // fp32 always
    {SWY_OP_DELTA_RULE, kSums, kSumsBf16, kSumsInt8},
    {SWY_OP_GATED_RMS_NORM, kNorm, kElementBf16, kElementBf16},
    {SWY_OP_ROUTER_TOPK, kElement, kElement, kElement},  // fp32 always
    {SWY_OP_EXPERTS, kSums, kSumsBf16, kSumsInt8},
    {SWY_OP_SILU_MUL, kElement, kElementBf16, kElementBf16},
    {SWY_OP_SIGMOID_SCALE_ADD, kElement, kElementBf16, kElementBf16},
};

Budget fp16_of(const Entry& e) {
  return {std::max(e.fp32.worst, e.bf16.worst / 8), std::max(e.fp32.mean, e.bf16.mean / 8)};
}

}  // namespace

Budget budget(swy_op_id op, swy_dtype encoding, swy_dtype activations, swy_dtype output) {
  const Entry* e = std::find_if(std::begin(kTable), std::end(kTable), [&](const Entry& x) { return x.op == op; });
  if (e == std::end(kTable)) return kExact;
  Budget b = activations == SWY_I8     ? e->int8
             : activations == SWY_BF16 ? e->bf16
             : activations == SWY_F16  ? fp16_of(*e)
                                       : e->fp32;
  if (encoding == SWY_I4A) b = {2 * b.worst, 2 * b.mean};
  if (output == SWY_BF16 && op != SWY_OP_CAST) {  // stored in bf16, whatever it was computed in
    b = {std::max(b.worst, kElementBf16.worst), std::max(b.mean, kElementBf16.mean)};
  }
  return b;
}

}  // namespace switchyard::check
