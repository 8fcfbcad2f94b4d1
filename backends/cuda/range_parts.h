// SPDX-License-Identifier: Apache-2.0
// What a range consists of: for range.cu, which claims ranges, and range_record.cu, which records them.
#pragma once

#include <initializer_list>

#include "host/kernels.h"
#include "switchyard/extensions.h"

namespace gpu {

constexpr uint32_t kSequenceMixer = 3, kProjection = 2, kMixture = 3, kNext = 2;  // lengths of the parts

// Whether the first of n operations are these, with values that the kernels of ranges support.
bool begins(const swy_op* const* ops, uint32_t n, std::initializer_list<swy_op_id> ids);

// How many operations up to the addition of a projection, with a delta rule or attention in front or without, then how
// many of a mixture, and of the next layer's norm and projection.
struct Parts {
  uint32_t projection = 0, mixture = 0, next = 0;
  bool attends = false;  // with attention in front
  bool delta() const { return projection == kSequenceMixer && !attends; }
  uint32_t count() const { return projection + mixture + next; }
  bool layer() const { return projection != 0 && mixture != 0; }
};
// Of the longest range with which n operations begin; none: of no operations.
Parts parts_of(const swy_op* const* ops, uint32_t n);

inline uint32_t rows_of(const swy_op& op) { return static_cast<uint32_t>(swy::tensor(op, "x").dims[0]); }
// Whether the kernels of moe_boxes.cu compute a mixture; a mixture of one row has no others.
bool by_boxes(const swy_device& device, const swy_op& op);
// Whether those of moe_bytes.cu do; of the projection behind it, too.
bool many_rows(const swy_op& op);

// Whether gated_delta.batch computes the delta rule of a range, of up to four rows: more than two sequences' blocks of
// gated_delta.step find no room beside a projection, so half of the states would be requested late.
bool by_batch(const swy_device& device, const swy_op& delta, const swy_bucket& bucket);

// The workspace of the part with a projection; that of the mixture lies behind it.
uint64_t workspace_of_projection(const swy_device& device, const Parts& p, const swy_op* const* ops,
                                 const swy_bucket& bucket);

// Records a range's kernels.
swy_status record_parts(swy_list* list, const swy_range_operands& o, const swy_binding& workspace, swy_error* error);

}  // namespace gpu
