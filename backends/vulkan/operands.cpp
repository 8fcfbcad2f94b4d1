#include "operands.h"

#include "device.h"
#include "kernels.h"
#include "switchyard/weights.h"

namespace gpu {

bool is_quantized(swy_dtype dtype) { return dtype == SWY_I8 || dtype == SWY_I4 || dtype == SWY_I4A; }

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

bool readable_in_pieces(const swy_tensor& t) {
  const uint64_t width = t.dims[t.rank - 1];
  if (width % 32 != 0 || width > (1u << 20)) return false;
  if (!is_quantized(t.dtype) || t.group == 0 || t.group >= width) return t.group == 0 || t.group % 32 == 0;
  return t.group % 32 == 0 && (t.group & (t.group - 1)) == 0;
}

Span Operands::span(const swy_binding& b) {
  return b.buffer == nullptr ? Span{} : Span{b.buffer->address() + b.offset, b.bytes};
}

double weight_bytes(const swy_tensor& t) {
  swy_weight_planes planes;
  return swy_weight_planes_of(&t, &planes) != 0 ? 0 : static_cast<double>(planes.total_bytes);
}

double row_bytes(const swy_op& op) {
  double bytes = 0;
  for (uint32_t i = 0; i < op.input_count; ++i)
    bytes += 4.0 * static_cast<double>(op.inputs[i]->dims[0] * op.inputs[i]->dims[1]);
  for (uint32_t i = 0; i < op.output_count; ++i) {
    bytes += 4.0 * static_cast<double>(op.outputs[i]->dims[0] * op.outputs[i]->dims[1]);
  }
  return bytes;
}

}  // namespace gpu
