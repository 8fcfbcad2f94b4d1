// SPDX-License-Identifier: Apache-2.0
// Heads that norm the rows that they read.
#pragma once

#include "host/kernels.h"

namespace gpu {

// An RMS_NORM in front of a head.
struct RowsNorm {
  Weight weight;
  float eps, bias;
  float* y;  // its rows; null: nothing but the head reads them
};

// A kernel of LM_HEAD and LM_HEAD_SAMPLE that can begin with the norm: the operation's input is what the norm reads.
struct NormedHead {
  // Whether it takes the operation; `kept`: the norm's rows are wanted, too.
  swy_status (*supports)(const swy_device& device, const swy_op& op, const swy_bucket& bucket, bool kept,
                         swy_error* error);
  double (*cost)(const swy_device& device, const swy_op& op, const swy_bucket& bucket);
  uint64_t (*workspace)(const swy_device& device, const swy_op& op, const swy_bucket& bucket);
  swy_status (*record)(const Recording& r, const RowsNorm& norm);
};
const NormedHead& normed_head_boxes();  // of one wanted row
const NormedHead& normed_head_few();    // of more

}  // namespace gpu
