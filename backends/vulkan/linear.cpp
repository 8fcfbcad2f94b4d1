// SPDX-License-Identifier: Apache-2.0
// LINEAR, LINEAR_ADD and RMS_NORM_LINEAR.
//
//   *.vector  16 bytes per lane of every weight, activations in shared memory (linear_vector.comp)
//   *.dot     the same by products of bytes, activations of 16 bits
//   *.plain   any shape, one subgroup per element of the output (linear.comp)
#include "projection.h"

#include <algorithm>

namespace gpu {
namespace {

#include "linear.comp.h"
#include "linear_vector.comp.h"
#include "linear_vector.dot.h"
constexpr Shader kPlain = SWY_SHADER(linear_comp), kVector = SWY_SHADER(linear_vector_comp);
constexpr Shader kDot = SWY_SHADER(linear_vector_dot);
// One workgroup on each processor, with 64 registers a thread. The compiler keeps to what this number of threads
// leaves, which is enough for three rows.
constexpr uint32_t kWideThreads = 1024, kWideRows = 3;

uint32_t sum_of_rows(const ProjectionPart& p, uint32_t per_task) {
  uint32_t tasks = 0;
  for (uint32_t i = 0; i < p.count; ++i) tasks += ceil_div(p.push.rows[i], per_task);
  return tasks;
}

uint32_t rows_of(const Recording& r) { return static_cast<uint32_t>(swy::tensor(r.op, "x").dims[0]); }
template <bool kBytes>
swy_status record_linear(const Recording& r) {
  const Projection p = linear_projection(r);
  SWY_VK_TRY(record_projection(r, p, rows_of(r), kBytes));
  if (kBytes && r.op.id == SWY_OP_LINEAR_ADD && rows_of(r) == 1 && p.count == 1 && p.biases[0].data == 0) {
    r.list.add = {p.x, p.residual, p.y[0], p.weights[0], r.list.dispatches.size()};
  }
  return SWY_OK;
}
swy_status record_linear_plain(const Recording& r) {
  return record_projection_plain(r, linear_projection(r), rows_of(r));
}

template <bool kBytes>
swy_status supports_vector(const swy_device& device, const swy_op& op, const swy_bucket&, swy_error* error) {
  if (kBytes) SWY_VK_TRY(dot_usable(device, error));
  return vector_usable(device, op, matrices_of(op), swy::tensor(op, "x").dims[1], kBytes, error);
}

double cost_vector(const swy_op& op, const swy_bucket&) {
  double bytes = row_bytes(op), elements = 0;
  const double rows = static_cast<double>(swy::tensor(op, "x").dims[0]);
  const Matrices m = matrices_of(op);
  for (uint32_t i = m.first; i < m.first + m.count; ++i) {
    bytes += weight_bytes(*op.weights[i]);
    elements += static_cast<double>(op.weights[i]->dims[0] * op.weights[i]->dims[1]);
  }
  return 4 + bytes / 1.4e6 + elements * (rows - 1) / 3e6;
}
double cost_dot(const swy_op& op, const swy_bucket& bucket) { return 0.7 * cost_vector(op, bucket); }
double cost_plain(const swy_op& op, const swy_bucket& bucket) { return 20 * cost_vector(op, bucket); }

constexpr Kernel vector_kernel(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .flags = kInvariant,
          .activations = SWY_F32,
          .supports = supports_vector<false>,
          .cost = cost_vector,
          .record = record_linear<false>,
          .op_revision = 2,
          .weight_dtypes = kMatrices};
}
constexpr Kernel dot_kernel(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .flags = kInvariant,
          .activations = SWY_BF16,
          .supports = supports_vector<true>,
          .cost = cost_dot,
          .record = record_linear<true>,
          .op_revision = 2};
}
constexpr Kernel plain_kernel(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .flags = kInvariant,
          .activations = SWY_F32,
          .cost = cost_plain,
          .record = record_linear_plain,
          .op_revision = 2,
          .weight_dtypes = kMatrices};
}
constexpr Kernel kKernels[] = {
    vector_kernel("linear.vector", SWY_OP_LINEAR),
    vector_kernel("linear_add.vector", SWY_OP_LINEAR_ADD),
    vector_kernel("rms_norm_linear.vector", SWY_OP_RMS_NORM_LINEAR),
    dot_kernel("linear.dot", SWY_OP_LINEAR),
    dot_kernel("linear_add.dot", SWY_OP_LINEAR_ADD),
    dot_kernel("rms_norm_linear.dot", SWY_OP_RMS_NORM_LINEAR),
    plain_kernel("linear.plain", SWY_OP_LINEAR),
    plain_kernel("linear_add.plain", SWY_OP_LINEAR_ADD),
    plain_kernel("rms_norm_linear.plain", SWY_OP_RMS_NORM_LINEAR),
};

// Biases, of projection.glsl.
struct Biases {
  uint64_t at[4];
  uint32_t types[4];
};

