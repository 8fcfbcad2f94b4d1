// SPDX-License-Identifier: Apache-2.0
// Quantization of weights to the canonical encodings of switchyard/weights.h. Everything here is a pure function and
// may run on many threads at once, each with its own rows; the result does not depend on how rows are shared out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/status.h"
#include "switchyard/ops.h"

namespace switchyard {

// Rounds to nearest even; beyond the range to infinity; a NaN stays a NaN.
uint16_t f32_to_f16(float value);

// Where the planes of some rows go. Each span holds exactly these rows: with the swy_weight_planes `p` of the tensor,
// quants has rows * p.row_bytes bytes, scales and offsets rows * p.groups entries; offsets is empty but for SWY_I4A.
struct QuantizedRows {
  std::span<std::byte> quants;
  std::span<uint16_t> scales;
  std::span<uint16_t> offsets;
};

// Quantizes `row_count` rows [row_count, in] of a tensor described by `desc` (SWY_I8, SWY_I4 or SWY_I4A; its last dim
// is `in`). Searches scales (and offsets) with a small squared error of the dequantized values, never above the error
// of the scale that spans the group's extremes. Errors are compared after rounding scales to fp16. Errors: invalid_data
// for a NaN or infinite weight, or one too large for an fp16 scale, with its row (within these rows) and column;
// internal for spans of a wrong size.
Status quantize_rows(const float* rows, uint64_t row_count, const swy_tensor& desc, const QuantizedRows& out);

}  // namespace switchyard
