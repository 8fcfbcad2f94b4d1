// SPDX-License-Identifier: Apache-2.0
#include "operands.h"

#include "device.h"
#include "kernels.h"
#include "switchyard/sdk/error.hpp"
#include "switchyard/weights.h"

namespace gpu {
namespace {

uint32_t elements_per_piece(swy_dtype dtype) {
  return dtype == SWY_I8 ? 16 : dtype == SWY_BF16 ? 8 : dtype == SWY_F32 ? 4 : 32;
}

}  // namespace

bool is_quantized(swy_dtype dtype) { return dtype == SWY_I8 || dtype == SWY_I4 || dtype == SWY_I4A; }

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
  w.piece_shift = 31;
  if (!is_quantized(tensor.dtype)) return w;
  w.scales = reinterpret_cast<const uint16_t*>(base + planes.scales);
  w.offsets = tensor.dtype == SWY_I4A ? reinterpret_cast<const uint16_t*>(base + planes.offsets) : nullptr;
  w.groups = static_cast<uint32_t>(planes.groups);
  w.group = static_cast<uint32_t>(planes.group_size);
  if (w.groups > 1 && w.group >= elements_per_piece(tensor.dtype)) {
    w.piece_shift = static_cast<uint32_t>(__builtin_ctz(w.group / elements_per_piece(tensor.dtype)));
  }
  return w;
}

bool readable_in_steps(const swy_tensor& t, uint32_t elements) {
  const uint64_t width = t.dims[t.rank - 1];
  if (width % 32 != 0 || width > (1u << 20)) return false;
  if (!is_quantized(t.dtype) || t.group == 0 || t.group >= width) return t.group == 0 || t.group % elements == 0;
  return t.group % elements == 0 && (t.group & (t.group - 1)) == 0;
}

bool readable_in_pieces(const swy_tensor& t) { return readable_in_steps(t, t.dtype == SWY_I8 ? 16 : 32); }

swy_status refuse_rows(const swy_op& op, uint32_t i, swy_error* error) {
  const swy_tensor& t = *op.weights[i];
  if (readable_in_steps(t, 1)) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "weight %u has groups of %u, which are too small", i,
                     t.group);
  }
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                   "weight %u has rows of %llu; they must be a multiple of 32, with groups of a power of two", i,
                   static_cast<unsigned long long>(t.dims[t.rank - 1]));
}

Weight Operands::weight(swy::OperandName name) const {
  const swy_ref ref = swy_operand(&op, name.text());
  return ref == SWY_REF_NONE || SWY_REF_KIND(ref) != SWY_REF_WEIGHT ? Weight{} : weight(SWY_REF_INDEX(ref));
}

void* Operands::address_of(uint32_t list, const swy_binding* bound, swy::OperandName name) const {
  const swy_ref ref = swy_operand(&op, name.text());
  return ref == SWY_REF_NONE || SWY_REF_KIND(ref) != list ? nullptr : address(bound[SWY_REF_INDEX(ref)]);
}

void* Operands::address(const swy_binding& b) { return b.buffer == nullptr ? nullptr : b.buffer->data + b.offset; }

}  // namespace gpu
