// LM_HEAD: logits f32 [logit rows, vocab] = x[logit_row[i]] * w^T, by the shaders of LINEAR.
#include "projection.h"

namespace gpu {
namespace {

Projection head_projection(const Recording& r) {
  Projection p;
  p.x = r.operands.input(0);
  p.width = static_cast<uint32_t>(r.op.inputs[0]->dims[1]);
  p.domain = SWY_ROWS_LOGITS;
  p.gather = true;
  p.weights[0] = r.operands.weight(0);
  p.y[0] = r.operands.output(0);
  p.count = 1;
  return p;
}

uint32_t rows_of(const swy_op& op) { return static_cast<uint32_t>(op.outputs[0]->dims[0]); }

swy_status record_vector(const Recording& r) { return record_projection(r, head_projection(r), rows_of(r.op)); }
swy_status record_plain(const Recording& r) { return record_projection_plain(r, head_projection(r), rows_of(r.op)); }

swy_status supports_vector(const swy_device& device, const swy_op& op, const swy_bucket&, swy_error* error) {
  return vector_usable(device, op, 0, error);
}

double cost_vector(const swy_op& op, const swy_bucket&) {
  const double elements = static_cast<double>(op.weights[0]->dims[0] * op.weights[0]->dims[1]);
  return 4 + (weight_bytes(*op.weights[0]) + row_bytes(op)) / 2.5e6 + elements * (rows_of(op) - 1.0) / 3e6;
}
double cost_plain(const swy_op& op, const swy_bucket& bucket) { return 20 * cost_vector(op, bucket); }

constexpr Kernel kKernels[] = {
    {"lm_head.vector", SWY_OP_LM_HEAD, kInvariant, SWY_F32, supports_vector, cost_vector, nullptr, record_vector},
    {"lm_head.plain", SWY_OP_LM_HEAD, kInvariant, SWY_F32, nullptr, cost_plain, nullptr, record_plain},
};

}  // namespace

std::span<const Kernel> lm_head_kernels() { return kKernels; }

}  // namespace gpu
