// SPDX-License-Identifier: Apache-2.0
#include "operands.h"

#include "device.h"
#include "kernels.h"
#include "switchyard/weights.h"

namespace gpu {
namespace {

constexpr uint32_t kOneGroup = 31;  // as a shift

uint32_t elements_per_piece(swy_dtype dtype) {
  return dtype == SWY_I8 ? 16 : dtype == SWY_BF16 ? 8 : dtype == SWY_F32 ? 4 : 32;
}

}  // namespace

Weight weight_of(const swy_tensor& tensor, const void* data) {
  swy_weight_planes planes;
  swy_weight_planes_of(&tensor, &planes);
  const auto* base = static_cast<const uint8_t*>(data);
  Weight w{};
  w.data = base;
  w.rows = static_cast<uint32_t>(planes.rows);
  w.width = static_cast<uint32_t>(tensor.dims[tensor.rank - 1]);
  w.row_bytes = static_cast<uint32_t>(planes.row_bytes);
  w.dtype = tensor.dtype;
  w.piece_shift = w.half_shift = kOneGroup;
  if (!is_quantized(tensor.dtype)) return w;
  w.scales = reinterpret_cast<const uint16_t*>(base + planes.scales);
  w.offsets = tensor.dtype == SWY_I4A ? reinterpret_cast<const uint16_t*>(base + planes.offsets) : nullptr;
  w.groups = static_cast<uint32_t>(planes.groups);
  w.group = static_cast<uint32_t>(planes.group_size);
  if (w.groups == 1) return w;
  const auto shift = [&](uint32_t elements) {
    return w.group >= elements ? static_cast<uint32_t>(__builtin_ctz(w.group / elements)) : kOneGroup;
  };
  w.piece_shift = shift(elements_per_piece(tensor.dtype));
  w.half_shift = shift(16);
  return w;
}

Weight Operands::weight(swy::OperandName name) const {
  const swy_ref ref = swy_operand(&op, name.text());
  return ref == SWY_REF_NONE || SWY_REF_KIND(ref) != SWY_REF_WEIGHT ? Weight{} : weight(SWY_REF_INDEX(ref));
}

Bias Operands::bias(swy::OperandName name) const {
  const swy_ref ref = swy_operand(&op, name.text());
  return ref == SWY_REF_NONE || SWY_REF_KIND(ref) != SWY_REF_WEIGHT ? Bias{} : bias(SWY_REF_INDEX(ref));
}

void* Operands::address_of(uint32_t list, const swy_binding* bound, swy::OperandName name) const {
  const swy_ref ref = swy_operand(&op, name.text());
  return ref == SWY_REF_NONE || SWY_REF_KIND(ref) != list ? nullptr : address(bound[SWY_REF_INDEX(ref)]);
}

void* Operands::address(const swy_binding& b) { return b.buffer == nullptr ? nullptr : b.buffer->data + b.offset; }

}  // namespace gpu
