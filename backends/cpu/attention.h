// SPDX-License-Identifier: Apache-2.0
// The KV state of ATTENTION: where its parts lie in a page.
//
// A page of P tokens holds, for each KV head, the keys transposed [head_dim, P], so that a vector of scores is a sum of
// whole vectors; after all keys, for each KV head, the values [P, head_dim].
#pragma once

#include <cstring>

#include "kernels.h"

namespace cpu {

using Attention = swy::Operands<SWY_OP_ATTENTION>;
using Attend = swy::Operands<SWY_OP_ATTEND>;
using KvAppend = swy::Operands<SWY_OP_KV_APPEND>;
// Their one state, and the rows of queries of ATTENTION and ATTEND.
inline constexpr uint32_t kKv = swy::Operands<SWY_OP_ATTENTION, SWY_OP_ATTEND, SWY_OP_KV_APPEND>::state("kv");
inline constexpr uint32_t kQueries = swy::Operands<SWY_OP_ATTENTION, SWY_OP_ATTEND>::input("q");
inline constexpr uint32_t kAttended = swy::Operands<SWY_OP_ATTENTION, SWY_OP_ATTEND>::output("y");

inline constexpr uint32_t kTransposedKeys = 1;  // state layout id

struct KvPages {
  float* data;
  const uint32_t* table;  // of one sequence
  uint64_t page, kv_heads, head_dim;

  KvPages(const swy::Call& call, const swy_attention_attrs& a, uint32_t seq)
      : data(static_cast<float*>(call.states[kKv])),
        table(SWY_STEP_ARRAY(call.step, uint32_t, block_table_at) + uint64_t{seq} * call.step->block_table_stride),
        page(call.step->page_size),
        kv_heads(a.kv_heads),
        head_dim(a.head_dim) {}

  float* base(uint64_t position) const { return data + table[position / page] * page * 2 * kv_heads * head_dim; }
  // Keys of the page that holds `position`: [head_dim, page].
  float* keys(uint64_t position, uint64_t head) const { return base(position) + head * head_dim * page; }
  // Values of the page that holds `position`: [page, head_dim].
  float* values(uint64_t position, uint64_t head) const { return base(position) + (kv_heads + head) * head_dim * page; }
  // Writes k and v [head_dim] of the token at `position`.
  void put(uint64_t position, uint64_t head, const float* k, const float* v) const {
    float* column = keys(position, head) + position % page;
    for (uint64_t i = 0; i < head_dim; ++i) column[i * page] = k[i];
    std::memcpy(values(position, head) + position % page * head_dim, v, head_dim * sizeof(float));
  }
};

// SWY_OK, or why the kernels that use these pages cannot: only fp32 states have this layout.
swy_status kv_supported(const swy_op& op, const swy_bucket& bucket, swy_error* error);

uint32_t kv_layout(const swy_tensor& state);
void kv_to_canonical(const swy_tensor& state, uint32_t page_size, const void* unit, void* canonical);
void kv_from_canonical(const swy_tensor& state, uint32_t page_size, const void* canonical, void* unit);

}  // namespace cpu