// Stores where the biases of a part's weights are, if it has any.
swy_status put_biases(const Recording& r, const Projection& p, uint32_t first, ProjectionPart& part) {
  Biases b{};
  bool any = false;
  for (uint32_t i = 0; i < part.count; ++i) {
    const Weight& bias = p.biases[first + i];
    if (bias.data == 0) continue;
    any = true;
    b.at[i] = bias.data;
    b.types[i] = bias.form & 0xffu;
  }
  if (!any) return SWY_OK;
  Span out;
  SWY_VK_TRY(put_constants(r.list, &b, sizeof b, out, r.error));
  part.push.biases = out.address;
  part.flags |= 8;
  return SWY_OK;
}

// Elements [from, from + width) of the rows of a part.
struct Slice {
  uint32_t from, width;
};

swy_status record_slice(const Recording& r, const Projection& p, const ProjectionPart& part, Slice slice, uint32_t rows,
                        uint32_t forms, bool dot) {
  VectorShape s = vector_shape(r.device(), rows, slice.width, forms);
  if (s.m == 1) take_long_rows(r.device(), sum_of_rows(part, 1), slice.width, s);
  if (dot) take_wide_groups(r.device(), sum_of_rows(part, 1), s);
  const uint32_t tasks = sum_of_rows(part, s.r);
  const uint32_t groups = s.threads == kThreads ? groups_for(r.device(), tasks) : r.device().features.processors;
  return launch(r, dot ? kDot : kVector,
                {part.forms[0], part.forms[1], part.forms[2], part.forms[3], part.flags, rows > 1 || p.gather,
                 slice.width, s.threads, slice.from, p.width, s.m, s.r, s.u, s.blocks, forms},
                {groups, ceil_div(rows, s.m)}, part.push, {p.x, p.residual},
                {part.y[0], part.y[1], part.y[2], part.y[3]});
}

// A part, as a whole if its rows fit; else slice by slice, each added to the result of those before.
swy_status record_vector_part(const Recording& r, Projection p, uint32_t first, uint32_t rows, bool dot) {
  uint32_t width = p.width, forms = 0;
  for (uint32_t from = 0; from < p.width; from += width) {
    ProjectionPart part;
    SWY_VK_TRY(take_part(r, p, first, part));
    for (uint32_t i = 0; dot && i < part.count; ++i) forms |= form_of(part.forms[i]);
    if (from == 0 && p.count == 1 && !p.normed) width = slice_width(r.device(), p.width, forms);
    part.push.x += uint64_t{from} * 4;
    SWY_VK_TRY(record_slice(r, p, part, {from, at_most(p.width - from, width)}, rows, forms, dot));
    p.residual = p.y[0];
    p.biases[0] = {};
  }
  return SWY_OK;
}

}  // namespace

Matrices matrices_of(const swy_op& op) { return {swy::at(op, "w"), op.output_count}; }

swy_status take_part(const Recording& r, const Projection& p, uint32_t first, ProjectionPart& part) {
  part.count = at_most(p.count - first, 4);
  ProjectionPush& push = part.push;
  push.x = p.x.address;
  push.extra = p.normed ? p.norm.data : p.residual.address;
  push.step = r.step();
  push.width = p.width;
  push.eps = p.eps;
  push.bias = p.bias;
  for (uint32_t i = 0; i < part.count; ++i) {
    const Weight& w = p.weights[first + i];
    push.data[i] = w.data;
    push.rows[i] = w.rows;
    push.y[i] = p.y[first + i].address;
    part.forms[i] = w.form;
    part.y[i] = p.y[first + i];
  }
  part.flags = (p.normed ? 1 | (p.norm.form & 15u) << 8 : 0) | (p.residual.address != 0 ? 2 : 0) | (p.gather ? 4 : 0) |
               static_cast<uint32_t>(p.domain) << 4;
  return put_biases(r, p, first, part);
}

Projection linear_projection(const Recording& r) {
  const swy_op& op = r.op;
  const bool normed = op.id == SWY_OP_RMS_NORM_LINEAR;
  Projection p;
  p.x = r.operands.input("x");
  p.residual = r.operands.input("residual");
  p.width = static_cast<uint32_t>(swy::tensor(op, "x").dims[1]);
  p.domain = swy::tensor(op, "x").rows;
  p.normed = normed;
  if (normed) {
    const auto& a = r.attrs<swy_rms_norm_attrs>();
    p.norm = r.operands.weight("norm");
    p.eps = a.eps;
    p.bias = a.weight_bias;
  }
  const Matrices m = matrices_of(op);
  const uint32_t bias = swy::at(op, "bias");
  p.count = m.count;
  for (uint32_t i = 0; i < p.count; ++i) {
    p.weights[i] = r.operands.weight(m.first + i);
    if (bias != UINT32_MAX) p.biases[i] = r.operands.weight(bias + i);
    p.y[i] = r.operands.output(i);
  }
  return p;
}

uint32_t form_of(uint32_t weight_form) {
  const uint32_t dtype = weight_form & 0xffu;
  return dtype == SWY_I8 ? 2 : dtype == SWY_I4 || dtype == SWY_I4A ? 1 : dtype == 0 ? 0 : 4;
}

