// SPDX-License-Identifier: Apache-2.0
// LINEAR, LINEAR_ADD, RMS_NORM_LINEAR and LM_HEAD for many rows on Hopper (linear_grouped.cuh). Weights of few rows go
// to narrow.cuh.
#include "linear_grouped.cuh"

#include <algorithm>
#include <utility>

#include "common/projection.cuh"
#include "grouped/narrow.cuh"

namespace gpu {
namespace {

bool head(const swy_op& op) { return op.id == SWY_OP_LM_HEAD; }
uint32_t rows_of(const swy_op& op) {
  return static_cast<uint32_t>(head(op) ? swy::tensor(op, "logits").dims[0] : swy::tensor(op, "x").dims[0]);
}
swy_rows domain_of(const swy_op& op) {
  return head(op) ? static_cast<swy_rows>(SWY_ROWS_LOGITS) : swy::tensor(op, "x").rows;
}
uint32_t width_of(const swy_op& op) { return static_cast<uint32_t>(swy::tensor(op, "x").dims[1]); }

// How a weight is multiplied. 4-bit weights with and without offsets are one encoding here.
enum class Way { nibbles, bytes, halves, narrow, other };

Way way_of(const swy_tensor& t) {
  if (narrow(t)) return Way::narrow;
  if (!streamable(t) || t.dtype == SWY_MXFP4) return Way::other;
  return t.dtype == SWY_I8 ? Way::bytes : t.dtype == SWY_BF16 ? Way::halves : Way::nibbles;
}

constexpr uint32_t kMostParts = 8;          // of a tile's spans
constexpr uint32_t kMostRowsInParts = 256;  // of a step: with more, all multiprocessors have tiles

// Rows of activations per tile, the number of parts into which the spans of a tile are divided, and the estimated time
// in hundredths of a microsecond on an H200. The time counts rounds over all multiprocessors; each round takes about
// the time of 60 rows and its own per span. The block that ends last adds up the parts, more slowly for tiles of more
// than 64 rows, since their sums leave few registers for loads. The fastest of all sizes is taken.
struct Tiling {
  uint32_t rows, parts;
  uint64_t time;
};
Tiling tiling(uint32_t rows, uint32_t steps, uint32_t spans, uint32_t processors) {
  Tiling best{0, 1, UINT64_MAX};
  const uint32_t most_parts = rows > kMostRowsInParts ? 1 : std::min(kMostParts, spans);
  for (uint32_t parts = 1; parts <= most_parts; parts *= 2) {
    for (const uint32_t n : {128u, 96u, 64u, 32u}) {
      const uint64_t tiles = uint64_t{steps} * ceil_div(rows, n);
      const uint64_t join = 250 + uint64_t{parts} * n * (n > 64 ? 4 : 1);
      const uint64_t joined = parts == 1 ? 0 : join * ceil_div(tiles, processors);
      const uint64_t time = uint64_t{ceil_div(tiles * parts, processors)} * ceil_div(spans, parts) * (n + 60) + joined;
      if (time < best.time) best = {n, parts, time};
    }
  }
  return best;
}

// Layout of the workspace.
struct Parts {
  uint8_t* panels;
  float *inverse, *joined;  // joined: sums of products whose columns are divided
};
Parts place(Arena& arena, const swy_op& op, uint32_t processors) {
  const uint32_t rows = rows_of(op), width = width_of(op);
  uint32_t steps[4] = {};
  for (uint32_t i = first_weight(op); i < end_of_weights(op); ++i) {
    const Way way = way_of(*op.weights[i]);
    if (way < Way::narrow) steps[static_cast<uint32_t>(way)] += ceil_div(op.weights[i]->dims[0], kTileRowsOfWeight);
  }
  uint64_t joined = 0;
  for (const uint32_t n : steps) {
    if (n == 0) continue;
    const Tiling t = tiling(rows, n, ceil_div(width, kSpan), processors);
    const uint64_t tiles = uint64_t{n} * ceil_div(rows, t.rows);
    if (t.parts > 1) joined = std::max(joined, tiles * t.parts * t.rows * kTileRowsOfWeight);
  }
  Parts p{};
  p.panels = arena.take<uint8_t>(uint64_t{ceil_div(width, kSpan)} * ceil_div(rows, 8) * kPanelBytes);
  p.inverse = arena.take<float>(rows);
  if (joined != 0) p.joined = arena.take<float>(joined);
  return p;
}

GroupedRows rows_to_panels(const Recording& r, const Parts& parts) {
  GroupedRows x{};
  x.x = r.operands.input("x");
  x.y = parts.panels;
  x.width = width_of(r.op);
  x.groups = ceil_div(rows_of(r.op), 8);
  x.domain = domain_of(r.op);
  x.gather = head(r.op);
  take_norm(r, x);
  if (x.normed) x.inverse = parts.inverse;
  return x;
}

template <swy_dtype kDtype>
swy_status record_as(const Recording& r, GroupedLinear& p, const GroupedLinearWeights& w) {
  const auto processors = static_cast<uint32_t>(r.device().processors);
  const Tiling t = tiling(rows_of(r.op), p.first[p.count], p.spans, processors);
  const uint32_t n = t.rows, tiles = p.first[p.count] * ceil_div(rows_of(r.op), n);
  p.parts = t.parts;
  if (p.parts > 1) {
    p.counters = take_counters(r.list, tiles, r.error);
    if (p.counters == nullptr) return SWY_UNSUPPORTED;
  }
  const GroupedShape shape = grouped_shape(r.device().features.block_memory, kDtype, n, false);
  const auto kernel = n == 128  ? linear_grouped<kDtype, 128>
                      : n == 96 ? linear_grouped<kDtype, 96>
                      : n == 64 ? linear_grouped<kDtype, 64>
                                : linear_grouped<kDtype, 32>;
  return launch(r, kernel, std::min(processors, tiles * p.parts), n > 64 ? kGroupedThreads<2> : kGroupedThreads<1>,
                shape.bytes(kDtype), p, w, shape, r.list.step);
}

// The product with all weights of one encoding. `beside`: the previous kernel is that of the narrow weights.
swy_status record_streamed(const Recording& r, const Parts& parts, Way way, bool& beside) {
  GroupedLinear p{};
  GroupedLinearWeights w{};
  for (uint32_t i = first_weight(r.op), o = 0; i < end_of_weights(r.op); ++i, ++o) {
    if (way_of(*r.op.weights[i]) != way) continue;
    const Weight weight = r.operands.weight(i);
    SWY_CUDA_TRY(stream_weight(weight, &w.w[p.count], r.error));
    p.y[p.count] = r.operands.output(o);
    p.biases[p.count] = bias_of_output(r, o);
    p.first[p.count + 1] = p.first[p.count] + ceil_div(weight.rows, kTileRowsOfWeight);
    ++p.count;
  }
  if (p.count == 0) return SWY_OK;
  p.x = parts.panels;
  p.partial = parts.joined;
  p.residual = r.operands.input("residual");
  p.spans = ceil_div(width_of(r.op), kSpan);
  p.groups = ceil_div(rows_of(r.op), 8);
  p.domain = domain_of(r.op);
  p.beside = std::exchange(beside, false);
  return way == Way::nibbles ? record_as<SWY_I4>(r, p, w)
         : way == Way::bytes ? record_as<SWY_I8>(r, p, w)
                             : record_as<SWY_BF16>(r, p, w);
}

// The wide products request their weights before the rows are ready, so they begin beside the narrow ones.
swy_status record_grouped(const Recording& r) {
  Arena arena(r.operands.workspace());
  const Parts parts = place(arena, r.op, static_cast<uint32_t>(r.device().processors));
  const GroupedRows x = rows_to_panels(r, parts);
  SWY_CUDA_TRY(launch(r, panel_rows, rows_of(r.op), 256, 0, x, r.list.step));
  bool beside = false;
  SWY_CUDA_TRY(record_narrow_weights(r, x, rows_of(r.op), beside));
  for (const Way way : {Way::nibbles, Way::bytes, Way::halves}) SWY_CUDA_TRY(record_streamed(r, parts, way, beside));
  return SWY_OK;
}

swy_status supports_grouped(const swy_device& device, const swy_op& op, const swy_bucket&, swy_error* error) {
  SWY_CUDA_TRY(needs_wgmma(device, error));
  constexpr uint32_t kLeastOfHead = 8;  // fewer are bound by memory, and vectors come closer to that
  if (head(op) && rows_of(op) < kLeastOfHead) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "takes %u rows of logits or more, the bucket has %u",
                     kLeastOfHead, rows_of(op));
  }
  bool streamed = false;
  for (uint32_t i = first_weight(op); i < end_of_weights(op); ++i) {
    const Way way = way_of(*op.weights[i]);
    streamed = streamed || (way != Way::narrow && way != Way::other);
    if (way == Way::other || (way == Way::narrow && (op.id == SWY_OP_LINEAR_ADD || head(op)))) {
      return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                       "weight %u cannot be streamed: bf16 or quantized rows of a multiple of 32 are needed", i);
    }
  }
  if (streamed || op.id == SWY_OP_LINEAR || op.id == SWY_OP_RMS_NORM_LINEAR) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "no weight of many rows");
}

