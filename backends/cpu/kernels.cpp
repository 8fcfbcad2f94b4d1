// SPDX-License-Identifier: Apache-2.0
#include "kernels.h"

#include <cmath>

#include "isa.h"
#include "switchyard/sdk/error.hpp"

namespace cpu {

swy_status mode_usable(Mode mode, bool quantized, swy_error* error) {
  if (mode != Mode::exact && exact()) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_FLAGS, "rounds activations, and exact=1 is set");
  }
  if (on_tiles(mode) && isa() < Isa::amx) {
    const std::string& missing = isa_missing(Isa::amx);
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "needs AMX: %s",
                     missing.empty() ? "isa is set to less" : missing.c_str());
  }
  if (mode == Mode::tiles_bf16 && quantized) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE, "bf16 tiles multiply plain weights only");
  }
  if (mode == Mode::tiles_wide && !quantized) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE, "no weight is quantized");
  }
  return SWY_OK;
}

namespace {
double output_elements(const swy_op& op) {
  double elements = 0;
  for (uint32_t i = 0; i < op.output_count; ++i) {
    elements += static_cast<double>(op.outputs[i]->dims[0] * op.outputs[i]->dims[1]);
  }
  return elements;
}
}  // namespace

double generic_cost(const swy_op& op, const swy_bucket& bucket) { return cost_of(output_elements(op) + bucket.rows); }

bool small_work(const swy_op& op, const swy_bucket&) { return output_elements(op) <= 4096; }

double product_cost(Mode mode, double elements, double rows) {
  constexpr double kStream = 20e3;  // elements per microsecond that memory delivers
  const double groups = std::ceil(rows / 16), pairs = std::ceil(rows / 32);
  double us = 0;  // of computing
  switch (mode) {
    case Mode::vector:
      us = elements * rows / 60e3;
      break;
    case Mode::tiles_int8:
      us = elements / 60e3 + elements * groups * 16 / 450e3;
      break;
    case Mode::tiles_wide:
      us = elements / 35e3 + elements * groups * 16 / 1600e3;
      break;
    case Mode::tiles_bf16:
      us = elements * pairs * 32 / 600e3;
      break;
    case Mode::exact:
      us = elements * rows / 20e3;
      break;
  }
  return 1.0 + std::max(us, elements / kStream);
}

void load_plain(const swy_tensor& tensor, const void* data, uint64_t first, uint64_t n, float bias, float* to) {
  for (uint64_t i = 0; i < n; ++i) {
    const float w = tensor.dtype == SWY_F32 ? static_cast<const float*>(data)[first + i]
                                            : swy_bf16_to_f32(static_cast<const uint16_t*>(data)[first + i]);
    to[i] = w + bias;
  }
}

}  // namespace cpu
