// SPDX-License-Identifier: Apache-2.0
// One input times several weights: the operands of LINEAR, its fused forms and LM_HEAD, in the form of their shaders.
#pragma once

#include "kernels.h"

namespace gpu {

struct Projection {
  Span x, residual;
  Weight weights[SWY_LINEAR_MAX_WEIGHTS];
  Weight biases[SWY_LINEAR_MAX_WEIGHTS];  // without an address: none
  Span y[SWY_LINEAR_MAX_WEIGHTS];
  uint32_t count = 0, width = 0;
  swy_rows domain = SWY_ROWS_STEP;
  bool gather = false;  // row i of the output is row logit_row[i] of x
  bool normed = false;
  Weight norm;
  float eps = 0, bias = 0;
};

// Push constants of the shaders that include projection.glsl: up to four weights.
struct ProjectionPush {
  uint64_t x, extra, step;
  uint32_t width, scales_before;
  float eps, bias;
  uint64_t biases;
  uint64_t data[4], y[4];
  uint32_t rows[4];
};
static_assert(sizeof(ProjectionPush) == 128);

// Specialization constants 0 to 4 of those shaders, and the push constants, for weights `first` .. at most three more.
struct ProjectionPart {
  ProjectionPush push{};
  uint32_t forms[4] = {};
  uint32_t flags = 0;
  uint32_t count = 0;
  Span y[4];
};
swy_status take_part(const Recording& r, const Projection& p, uint32_t first, ProjectionPart& part);

// The operands of LINEAR, LINEAR_ADD and RMS_NORM_LINEAR.
Projection linear_projection(const Recording& r);

// How many rows of activations a workgroup processes at once (m), how many of weights a subgroup (r), how many pieces
// of 16 bytes a lane requests at a time (u), and the number of blocks of 32 elements that fit. m = 0: the row does not
// fit.
struct VectorShape {
  uint32_t m, r, u, blocks;
  uint32_t threads = kThreads;  // of a workgroup
};
// `forms`: of the activations, as vector.glsl names them; 0: fp32 alone, without products of bytes.
VectorShape vector_shape(const swy_device& device, uint32_t rows, uint32_t width, uint32_t forms);
// Few and long rows: one at a time, requested as a whole, so that twice as many subgroups take part.
void take_long_rows(const swy_device& device, uint32_t rows, uint32_t width, VectorShape& s);
// Many rows of a weight and one of activations: all of a processor's threads in one workgroup, which stages the row
// once. Each subgroup has as many rows of the weight as registers can hold, all requested at once.
void take_wide_groups(const swy_device& device, uint32_t rows, VectorShape& s);
uint32_t form_of(uint32_t weight_form);
// Elements of the equal slices, as few as possible, that a row of `width` elements is divided into so that each fits;
// the last may be shorter. The same for any number of rows, so that these do not change a result.
uint32_t slice_width(const swy_device& device, uint32_t width, uint32_t forms);

// Workgroups for so many tasks, one per subgroup: at most as many as the device runs at once, with equal shares.
uint32_t groups_for(const swy_device& device, uint32_t tasks);

// Whether the device has products of bytes.
swy_status dot_usable(const swy_device& device, swy_error* error);
// The matrices of LINEAR and its fused forms, among their weights.
struct Matrices {
  uint32_t first, count;
};
Matrices matrices_of(const swy_op& op);
// Whether the vector shaders can read these weights.
swy_status pieces_usable(const swy_op& op, Matrices m, swy_error* error);
// The same, and whether a row of `width` activations fits. `dot`: by products of bytes.
swy_status vector_usable(const swy_device& device, const swy_op& op, Matrices m, uint64_t width, bool dot,
                         swy_error* error);

// Records a projection of `rows` rows by the vector shader, or by the one for any shape. With one weight and no norm,
// the vector shader may have rows that do not fit: it adds up the products of their slices.
// `dot`: by products of bytes.
swy_status record_projection(const Recording& r, const Projection& p, uint32_t rows, bool dot);
swy_status record_projection_plain(const Recording& r, const Projection& p, uint32_t rows);

}  // namespace gpu
