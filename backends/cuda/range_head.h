// SPDX-License-Identifier: Apache-2.0
// The range with which a step ends:
//
//   RMS_NORM, LM_HEAD          a norm, and logits of its rows
//   RMS_NORM, LM_HEAD, SAMPLE  and tokens drawn from these, which nothing else reads
//
// The head norms the rows itself (linear/lm_head_normed.h).
#pragma once

#include "range_parts.h"

namespace gpu {

// How many of the first of n operations are such a range; 0: they begin no such range.
uint32_t ends_with_head(const swy_op* const* ops, uint32_t n);
swy_status supports_end(const swy_device& device, const swy_op* const* ops, uint32_t n, const swy_bucket& bucket,
                        swy_error* error);
double end_cost(const swy_device& device, const swy_op* const* ops, uint32_t n, const swy_bucket& bucket);
uint64_t end_workspace(const swy_device& device, const swy_op* const* ops, uint32_t n, const swy_bucket& bucket);
// Whether the values are connected like this, and the norm's rows alone are read elsewhere, if at all.
swy_status accept_end(const swy_device& device, const swy_op* const* ops, uint32_t n, const swy_bucket& bucket,
                      const swy_range_values& values, swy_error* error);
swy_status record_end(swy_list* list, const swy_range_operands& o, const swy_binding& workspace, swy_error* error);

}  // namespace gpu
