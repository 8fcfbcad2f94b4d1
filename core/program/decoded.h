// SPDX-License-Identifier: Apache-2.0
// Weights of described encodings (SWY_ENCODED), decoded to a type that every backend knows.
#pragma once

#include <cstddef>

#include "switchyard/ops.h"

namespace switchyard {

// The same weight as a plain array of `dtype`, SWY_BF16 or SWY_F32.
swy_tensor decoded_form(const swy_tensor& encoded, swy_dtype dtype);

// Fills `to`, of the size of that form, from a canonical segment. Values are rounded to nearest even.
void decode_weight(const swy_tensor& encoded, const std::byte* segment, swy_dtype dtype, std::byte* to);

}  // namespace switchyard
