// SPDX-License-Identifier: Apache-2.0
// Ranges of steps with few rows, on Hopper: the operations after the projections of a delta layer, and a mixture with
// its norm.
//
//   GATED_DELTA, LINEAR, ADD   up to four rows (not of three sequences): the kernel that reads the heads scales them by
//                              their norm; more sequences: the delta rule's kernel rounds the projection's rows
//   RMS_NORM, MOE, ADD         the norm likewise; with more rows the router's kernel computes it. Then also
//   ... RMS_NORM, LINEAR       behind it: the kernel that adds up the experts norms and rounds the projection's rows
#include "range.h"

#include "common/projection.cuh"
#include "gated_delta/gated_delta_batch.h"
#include "gated_delta/gated_delta_step.h"
#include "linear/linear_boxes.h"
#include "linear/linear_few_ready.h"
#include "moe/moe_boxes.h"
#include "moe/moe_grouped.h"

namespace gpu {
namespace {

constexpr uint32_t kLength = 3, kWithNext = 5;
constexpr uint32_t kMostSpared = 8;  // rows

enum class Kind { kNone, kDelta, kMixture };

// Ranges get values in the program's types; these kernels support only floats. The delta rule's have pending rows, too.
bool takes(const swy_op& op) {
  bool floats = op.revision == 1 || (op.id == SWY_OP_GATED_DELTA && op.revision == 2);
  for (uint32_t i = 0; i < op.input_count; ++i) floats = floats && op.inputs[i]->dtype == SWY_F32;
  for (uint32_t i = 0; i < op.output_count; ++i) floats = floats && op.outputs[i]->dtype == SWY_F32;
  return floats;
}

uint32_t rows_of(const swy_op& op) { return static_cast<uint32_t>(swy::tensor(op, "x").dims[0]); }

Kind kind_of(const swy_op* const* ops, uint32_t n) {
  if (n < kLength || ops[2]->id != SWY_OP_ADD) return Kind::kNone;
  for (uint32_t i = 0; i < kLength; ++i) {
    if (!takes(*ops[i])) return Kind::kNone;
  }
  if (ops[0]->id == SWY_OP_GATED_DELTA && ops[1]->id == SWY_OP_LINEAR && ops[1]->weight_count == 1) return Kind::kDelta;
  return ops[0]->id == SWY_OP_RMS_NORM && ops[1]->id == SWY_OP_MOE ? Kind::kMixture : Kind::kNone;
}

// Squares between the delta rule and the reader of its heads.
uint64_t squares_of_heads(const swy_op& op, uint64_t rows) {
  const auto& a = *static_cast<const swy_gated_delta_attrs*>(op.attrs);
  return rows * a.value_heads * head_parts(a.value_dim);
}

swy_status supports_delta(const swy_device& device, const swy_op* const* ops, const swy_bucket& bucket,
                          swy_error* error) {
  const auto& a = *static_cast<const swy_gated_delta_attrs*>(ops[0]->attrs);
  if (rows_of(*ops[1]) > kQuad) {
    SWY_CUDA_TRY(supports_delta_batch(device, *ops[0], bucket, error));
    return supports_few(device, *ops[1], error);
  }
  SWY_CUDA_TRY(supports_delta_step(device, *ops[0], bucket, error));
  if (rows_of(*ops[1]) == 3 && (bucket.flags & SWY_BUCKET_DECODE) != 0) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_FLAGS,
                     "three sequences are faster by gated_delta.batch and linear_add.boxes");
  }
  SWY_CUDA_TRY(supports_boxes(device, *ops[1], 0, error));
  if (a.value_dim == 32 || a.value_dim == 64 || a.value_dim == 128 || a.value_dim == 256) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "heads of %u values; 32, 64, 128 or 256 can be normed",
                   a.value_dim);
}

// Whether the kernels of moe_boxes.cu compute a mixture; a mixture of one row has no others.
bool by_boxes(const swy_device& device, const swy_op& op) {
  return rows_of(op) == 1 || supports_moe_boxes(device, op, nullptr) == SWY_OK;
}
swy_status supports_mixture(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  return by_boxes(device, op) ? supports_moe_boxes(device, op, error)
                              : supports_normed_grouped(device, op, bucket, error);
}

// Whether a mixture of more than four rows makes the operand of the projection behind it.
bool takes_next(const swy_device& device, const swy_op* const* ops, uint32_t n) {
  return n >= kWithNext && ops[3]->id == SWY_OP_RMS_NORM && ops[4]->id == SWY_OP_LINEAR && takes(*ops[3]) &&
         takes(*ops[4]) && rows_of(*ops[1]) > kQuad && !by_boxes(device, *ops[1]) &&
         supports_few(device, *ops[4], nullptr) == SWY_OK;
}