// Microseconds of an H200: 0.01 per span and row of the tiling; or the time of the weights' bytes if that is longer.
double cost_grouped(const swy_device& device, const swy_op& op, const swy_bucket&) {
  const auto processors = static_cast<uint32_t>(device.processors);
  double bytes = 0;
  uint32_t steps = 0, few = 0;
  for (uint32_t i = first_weight(op); i < end_of_weights(op); ++i) {
    bytes += weight_bytes(*op.weights[i]);
    const uint32_t tiles = ceil_div(op.weights[i]->dims[0], kTileRowsOfWeight);
    way_of(*op.weights[i]) == Way::narrow ? few += tiles : steps += tiles;
  }
  const double products =
      steps == 0
          ? 0
          : device.rates.products(
                static_cast<double>(tiling(rows_of(op), steps, ceil_div(width_of(op), kSpan), processors).time), 100);
  return 10 + (few != 0 ? 8 : 0) + device.rates.bytes(static_cast<double>(rows_of(op)) * width_of(op), 6e5) +
         std::max(products, device.rates.bytes(bytes, 2.5e6));
}

uint64_t workspace(const swy_device& device, const swy_op& op, const swy_bucket&) {
  Arena arena(nullptr);
  place(arena, op, static_cast<uint32_t>(device.processors));
  return arena.used();
}

