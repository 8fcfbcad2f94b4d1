// SPDX-License-Identifier: Apache-2.0
#include "range_head.h"

#include "linear/lm_head_normed.h"

namespace gpu {
namespace {

enum Place : uint32_t { kNorm, kHead, kSample };

// The head, with the sampler if there is one, as one operation on what the norm reads.
struct WholeHead {
  const swy_tensor* x;
  swy_op op;

  WholeHead(const swy_op* const* ops, uint32_t n) : x(ops[kNorm]->inputs[0]), op(*ops[kHead]) {
    op.inputs = &x;
    if (n <= kSample) return;
    const swy_op& sample = *ops[kSample];
    op.id = SWY_OP_LM_HEAD_SAMPLE;
    op.states = sample.states, op.state_count = sample.state_count;
    op.outputs = sample.outputs, op.output_count = sample.output_count;
  }
  WholeHead(const WholeHead&) = delete;
};

const NormedHead& head_for(const swy_bucket& bucket) {
  return bucket.logit_rows == 1 ? normed_head_boxes() : normed_head_few();
}

}  // namespace

uint32_t ends_with_head(const swy_op* const* ops, uint32_t n) {
  if (!begins(ops, n, {SWY_OP_RMS_NORM, SWY_OP_LM_HEAD})) return 0;
  // A sampler with further results has kernels of its own behind the head.
  const bool draws = n > kSample && ops[kSample]->id == SWY_OP_SAMPLE && ops[kSample]->revision == 1 &&
                     ops[kSample]->output_count == 1;
  return draws ? 3 : 2;
}

swy_status supports_end(const swy_device& device, const swy_op* const* ops, uint32_t n, const swy_bucket& bucket,
                        swy_error* error) {
  return head_for(bucket).supports(device, WholeHead(ops, n).op, bucket, false, error);
}

double end_cost(const swy_device& device, const swy_op* const* ops, uint32_t n, const swy_bucket& bucket) {
  return head_for(bucket).cost(device, WholeHead(ops, n).op, bucket);
}

uint64_t end_workspace(const swy_device& device, const swy_op* const* ops, uint32_t n, const swy_bucket& bucket) {
  return head_for(bucket).workspace(device, WholeHead(ops, n).op, bucket);
}

swy_status accept_end(const swy_device& device, const swy_op* const* ops, uint32_t n, const swy_bucket& bucket,
                      const swy_range_values& v, swy_error* error) {
  bool fits = v.inputs[kHead][0] == v.outputs[kNorm][0];
  if (n > kSample) {
    const uint32_t logits = v.outputs[kHead][0];
    fits = fits && v.inputs[kSample][0] == logits && v.kept[logits] == 0;
  }
  if (!fits) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                     "the head must read the norm, and the sampler the head, which nothing else reads");
  }
  return head_for(bucket).supports(device, WholeHead(ops, n).op, bucket, v.kept[v.outputs[kNorm][0]] != 0, error);
}

swy_status record_end(swy_list* list, const swy_range_operands& o, const swy_binding& workspace, swy_error* error) {
  const WholeHead head(o.ops, o.op_count);
  const Operands norm{*o.ops[kNorm], *o.bindings[kNorm]};
  swy_bindings bound = *o.bindings[kHead];
  bound.inputs = o.bindings[kNorm]->inputs;
  if (o.op_count > kSample) bound.states = o.bindings[kSample]->states, bound.outputs = o.bindings[kSample]->outputs;
  bound.workspace = workspace;
  const auto& a = *static_cast<const swy_rms_norm_attrs*>(o.ops[kNorm]->attrs);
  const bool kept = o.values->kept[o.values->outputs[kNorm][0]] != 0;
  const RowsNorm rows{norm.weight("w"), a.eps, a.weight_bias, kept ? norm.output("y") : nullptr};
  const Operands operands{head.op, bound};
  return head_for(list->bucket).record({*list, head.op, operands, error}, rows);
}

}  // namespace gpu
