// SPDX-License-Identifier: Apache-2.0
// Ranges: the operations after the projections of a layer, those with which a multi-token prediction layer begins
// (range_entry.h), and those with which a step ends (range_head.h).
//
//   GATED_DELTA, LINEAR, ADD   up to four rows: the kernel that reads the heads scales them by their norm; more
//                              sequences: the delta rule's kernel rounds the projection's rows; prompts: range_prompt.h
//   RMS_NORM, MOE, ADD         the norm likewise; with more rows the router's kernel computes it, and with many the
//                              one that copies rows, too
//   ATTENTION, LINEAR, ADD     three and four rows: attention makes the projection's integers; one row far into its
//                              sequence, and a mixture behind it: the projection joins parts of attention's heads
//   a mixture behind LINEAR,   up to four rows: the projection's kernel also computes the router's logits
//     ADD or one of the above  (linear/linear_router.h)
//   RMS_NORM, LINEAR           more than four rows: the kernel that adds up the experts norms and rounds the
//     behind a mixture         projection's rows
#include "range.h"

#include <algorithm>

#include "attention/attention_decode.h"
#include "common/projection.cuh"
#include "gated_delta/gated_delta_batch.h"
#include "gated_delta/gated_delta_step.h"
#include "linear/linear_boxes.h"
#include "linear/linear_bytes.h"
#include "linear/linear_few_ready.h"
#include "linear/linear_router.h"
#include "moe/moe_boxes.h"
#include "moe/moe_bytes.h"
#include "moe/moe_grouped.h"
#include "range_entry.h"
#include "range_head.h"
#include "range_parts.h"
#include "range_prompt.h"
#include "switchyard/sdk/negotiate.hpp"