VectorShape vector_shape(const swy_device& device, uint32_t rows, uint32_t width, uint32_t forms) {
  const uint32_t needed = ceil_div(width, 32);
  uint32_t blocks = 16;
  while (blocks < needed) blocks *= 2;
  const auto fits = [&](uint32_t m) {
    const uint32_t floats = forms == 0 || (forms & 4) != 0 ? 8 * (blocks + 1) * 16 + blocks * 8 : 0;
    const uint32_t bytes = blocks * (((forms & 1) != 0 ? 64 : 0) + ((forms & 2) != 0 ? 64 : 0) + 8 + 4);
    return m * (floats + bytes) + 1024 <= device.features.shared_bytes;
  };
  if (!fits(1)) blocks = needed;
  if (!fits(1)) return {0, 0, 0, 0};
  const bool cpu = device.features.cpu;  // such drivers take long to compile unrolled loops
  if (cpu) return {rows > 1 && fits(4) ? 4u : 1u, 2, 1, blocks};
  if (rows > 4 && fits(8)) return {8, 2, 1, blocks};
  if (rows > 2 && fits(4)) return {4, 2, 2, blocks};
  if (rows > 1 && fits(2)) return {2, 2, 2, blocks};
  return {1, 2, 2, blocks};
}

uint32_t slice_width(const swy_device& device, uint32_t width, uint32_t forms) {
  const uint32_t blocks = ceil_div(width, 32);
  for (uint32_t n = 1; n < blocks; ++n) {
    const uint32_t slice = ceil_div(blocks, n) * 32;
    if (vector_shape(device, 1, slice, forms).m != 0) return n == 1 ? width : slice;
  }
  return at_most(width, 32);
}

void take_long_rows(const swy_device& device, uint32_t rows, uint32_t width, VectorShape& s) {
  if (device.features.cpu || width < 128 * 32 || s.r != 2) return;
  if (ceil_div(rows, 2 * (kThreads / device.features.subgroup)) >= 2 * device.features.processors) return;
  s.r = 1;
  s.u = 4;
}

void take_wide_groups(const swy_device& device, uint32_t rows, VectorShape& s) {
  const auto& f = device.features;
  if (f.cpu || f.processors == 0 || f.subgroup < 32 || f.most_threads < kWideThreads || s.m != 1 || s.r != 2) return;
  const uint32_t subgroups = f.processors * (kWideThreads / f.subgroup);
  if (rows <= 2 * subgroups) return;
  s.threads = kWideThreads;
  s.r = at_most(ceil_div(rows, subgroups), kWideRows);
}

uint32_t groups_for(const swy_device& device, uint32_t tasks) {
  const uint32_t groups = ceil_div(tasks, kThreads / device.features.subgroup);
  const uint32_t most = device.features.processors != 0 ? device.features.processors * 4 : 1024;
  const uint32_t turns = std::max(1u, ceil_div(groups, most));
  return ceil_div(groups, turns);
}

swy_status dot_usable(const swy_device& device, swy_error* error) {
  if (device.features.dot8) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "the device has no fast products of bytes");
}

swy_status pieces_usable(const swy_op& op, Matrices m, swy_error* error) {
  for (uint32_t i = m.first; i < m.first + m.count; ++i) {
    if (!readable_in_pieces(*op.weights[i])) return refuse_rows(op, i, error);
  }
  return SWY_OK;
}

swy_status vector_usable(const swy_device& device, const swy_op& op, Matrices m, uint64_t width, bool dot,
                         swy_error* error) {
  SWY_VK_TRY(pieces_usable(op, m, error));
  const auto wide = static_cast<uint32_t>(width);
  uint32_t forms = 0;
  for (uint32_t i = m.first; dot && i < m.first + m.count; ++i) forms |= form_of(op.weights[i]->dtype);
  if (vector_shape(device, 1, wide, forms).m == 0) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "a row of %u does not fit the shared memory", wide);
  }
  return SWY_OK;
}

swy_status record_projection(const Recording& r, const Projection& p, uint32_t rows, bool dot) {
  for (uint32_t first = 0; first < p.count; first += 4) SWY_VK_TRY(record_vector_part(r, p, first, rows, dot));
  return SWY_OK;
}

swy_status record_projection_plain(const Recording& r, const Projection& p, uint32_t rows) {
  for (uint32_t first = 0; first < p.count; first += 4) {
    ProjectionPart part;
    SWY_VK_TRY(take_part(r, p, first, part));
    const uint32_t groups = groups_for(r.device(), sum_of_rows(part, 1));
    SWY_VK_TRY(launch(r, kPlain, {part.forms[0], part.forms[1], part.forms[2], part.forms[3], part.flags},
                      {groups, at_most(rows, 1024)}, part.push, {p.x, p.residual},
                      {part.y[0], part.y[1], part.y[2], part.y[3]}));
  }
  return SWY_OK;
}

std::span<const Kernel> linear_kernels() { return kKernels; }

}  // namespace gpu