constexpr Kernel kernel(const char* name, uint32_t op) {
  return {.name = name,
          .op = op,
          .flags = kAlways,
          .activations = SWY_BF16,
          .supports = supports_grouped,
          .cost = cost_grouped,
          .workspace = workspace,
          .record = record_grouped,
          .op_revision = op == SWY_OP_LM_HEAD ? 1u : 2u};
}
constexpr Kernel kKernels[] = {
    kernel("linear.grouped", SWY_OP_LINEAR),
    kernel("linear_add.grouped", SWY_OP_LINEAR_ADD),
    kernel("rms_norm_linear.grouped", SWY_OP_RMS_NORM_LINEAR),
    kernel("lm_head.grouped", SWY_OP_LM_HEAD),
};

}  // namespace

swy_status record_narrow_weights(const Recording& r, const GroupedRows& x, uint32_t rows, bool& recorded) {
  Narrow n{};
  for (uint32_t i = first_weight(r.op), o = 0; i < end_of_weights(r.op); ++i, ++o) {
    if (!narrow(*r.op.weights[i])) continue;
    n.w[n.count] = r.operands.weight(i);
    n.biases[n.count] = bias_of_output(r, o);
    n.y[n.count++] = r.operands.output(o);
  }
  if (n.count == 0) return SWY_OK;
  n.x = x.x;
  n.inverse = x.inverse;
  n.normed = x.normed;
  n.norm = x.norm;
  n.bias = x.bias;
  n.width = x.width;
  n.domain = x.domain;
  recorded = true;
  return record_narrow(r, n, rows);
}

std::span<const Kernel> linear_grouped_kernels() { return kKernels; }

}  // namespace gpu