namespace gpu {
namespace {

// Ranges get values in the program's types; these kernels support only floats. The delta rule's have pending rows, too.
bool takes(const swy_op& op) {
  bool floats = op.revision == 1 || (op.id == SWY_OP_GATED_DELTA && op.revision == 2);
  for (uint32_t i = 0; i < op.input_count; ++i) floats = floats && op.inputs[i]->dtype == SWY_F32;
  for (uint32_t i = 0; i < op.output_count; ++i) floats = floats && op.outputs[i]->dtype == SWY_F32;
  return floats;
}

// Squares between the delta rule and the reader of its heads.
uint64_t squares_of_heads(const swy_op& op, uint64_t rows) {
  const auto& a = *static_cast<const swy_gated_delta_attrs*>(op.attrs);
  return rows * a.value_heads * head_parts(a.value_dim);
}

}  // namespace

bool begins(const swy_op* const* ops, uint32_t n, std::initializer_list<swy_op_id> ids) {
  if (n < ids.size()) return false;
  return std::all_of(ids.begin(), ids.end(), [&](swy_op_id id) {
    const swy_op& op = **ops++;
    return op.id == id && takes(op) && (id != SWY_OP_LINEAR || op.weight_count == 1);
  });
}

Parts parts_of(const swy_op* const* ops, uint32_t n) {
  Parts p;
  if (begins(ops, n, {SWY_OP_GATED_DELTA, SWY_OP_LINEAR, SWY_OP_ADD})) p.projection = kSequenceMixer;
  if (begins(ops, n, {SWY_OP_ATTENTION, SWY_OP_LINEAR, SWY_OP_ADD}) && rows_of(*ops[1]) != kBesideRows &&
      rows_of(*ops[1]) <= kQuad) {
    p.projection = kSequenceMixer, p.attends = true;
  }
  if (begins(ops, n, {SWY_OP_LINEAR, SWY_OP_ADD})) p.projection = kProjection;
  if (begins(ops + p.projection, n - p.projection, {SWY_OP_RMS_NORM, SWY_OP_MOE, SWY_OP_ADD})) p.mixture = kMixture;
  if (p.projection == kProjection && p.mixture == 0) p.projection = 0;  // LINEAR_ADD does that
  const swy_op* const* next = ops + p.count();
  const bool follows = p.mixture != 0 && n - p.count() >= kNext && rows_of(*ops[p.projection]) > kQuad;
  if (follows && begins(next, kNext, {SWY_OP_RMS_NORM}) && next[1]->id == SWY_OP_LINEAR && takes(*next[1])) {
    p.next = kNext;
  }
  return p;
}

bool by_boxes(const swy_device& device, const swy_op& op) {
  return rows_of(op) == 1 || supports_moe_boxes(device, op, nullptr) == SWY_OK;
}
bool by_batch(const swy_device& device, const swy_op& delta, const swy_bucket& bucket) {
  return (bucket.flags & SWY_BUCKET_DECODE) != 0 && bucket.seqs > kBesideRows &&
         supports_delta_batch(device, delta, bucket, nullptr) == SWY_OK;
}
bool many_rows(const swy_op& op) { return rows_of(op) >= kLeastBytesOfMixture; }

uint64_t workspace_of_projection(const swy_device& device, const Parts& p, const swy_op* const* ops,
                                 const swy_bucket& bucket) {
  if (p.attends) {
    const uint64_t left = HeadParts::bytes(swy::tensor(*ops[1], "x").dims[1] / HeadParts::kDim);
    return uint64_t{ceil_div(std::max(left, attention_decode().workspace(device, *ops[0], bucket)), 256)} * 256;
  }
  if (!p.delta()) return 0;
  if (many_rows_of_prompts(ops, bucket)) return workspace_of_prompts(ops, bucket);
  const uint64_t rows = rows_of(*ops[1]);
  const uint64_t bytes = rows > kQuad ? few_rows_bytes(*ops[1]) : squares_of_heads(*ops[0], rows) * sizeof(float);
  return uint64_t{ceil_div(bytes, 256)} * 256;
}

namespace {

swy_status supports_delta(const swy_device& device, const swy_op* const* ops, const swy_bucket& bucket,
                          swy_error* error) {
  const auto& a = *static_cast<const swy_gated_delta_attrs*>(ops[0]->attrs);
  if (many_rows_of_prompts(ops, bucket)) return supports_prompts(device, ops, bucket, error);
  if (rows_of(*ops[1]) > kQuad) {
    SWY_CUDA_TRY(supports_delta_batch(device, *ops[0], bucket, error));
    return supports_few(device, *ops[1], error);
  }
  if (!by_batch(device, *ops[0], bucket)) SWY_CUDA_TRY(supports_delta_step(device, *ops[0], bucket, error));
  SWY_CUDA_TRY(supports_boxes(device, *ops[1], 0, error));
  if (a.value_dim == 32 || a.value_dim == 64 || a.value_dim == 128 || a.value_dim == 256) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "heads of %u values; 32, 64, 128 or 256 can be normed",
                   a.value_dim);
}

swy_status supports_attention(const swy_device& device, const Parts& p, const swy_op* const* ops,
                              const swy_bucket& bucket, swy_error* error) {
  SWY_CUDA_TRY(attention_decode().supports(device, *ops[0], bucket, error));
  if (rows_of(*ops[1]) == 1 && (!p.layer() || !attention_leaves_parts(device, *ops[0], bucket))) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                     "attention of one row joins the parts of its heads itself");
  }
  return supports_boxes(device, *ops[1], 0, error);
}

swy_status supports_mixture(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  if (many_rows(op)) return supports_normed_bytes(device, op, bucket, error);
  return by_boxes(device, op) ? supports_moe_boxes(device, op, error)
                              : supports_normed_grouped(device, op, bucket, error);
}

// Whether the logits of a layer's router can come from its projection.
swy_status supports_logits(const swy_device& device, const swy_op& linear, const swy_op& norm, const swy_op& moe,
                           swy_error* error) {
  if (!boxes_by_engine(device)) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH,
                     "logits from the projection: by boxes of the copy engine");
  }
  const uint64_t hidden = swy::tensor(moe, "x").dims[1];
  if (rows_of(moe) > kQuad || swy::tensor(linear, "y").dims[1] != hidden || swy::tensor(norm, "x").dims[1] != hidden) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "logits from the projection: for up to %u rows", kQuad);
  }
  SWY_CUDA_TRY(supports_moe_boxes(device, moe, error));
  const uint32_t logits = moe_attrs(moe).experts + (swy::has(moe, "shared_gate") ? 1 : 0);
  return supports_boxes(device, linear, 0, error, router_blocks(logits));
}