// The cost: a few microseconds for each kernel, and the bytes.
double cost_of_range(const swy_device& device, Kind kind, const swy_op* const* ops, uint32_t n,
                     const swy_bucket& bucket) {
  if (n == kWithNext) return moe_grouped_cost(device, *ops[1]) + few_ready_cost(device, *ops[4]);
  if (kind == Kind::kDelta && rows_of(*ops[1]) > kQuad) {
    return delta_batch_cost(device, *ops[0], bucket) + few_ready_cost(device, *ops[1]);
  }
  if (kind == Kind::kMixture) {
    return by_boxes(device, *ops[1]) ? 0.2 + moe_boxes_cost(device, *ops[1]) : moe_grouped_cost(device, *ops[1]);
  }
  double bytes = 0;
  for (uint32_t i = 0; i < ops[1]->weight_count; ++i) bytes += weight_bytes(*ops[1]->weights[i]);
  return 3.5 + 0.7 * (rows_of(*ops[1]) - 1) + device.rates.bytes(bytes, 3e6);
}

swy_status claim(swy_device* device, const swy_op* const* ops, uint32_t n, const swy_bucket* bucket, uint32_t* accepted,
                 double* microseconds, swy_error* error) {
  *accepted = 0;
  const Kind kind = kind_of(ops, n);
  if (kind == Kind::kNone) {
    return swy::fail(error, SWY_OK, SWY_REASON_SHAPE,
                     "begins neither gated_delta, linear, add nor rms_norm, moe, add, in f32");
  }
  if ((bucket->flags & SWY_BUCKET_DETERMINISTIC) != 0) {
    return swy::fail(error, SWY_OK, SWY_REASON_FLAGS, "the ranges are not batch-invariant");
  }
  const swy_status s = kind == Kind::kDelta ? supports_delta(*device, ops, *bucket, error)
                                            : supports_mixture(*device, *ops[1], *bucket, error);
  if (s == SWY_UNSUPPORTED) return SWY_OK;
  SWY_CUDA_TRY(s);
  *accepted = kind == Kind::kMixture && takes_next(*device, ops, n) ? kWithNext : kLength;
  *microseconds = cost_of_range(*device, kind, ops, *accepted, *bucket);
  return SWY_OK;
}

swy_status prepare(swy_device* device, const swy_op* const* ops, uint32_t n, const swy_bucket*,
                   uint64_t* workspace_bytes, uint32_t* weight_layouts, uint32_t capacity, swy_error*) {
  const bool few = rows_of(*ops[1]) > kQuad;
  if (kind_of(ops, n) == Kind::kDelta) {
    *workspace_bytes = few ? few_rows_bytes(*ops[1]) : squares_of_heads(*ops[0], rows_of(*ops[1])) * sizeof(float);
  } else {
    *workspace_bytes = by_boxes(*device, *ops[1]) ? moe_boxes_workspace(*ops[1]) : moe_grouped_workspace(*ops[1]);
    if (n == kWithNext) *workspace_bytes += few_rows_bytes(*ops[4]);
  }
  for (uint32_t i = 0; i < capacity; ++i) weight_layouts[i] = 0;
  return SWY_OK;
}

// The residual of ADD and the inputs of the last two operations must be connected as the kernels compute them. Values
// that the kernels never write (the norm's or the rule's output, and the value before the addition) must not be read
// elsewhere.
swy_status accept(swy_device*, const swy_op* const*, uint32_t n, const swy_bucket*, const swy_range_values* values,
                  swy_error* error) {
  const uint32_t first = values->outputs[0][0], second = values->outputs[1][0];
  const uint32_t a = values->inputs[2][0], b = values->inputs[2][1];
  const uint32_t residual = a == second ? b : a;
  if (values->inputs[1][0] != first || (a != second && b != second) || residual == first || residual == second) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                     "each operation must read what the one before it gives, and the last add a value from outside");
  }
  if (n == kWithNext) {
    const uint32_t normed = values->outputs[3][0];
    if (values->inputs[3][0] != values->outputs[2][0] || values->inputs[4][0] != normed || values->kept[normed] != 0) {
      return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                       "the second norm must read the sum, and nothing but the last operation the norm");
    }
  }
  if (values->kept[first] == 0 && values->kept[second] == 0) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                   "others read what the %s operation gives, which is not written",
                   values->kept[first] != 0 ? "first" : "second");
}

bool same(const swy_binding& a, const swy_binding& b) { return a.buffer == b.buffer && a.offset == b.offset; }

// The other operand of ADD; null if ADD does not add to the previous operation's output, or if the operand is a value
// that the range does not write.
const swy_binding* residual_of(const swy_range_operands& o) {
  const swy_binding &value = o.bindings[1]->outputs[0], *inputs = o.bindings[2]->inputs;
  const swy_binding* residual = same(inputs[0], value) ? &inputs[1] : same(inputs[1], value) ? &inputs[0] : nullptr;
  const bool inner = residual != nullptr && (same(*residual, value) || same(*residual, o.bindings[0]->outputs[0]));
  return inner ? nullptr : residual;
}

