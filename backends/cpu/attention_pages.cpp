// SPDX-License-Identifier: Apache-2.0
// The layout of ATTENTION's pages, from and to the canonical one; KV_APPEND, which writes a step's rows to them.
#include "attention.h"

#include "switchyard/sdk/error.hpp"

namespace cpu {

swy_status kv_supported(const swy_op& op, const swy_bucket&, swy_error* error) {
  if (op.states[kKv]->dtype == SWY_F32) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE, "a KV state that is not fp32");
}

uint32_t kv_layout(const swy_tensor& state) { return state.state == SWY_STATE_PAGED ? kTransposedKeys : 0; }

// Canonical: per token [2, kv_heads, head_dim].
void kv_to_canonical(const swy_tensor& state, uint32_t page, const void* unit, void* canonical) {
  const uint64_t heads = state.dims[1], hd = state.dims[2];
  const auto* from = static_cast<const float*>(unit);
  auto* to = static_cast<float*>(canonical);
  for (uint64_t t = 0; t < page; ++t) {
    for (uint64_t h = 0; h < heads; ++h) {
      for (uint64_t i = 0; i < hd; ++i) {
        to[(t * 2 * heads + h) * hd + i] = from[(h * hd + i) * page + t];
        to[(t * 2 * heads + heads + h) * hd + i] = from[((heads + h) * page + t) * hd + i];
      }
    }
  }
}

void kv_from_canonical(const swy_tensor& state, uint32_t page, const void* canonical, void* unit) {
  const uint64_t heads = state.dims[1], hd = state.dims[2];
  const auto* from = static_cast<const float*>(canonical);
  auto* to = static_cast<float*>(unit);
  for (uint64_t t = 0; t < page; ++t) {
    for (uint64_t h = 0; h < heads; ++h) {
      for (uint64_t i = 0; i < hd; ++i) {
        to[(h * hd + i) * page + t] = from[(t * 2 * heads + h) * hd + i];
        to[((heads + h) * page + t) * hd + i] = from[(t * 2 * heads + heads + h) * hd + i];
      }
    }
  }
}

namespace {

void kv_append(const swy::Call& call) {
  const auto& a = call.attrs<swy_attention_attrs>();
  const uint32_t* positions = SWY_STEP_ARRAY(call.step, uint32_t, row_position_at);
  const uint32_t* seqs = SWY_STEP_ARRAY(call.step, uint32_t, row_seq_at);
  const uint32_t* active = SWY_STEP_ARRAY(call.step, uint32_t, seq_active_at);
  const auto [first, last] = call.split(call.step->rows);
  for (uint64_t r = first; r < last; ++r) {
    if (active[seqs[r]] == 0) continue;
    const KvPages kv(call, a, seqs[r]);
    for (uint64_t h = 0; h < a.kv_heads; ++h) {
      const uint64_t at = (r * a.kv_heads + h) * a.head_dim;
      kv.put(positions[r], h, call.input(KvAppend::input("k")) + at, call.input(KvAppend::input("v")) + at);
    }
  }
}

double append_cost(const swy_op& op, const swy_bucket& bucket) {
  return cost_of(2.0 * bucket.rows * static_cast<double>(op.inputs[KvAppend::input("k")]->dims[1]));
}
bool few_rows(const swy_op&, const swy_bucket& bucket) { return bucket.rows <= 2; }

constexpr swy::HostKernel kKernels[] = {
    {.name = "kv_append.plain",
     .op = SWY_OP_KV_APPEND,
     .cost = append_cost,
     .run = kv_append,
     .supports = kv_supported,
     .serial = few_rows},
};

}  // namespace

std::span<const swy::HostKernel> kv_append_kernels() { return kKernels; }

}  // namespace cpu