swy_status supports_parts(const swy_device& device, const Parts& p, const swy_op* const* ops, const swy_bucket& bucket,
                          swy_error* error) {
  const swy_op* const* mixture = ops + p.projection;
  if (p.delta()) SWY_CUDA_TRY(supports_delta(device, ops, bucket, error));
  if (p.attends) SWY_CUDA_TRY(supports_attention(device, p, ops, bucket, error));
  if (p.layer()) return supports_logits(device, *mixture[-2], *mixture[0], *mixture[1], error);
  return p.mixture != 0 ? supports_mixture(device, *mixture[1], bucket, error) : SWY_OK;
}

// Whether a mixture's kernels can make the rows of the projection behind it.
bool makes_next(const swy_device& device, const Parts& p, const swy_op* const* ops, const swy_bucket& bucket) {
  const swy_op* const* mixture = ops + p.projection;
  if (many_rows(*mixture[1])) {
    return makes_next_bytes(*mixture[1]) &&
           supports_bytes_ready(device, *mixture[kMixture + 1], bucket, nullptr) == SWY_OK;
  }
  return !by_boxes(device, *mixture[1]) && supports_few(device, *mixture[kMixture + 1], nullptr) == SWY_OK;
}

// The cost: a few microseconds for each kernel, and the bytes.
double cost_of_parts(const swy_device& device, const Parts& p, const swy_op* const* ops, const swy_bucket& bucket) {
  double cost = 0;
  // A microsecond less than by itself, since the projection reads what attention leaves as it is.
  if (p.attends) cost += attention_decode().cost(device, *ops[0], bucket) - 1;
  if (p.delta() && many_rows_of_prompts(ops, bucket)) {
    cost += cost_of_prompts(device, ops, bucket);
  } else if (p.delta() && rows_of(*ops[1]) > kQuad) {
    cost += delta_batch_cost(device, *ops[0], bucket) + few_ready_cost(device, *ops[1]);
  } else if (p.projection != 0) {
    const swy_op& linear = *ops[p.projection - 2];
    cost += (p.delta() ? 3.5 : 2.0) + 0.7 * (rows_of(linear) - 1) +
            device.rates.bytes(weight_bytes(*linear.weights[0]), 3e6);
  }
  if (p.mixture != 0) {
    const swy_op& moe = *ops[p.projection + 1];
    cost += many_rows(moe)          ? moe_bytes_cost(device, moe, bucket)
            : by_boxes(device, moe) ? 0.2 + moe_boxes_cost(device, moe)
                                    : moe_grouped_cost(device, moe);
  }
  if (p.next != 0) {
    const swy_op& linear = *ops[p.count() - 1];
    cost += many_rows(linear) ? bytes_ready_cost(device, linear, bucket) : few_ready_cost(device, linear);
  }
  return p.layer() ? cost - 1.5 : cost;
}

swy_status claim(swy_device* device, const swy_op* const* ops, uint32_t n, const swy_bucket* bucket, uint32_t* accepted,
                 double* microseconds, swy_error* error) {
  *accepted = 0;
  Parts parts = parts_of(ops, n);
  const bool entry = begins_entry(ops, n);
  const uint32_t end = ends_with_head(ops, n);
  if (parts.count() == 0 && !entry && end == 0) {
    return swy::fail(
        error, SWY_OK, SWY_REASON_SHAPE,
        "begins neither gated_delta or attention, linear, add nor rms_norm, moe, add (nor linear and add "
        "before these) nor embedding, rms_norm, rms_norm, linear, linear, add nor rms_norm, lm_head, in f32");
  }
  if ((bucket->flags & SWY_BUCKET_DETERMINISTIC) != 0) {
    return swy::fail(error, SWY_OK, SWY_REASON_FLAGS, "the ranges are not batch-invariant");
  }
  if (entry) {
    const swy_status s = supports_entry(*device, ops, error);
    if (s == SWY_UNSUPPORTED) return SWY_OK;
    SWY_CUDA_TRY(s);
    *accepted = kEntry;
    *microseconds = entry_cost(*device, ops);
    return SWY_OK;
  }
  if (end != 0) {
    const swy_status s = supports_end(*device, ops, end, *bucket, error);
    if (s == SWY_UNSUPPORTED) return SWY_OK;
    SWY_CUDA_TRY(s);
    *accepted = end;
    *microseconds = end_cost(*device, ops, end, *bucket);
    return SWY_OK;
  }
  swy_status s = supports_parts(*device, parts, ops, *bucket, error);
  if (s == SWY_UNSUPPORTED && parts.layer() && parts.projection == kSequenceMixer) {  // the first part may be possible
    parts.mixture = parts.next = 0;
    s = supports_parts(*device, parts, ops, *bucket, error);
  }
  if (s == SWY_UNSUPPORTED) return SWY_OK;
  SWY_CUDA_TRY(s);
  if (parts.next != 0 && !makes_next(*device, parts, ops, *bucket)) parts.next = 0;
  *accepted = parts.count();
  *microseconds = cost_of_parts(*device, parts, ops, *bucket);
  return SWY_OK;
}

