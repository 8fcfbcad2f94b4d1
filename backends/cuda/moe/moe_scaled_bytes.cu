// SPDX-License-Identifier: Apache-2.0
// MOE, MOE_ADD and EXPERTS for steps of many rows, but few rows an expert (moe_scaled_bytes.cuh).
#include "moe_scaled_bytes.cuh"

#include <algorithm>

#include "moe_byte_parts.cuh"
#include "moe_combine.cuh"
#include "moe_scaled_bytes.h"

namespace gpu {
namespace {

ScaledByteScales take_scales(Arena& arena, uint64_t n) {
  float* scale = arena.take<float>(n);
  return {scale, arena.take<float>(n)};
}

// Layout of the workspace after the operands.
void place(ScaledByteMixture& b, Arena& arena, const swy_op& op) {
  const uint32_t width = widest_expert(op);
  place_grouped(b.g, arena, op, kScaledByteRows, spans_of(width));
  b.x_scales = take_scales(arena, uint64_t{ceil_div(spans_of(hidden_of(op)), kScaledSpansOfX)} * b.g.groups * 8);
  b.h_scales = take_scales(arena, uint64_t{spans_of(width)} * b.g.groups * 8);
}

uint32_t most_groups(const Weight& w, const Weight& shared) { return std::max(w.groups, shared.groups); }

swy_status record_experts(const Recording& r, const ScaledByteMixture& b) {
  const Mixture& m = b.g.m;
  GateUpWeights gate_up{};
  DownWeights down{};
  SWY_CUDA_TRY(stream_experts(r, m, gate_up, down));
  const uint32_t parts = m.shared_width != 0 ? kRouted | kShared : kRouted;
  const auto processors = static_cast<uint32_t>(r.device().processors);
  const ScaledByteShape of_hidden =
      scaled_byte_shape(r.device().features.block_memory, most_groups(m.gate_up, m.shared_gate), kGateUpStaging);
  const ScaledByteShape of_width =
      scaled_byte_shape(r.device().features.block_memory, most_groups(m.down, m.shared_down), 0);
  SWY_CUDA_TRY(launch(r, gate_up_scaled_bytes, processors, kByteThreads, of_hidden.bytes(), b, gate_up, parts,
                      spans_of(std::max(m.width, m.shared_width)), of_hidden));
  return launch(r, down_scaled_bytes, processors, kByteThreads, of_width.bytes(), b, down, parts,
                ceil_div(m.hidden, kTileRowsOfWeight), of_width);
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
  const swy_moe_attrs a = moe_attrs(op);
  const auto groups = [](const swy_tensor& t) { return t.group == 0 ? 1 : ceil_div(t.dims[t.rank - 1], t.group); };
  uint32_t most = std::max(groups(swy::tensor(op, "gate_up")), groups(swy::tensor(op, "down")));
  if (a.shared_width != 0) {
    most = std::max({most, groups(swy::tensor(op, "shared_gate_proj")), groups(swy::tensor(op, "shared_down_proj"))});
  }
  return scaled_byte_shape(device.features.block_memory, most, kGateUpStaging).stages != 0;
}

}  // namespace gpu
