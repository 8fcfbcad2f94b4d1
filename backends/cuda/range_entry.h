// SPDX-License-Identifier: Apache-2.0
// The range with which a multi-token prediction layer begins:
//
//   EMBEDDING, RMS_NORM        the embedding's rows, normed
//   RMS_NORM                   other rows, normed
//   LINEAR, LINEAR, ADD        a projection of each, and their sum
//
// One kernel computes all of it (linear/linear_two.cu).
#pragma once

#include "range_parts.h"

namespace gpu {

constexpr uint32_t kEntry = 6;  // operations

// Whether the first of n operations are these.
bool begins_entry(const swy_op* const* ops, uint32_t n);
swy_status supports_entry(const swy_device& device, const swy_op* const* ops, swy_error* error);
double entry_cost(const swy_device& device, const swy_op* const* ops);
// Whether their values are connected like this, and nothing but the sum is read elsewhere.
swy_status accept_entry(const swy_range_values& values, swy_error* error);
swy_status record_entry(swy_list* list, const swy_range_operands& o, swy_error* error);

}  // namespace gpu
