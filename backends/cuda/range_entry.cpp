// SPDX-License-Identifier: Apache-2.0
#include "range_entry.h"

#include <algorithm>

#include "linear/linear_two.h"

namespace gpu {
namespace {

enum Place : uint32_t { kEmbedding, kNormOfEmbedding, kNormOfRows, kFirst, kSecond, kSum };

TwoOps two_of(const swy_op* const* ops) {
  return {*ops[kEmbedding], *ops[kNormOfEmbedding], *ops[kNormOfRows], *ops[kFirst], *ops[kSecond]};
}

// The projection of the embedding: the first one or the second.
Place of_embedding(const swy_range_values& v) {
  return v.inputs[kFirst][0] == v.outputs[kNormOfEmbedding][0] ? kFirst : kSecond;
}

}  // namespace

bool begins_entry(const swy_op* const* ops, uint32_t n) {
  return begins(ops, n, {SWY_OP_EMBEDDING, SWY_OP_RMS_NORM, SWY_OP_RMS_NORM, SWY_OP_LINEAR, SWY_OP_LINEAR, SWY_OP_ADD});
}

swy_status supports_entry(const swy_device& device, const swy_op* const* ops, swy_error* error) {
  return supports_two(device, two_of(ops), error);
}

double entry_cost(const swy_device& device, const swy_op* const* ops) { return two_cost(device, two_of(ops)); }

swy_status accept_entry(const swy_range_values& v, swy_error* error) {
  const auto made = [&](Place op) { return v.outputs[op][0]; };
  const auto reads = [&](Place op, uint32_t value) { return v.inputs[op][0] == value; };
  const Place first = of_embedding(v), second = first == kFirst ? kSecond : kFirst;
  const uint32_t rows = v.inputs[kNormOfRows][0];
  bool fits = reads(kNormOfEmbedding, made(kEmbedding)) && reads(first, made(kNormOfEmbedding)) &&
              reads(second, made(kNormOfRows)) &&
              std::minmax(v.inputs[kSum][0], v.inputs[kSum][1]) == std::minmax(made(kFirst), made(kSecond));
  for (uint32_t op = kEmbedding; op < kSum; ++op) {
    fits = fits && rows != v.outputs[op][0] && v.kept[v.outputs[op][0]] == 0;
  }
  if (fits) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                   "the first norm must read the embedding, the other one a value from outside, the projections the "
                   "norms, and the add the projections, of which nothing else is read outside");
}

swy_status record_entry(swy_list* list, const swy_range_operands& o, swy_error* error) {
  const auto operands = [&](uint32_t op) { return Operands{*o.ops[op], *o.bindings[op]}; };
  const Place first = of_embedding(*o.values), second = first == kFirst ? kSecond : kFirst;
  TwoInputs in{};
  in.table = operands(kEmbedding).weight("table");
  in.rows = operands(kNormOfRows).input("x");
  in.y = operands(kSum).output(0);
  for (uint32_t side = 0; side < 2; ++side) {
    const uint32_t norm = kNormOfEmbedding + side;
    const auto& a = *static_cast<const swy_rms_norm_attrs*>(o.ops[norm]->attrs);
    in.norms[side] = operands(norm).weight("w");
    in.eps[side] = a.eps, in.bias[side] = a.weight_bias;
    in.weights[side] = operands(side == 0 ? first : second).weight("w");
  }
  const Operands linear = operands(kFirst);
  return record_two({*list, *o.ops[kFirst], linear, error}, in);
}

}  // namespace gpu
