// SPDX-License-Identifier: Apache-2.0
// Weights in their canonical encodings, plainly: scales from the largest value of a group.
#pragma once

#include "plugins_api/check/case.h"

namespace switchyard::check {

// Fills w.segment and w.values from `values`, row-major, by w.desc. The encoded values are computed here independently,
// in fp64, and not by the function of weights.h.
void encode_weight(Weight& w, const std::vector<float>& values);

uint16_t to_half(float x);  // nearest fp16, ties to even; |x| below 65504

}  // namespace switchyard::check