swy_status prepare(swy_device* device, const swy_op* const* ops, uint32_t n, const swy_bucket* bucket,
                   uint64_t* workspace_bytes, uint32_t* weight_layouts, uint32_t capacity, swy_error*) {
  for (uint32_t i = 0; i < capacity; ++i) weight_layouts[i] = 0;
  if (const uint32_t end = ends_with_head(ops, n); end != 0) {
    *workspace_bytes = end_workspace(*device, ops, end, *bucket);
    return SWY_OK;
  }
  const Parts p = parts_of(ops, n);
  *workspace_bytes = workspace_of_projection(*device, p, ops, *bucket);
  if (p.mixture != 0) {
    const swy_op& moe = *ops[p.projection + 1];
    *workspace_bytes += many_rows(moe)           ? moe_bytes_workspace(moe)
                        : by_boxes(*device, moe) ? moe_boxes_workspace(moe)
                                                 : moe_grouped_workspace(moe);
  }
  if (p.next != 0) {
    const swy_op& linear = *ops[p.count() - 1];
    *workspace_bytes += many_rows(linear) ? bytes_ready_memory(linear) : few_rows_bytes(linear);
  }
  return SWY_OK;
}

// The values must be connected as the kernels compute them: each operation reads the one before it, and an addition
// adds that to a value that is written. Values that the kernels never write (the norm's or the rule's output, and that
// before an addition) must not be read elsewhere.
swy_status accept(swy_device* device, const swy_op* const* ops, uint32_t n, const swy_bucket* bucket,
                  const swy_range_values* values, swy_error* error) {
  if (begins_entry(ops, n)) return accept_entry(*values, error);
  if (ends_with_head(ops, n) != 0) return accept_end(*device, ops, n, *bucket, *values, error);
  const auto made = [&](uint32_t op) { return values->outputs[op][0]; };
  const auto written = [&](uint32_t value) {
    for (uint32_t op = 0; op < n; ++op) {
      if (ops[op]->id != SWY_OP_ADD && made(op) == value) return false;
    }
    return true;
  };
  for (uint32_t op = 0; op < n; ++op) {
    const uint32_t* from = values->inputs[op];
    const bool adds = ops[op]->id == SWY_OP_ADD;
    const bool second = adds && from[1] == made(op - 1);
    if (op != 0 && ((from[0] != made(op - 1) && !second) || (adds && !written(from[second ? 0 : 1])))) {
      return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                       "each operation must read what the one before it gives, and an add add a value from outside");
    }
    if (!adds && op + 1 != n && values->kept[made(op)] != 0) {
      return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                       "others read what operation %u of the range gives, which is not written", op + 1);
    }
  }
  return SWY_OK;
}

swy_status record(swy_list* list, const swy_range_operands* operands, const swy_binding* workspace, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    SWY_CUDA_TRY(use(*list->device, error));
    list->kernel = SWY_EXT_RANGE;
    list->begins = true;
    if (begins_entry(operands->ops, operands->op_count)) return record_entry(list, *operands, error);
    if (ends_with_head(operands->ops, operands->op_count) != 0) return record_end(list, *operands, *workspace, error);
    return record_parts(list, *operands, *workspace, error);
  });
}

}  // namespace

const swy_range& ranges() {
  static const swy_range table{sizeof(swy_range), 0, claim, prepare, record, accept};
  return table;
}

}  // namespace gpu
