// SPDX-License-Identifier: Apache-2.0
// MOE, MOE_ADD and EXPERTS for steps of many rows, but few rows an expert (moe_scaled_bytes.cuh).
#include "moe_scaled_bytes.cuh"

#include <algorithm>

#include "moe_byte_parts.cuh"
#include "moe_combine.cuh"
#include "moe_scaled_bytes.h"

namespace gpu {
namespace {

// Layout of the workspace after the operands.
void place(ScaledByteMixture& b, Arena& arena, const swy_op& op) {
  const uint32_t width = widest_expert(op);
  place_grouped(b.g, arena, op, kScaledByteRows, byte_spans(width));
  b.x_scales = take_scaled_scales(arena, b.g.groups, byte_stages(hidden_of(op)));
  b.h_scales = take_scaled_scales(arena, b.g.groups, spans_of(width));
}

struct Shapes {
  ScaledByteShape gate_up, down;
};
Shapes shapes_of(const swy_device& device, const swy_op& op) {
  const auto groups = [](const swy_tensor& t) {
    return t.group == 0 ? 1u : static_cast<uint32_t>(ceil_div(t.dims[t.rank - 1], t.group));
  };
  uint32_t of_hidden = groups(swy::tensor(op, "gate_up")), of_width = groups(swy::tensor(op, "down"));
  if (moe_attrs(op).shared_width != 0) {
    of_hidden = std::max(of_hidden, groups(swy::tensor(op, "shared_gate_proj")));
    of_width = std::max(of_width, groups(swy::tensor(op, "shared_down_proj")));
  }
  const uint32_t memory = device.features.block_memory;
  return {scaled_byte_shape(memory, of_hidden, byte_stages(hidden_of(op)), kStagedRow),
          scaled_byte_shape(memory, of_width, spans_of(widest_expert(op)), 0)};
}

swy_status record_experts(const Recording& r, const ScaledByteMixture& b) {
  const Mixture& m = b.g.m;
  GateUpWeights gate_up{};
  DownWeights down{};
  SWY_CUDA_TRY(stream_experts(r, m, gate_up, down));
  const uint32_t parts = m.shared_width != 0 ? kRouted | kShared : kRouted;
  const auto processors = static_cast<uint32_t>(r.device().processors);
  const Shapes shapes = shapes_of(r.device(), r.op);
  SWY_CUDA_TRY(launch(r, gate_up_scaled_bytes, processors, kByteThreads, shapes.gate_up.bytes(), b, gate_up, parts,
                      spans_of(std::max(m.width, m.shared_width)), shapes.gate_up));
  return launch(r, down_scaled_bytes, processors, kByteThreads, shapes.down.bytes(), b, down, parts,
                ceil_div(m.hidden, kTileRowsOfWeight), shapes.down);
}

}  // namespace

swy_status record_scaled_bytes(const Recording& r, const Mixture& m, Arena arena, const InputNorm* norm,
                               const NormedBytes* next) {
  ScaledByteMixture b{};
  b.g.m = m;
  place(b, arena, r.op);
  const uint32_t rows = rows_of(r.op);
  SWY_CUDA_TRY(record_routes(r, b.g.m, norm));
  SWY_CUDA_TRY(launch(r, sort_tiles, 1, kSortThreads, 0, b.g, r.list.step));
  SWY_CUDA_TRY(launch(r, norm != nullptr ? gather_scaled_bytes<true> : gather_scaled_bytes<false>, rows, 256, 0, b,
                      norm != nullptr ? *norm : InputNorm{}, r.list.step));
  SWY_CUDA_TRY(record_experts(r, b));
  return record_combine(r, b.g, next);
}

uint64_t scaled_bytes_workspace(const swy_op& op) {
  Arena arena(nullptr);
  ScaledByteMixture b{};
  place(b, arena, op);
  return mixture_workspace(op, false) + arena.used();
}

bool scaled_bytes_fit(const swy_device& device, const swy_op& op) {
  const Shapes shapes = shapes_of(device, op);
  return shapes.gate_up.stages != 0 && shapes.down.stages != 0;
}

}  // namespace gpu