template <class T = float>
T* at(const swy_binding& b) {
  return b.buffer == nullptr ? nullptr : reinterpret_cast<T*>(b.buffer->data + b.offset);
}

swy_status record_delta(swy_list* list, const swy_range_operands& o, const float* residual,
                        const swy_binding& workspace, swy_error* error) {
  const Operands delta_operands{*o.ops[0], *o.bindings[0]}, linear_operands{*o.ops[1], *o.bindings[1]};
  const Recording delta{*list, *o.ops[0], delta_operands, error}, linear{*list, *o.ops[1], linear_operands, error};
  Delta d = delta_of(delta);
  if (rows_of(*o.ops[1]) > kQuad) {
    d.few = few_rows_in(at<char>(workspace), *o.ops[1]);
    SWY_CUDA_TRY(record_delta_batch(delta, d));
    Projection p = linear_projection(linear);
    p.residual = residual;
    p.y[0] = at(o.bindings[2]->outputs[0]);
    return record_few_ready(linear, p, d.few, 0);
  }
  d.squares = at(workspace);
  d.heads = HalfRows::in(d.y, rows_of(*o.ops[1]), d.values());
  SWY_CUDA_TRY(record_delta_raw(delta, d));
  Projection p = linear_projection(linear);
  p.residual = residual;
  p.y[0] = at(o.bindings[2]->outputs[0]);
  const HeadNorm heads{d.heads, d.squares, d.value_dim, d.norm_eps};
  return record_boxes(linear, p, &heads);
}

// The projection behind a mixture. `rows`: memory for its rows; record(next) records the mixture.
template <class Record>
swy_status record_next(swy_list* list, const swy_range_operands& o, char* rows, const Record& record,
                       swy_error* error) {
  const Operands norm_operands{*o.ops[3], *o.bindings[3]}, linear_operands{*o.ops[4], *o.bindings[4]};
  const Recording linear{*list, *o.ops[4], linear_operands, error};
  const auto& a = *static_cast<const swy_rms_norm_attrs*>(o.ops[3]->attrs);
  const NextRows next{few_rows_in(rows, *o.ops[4]), {norm_operands.weight("w"), a.eps, a.weight_bias}};
  SWY_CUDA_TRY(record(next));
  // The sum over experts has a multiprocessor for each row. With more rows, too few would be left.
  const uint32_t count = rows_of(*o.ops[1]), busy = count <= kMostSpared ? count : 0;
  return record_few_ready(linear, linear_projection(linear), next.rows,
                          busy * 4 <= static_cast<uint32_t>(list->device->processors) ? busy : 0);
}

swy_status record_mixture(swy_list* list, const swy_range_operands& o, const float* residual,
                          const swy_binding& workspace, swy_error* error) {
  const Operands norm_operands{*o.ops[0], *o.bindings[0]}, moe_operands{*o.ops[1], *o.bindings[1]};
  const Recording moe{*list, *o.ops[1], moe_operands, error};
  const auto& a = *static_cast<const swy_rms_norm_attrs*>(o.ops[0]->attrs);
  const InputNorm norm{norm_operands.weight("w"), a.eps, a.weight_bias};
  const float* x = norm_operands.input("x");
  float* y = at(o.bindings[2]->outputs[0]);
  if (!by_boxes(*list->device, *o.ops[1])) {
    const auto record = [&](const NextRows& next) {
      return record_normed_grouped(moe, at<char>(workspace), x, norm, residual, y, next);
    };
    if (o.op_count != kWithNext) return record(NextRows{});
    return record_next(list, o, at<char>(workspace) + moe_grouped_workspace(*o.ops[1]), record, error);
  }
  Arena arena(at<char>(workspace));
  Mixture m = mixture_of(moe, arena);
  m.x = x;
  m.residual = residual;
  m.y = y;
  return record_moe_boxes(moe, m, arena, &norm);
}

swy_status record(swy_list* list, const swy_range_operands* operands, const swy_binding* workspace, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    SWY_CUDA_TRY(use(*list->device, error));
    const swy_range_operands& o = *operands;
    list->kernel = SWY_EXT_RANGE;
    list->begins = true;
    const swy_binding* residual = residual_of(o);
    if (residual == nullptr || !same(o.bindings[0]->outputs[0], o.bindings[1]->inputs[0])) {
      return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                       "the operations of a range do not feed each other; forbid it: --variant 'range=!swy.range/1'");
    }
    return kind_of(o.ops, o.op_count) == Kind::kDelta ? record_delta(list, o, at(*residual), *workspace, error)
                                                      : record_mixture(list, o, at(*residual), *workspace, error);
  });
}

}  // namespace

const swy_range& ranges() {
  static const swy_range table{sizeof(swy_range), 0, claim, prepare, record, accept};
  return table;
}

}  // namespace gpu
