// SPDX-License-Identifier: Apache-2.0
#include "operands.h"

#include "device.h"
#include "kernels.h"
#include "switchyard/weights.h"

namespace gpu {

Weight weight_of(const swy_tensor& tensor, uint64_t data) {
  swy_weight_planes planes;
  swy_weight_planes_of(&tensor, &planes);
  Weight w;
  w.data = data;
  w.rows = static_cast<uint32_t>(planes.rows);
  w.width = static_cast<uint32_t>(tensor.dims[tensor.rank - 1]);
  w.form = tensor.dtype | (is_quantized(tensor.dtype) ? tensor.group << 8 : 0);
  return w;
}

Weight Operands::weight(swy::OperandName name) const {
  const swy_ref ref = swy_operand(&op, name.text());
  return ref == SWY_REF_NONE || SWY_REF_KIND(ref) != SWY_REF_WEIGHT ? Weight{} : weight(SWY_REF_INDEX(ref));
}

Span Operands::span_of(uint32_t list, const swy_binding* bound, swy::OperandName name) const {
  const swy_ref ref = swy_operand(&op, name.text());
  return ref == SWY_REF_NONE || SWY_REF_KIND(ref) != list ? Span{} : span(bound[SWY_REF_INDEX(ref)]);
}

Span Operands::span(const swy_binding& b) {
  return b.buffer == nullptr ? Span{} : Span{b.buffer->address() + b.offset, b.bytes};
}

}  // namespace gpu
