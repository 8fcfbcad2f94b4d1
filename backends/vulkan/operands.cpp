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

Span span_of(const Weight& w) {
  if (w.data == 0) return {};
  const uint32_t dtype = w.form & 0xffu, given = w.form >> 8;
  if (!is_quantized(static_cast<swy_dtype>(dtype))) {
    return {w.data, uint64_t{w.rows} * w.width * (dtype == SWY_F32 ? 4 : 2)};
  }
  const uint64_t group = given != 0 ? given : w.width, groups = (w.width + group - 1) / group;
  const auto plane = [](uint64_t bytes) { return (bytes + 63) / 64 * 64; };
  const uint64_t quants = plane(w.rows * groups * (dtype == SWY_I8 ? group : (group + 1) / 2));
  const uint64_t scales = w.rows * groups * 2;
  return {w.data, quants + (dtype == SWY_I4A ? plane(scales) : 0) + scales};
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

}  // namespace gpu
