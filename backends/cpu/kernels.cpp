#include "kernels.h"

#include "isa.h"
#include "switchyard/sdk/error.hpp"

namespace cpu {

swy_status mode_usable(Mode mode, swy_error* error) {
  if (mode != Mode::exact && exact()) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_FLAGS, "rounds activations to 8 bits, and exact=1 is set");
  }
  if (mode == Mode::tiles && isa() < Isa::amx) {
    const std::string missing = isa_missing(Isa::amx);
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "needs AMX: %s",
                     missing.empty() ? "isa is set to less" : missing.c_str());
  }
  return SWY_OK;
}

double generic_cost(const swy_op& op, const swy_bucket& bucket) {
  double elements = 0;
  for (uint32_t i = 0; i < op.output_count; ++i) {
    elements += static_cast<double>(op.outputs[i]->dims[0] * op.outputs[i]->dims[1]);
  }
  return cost_of(elements + bucket.rows);
}

double product_cost(Mode mode, double elements, double rows) {
  constexpr double kStream = 20e3;  // elements per microsecond that memory gives
  constexpr double kVector = 60e3, kTiles = 400e3, kExact = 20e3;
  constexpr double kTileRow = 16;
  const double computed = mode == Mode::tiles    ? (elements / kVector + elements * std::max(rows, kTileRow) / kTiles)
                          : mode == Mode::vector ? elements * rows / kVector
                                                 : elements * rows / kExact;
  return 1.0 + std::max(computed, elements / kStream) + (mode == Mode::exact ? 1.0 : 0.0);
}

void load_plain(const swy_tensor& tensor, const void* data, uint64_t first, uint64_t n, float bias, float* to) {
  for (uint64_t i = 0; i < n; ++i) {
    const float w = tensor.dtype == SWY_F32 ? static_cast<const float*>(data)[first + i]
                                            : swy_bf16_to_f32(static_cast<const uint16_t*>(data)[first + i]);
    to[i] = w + bias;
  }
}

}  // namespace cpu
