// SPDX-License-Identifier: Apache-2.0
// Every operation that this runtime knows: its id, its name for people, and the latest revision known. The one table
// from which loaders, planners and listings translate. Names are those of switchyard/ops.h in lower case.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "switchyard/ops.h"

namespace switchyard {

struct OpInfo {
  swy_op_id id;
  std::string_view name;
  uint32_t revision;    // the latest one
  uint32_t attrs_size;  // of its attribute struct; 0: it has none
};

inline constexpr std::array kOps = {
    OpInfo{SWY_OP_EMBEDDING, "embedding", 1, 0},
    OpInfo{SWY_OP_RMS_NORM, "rms_norm", 1, sizeof(swy_rms_norm_attrs)},
    OpInfo{SWY_OP_LINEAR, "linear", 1, 0},
    OpInfo{SWY_OP_ATTENTION, "attention", 1, sizeof(swy_attention_attrs)},
    OpInfo{SWY_OP_GATED_DELTA, "gated_delta", 1, sizeof(swy_gated_delta_attrs)},
    OpInfo{SWY_OP_MOE, "moe", 1, sizeof(swy_moe_attrs)},
    OpInfo{SWY_OP_ADD, "add", 1, 0},
    OpInfo{SWY_OP_LM_HEAD, "lm_head", 1, 0},
    OpInfo{SWY_OP_SAMPLE, "sample", 1, 0},
    OpInfo{SWY_OP_TOP_CANDIDATES, "top_candidates", 1, sizeof(swy_top_candidates_attrs)},
    OpInfo{SWY_OP_ADD_RMS_NORM, "add_rms_norm", 1, sizeof(swy_rms_norm_attrs)},
    OpInfo{SWY_OP_RMS_NORM_LINEAR, "rms_norm_linear", 1, sizeof(swy_rms_norm_attrs)},
    OpInfo{SWY_OP_LINEAR_ADD, "linear_add", 1, 0},
    OpInfo{SWY_OP_MOE_ADD, "moe_add", 1, sizeof(swy_moe_attrs)},
    OpInfo{SWY_OP_LM_HEAD_SAMPLE, "lm_head_sample", 1, 0},
    OpInfo{SWY_OP_CAST, "cast", 1, 0},
    OpInfo{SWY_OP_GATHER_ROWS, "gather_rows", 1, 0},
    OpInfo{SWY_OP_HEAD_SPLIT, "head_split", 1, sizeof(swy_heads_attrs)},
    OpInfo{SWY_OP_HEAD_RMS_NORM, "head_rms_norm", 1, sizeof(swy_heads_attrs)},
    OpInfo{SWY_OP_ROPE, "rope", 1, sizeof(swy_heads_attrs)},
    OpInfo{SWY_OP_KV_APPEND, "kv_append", 1, sizeof(swy_attention_attrs)},
    OpInfo{SWY_OP_ATTEND, "attend", 1, sizeof(swy_attention_attrs)},
    OpInfo{SWY_OP_SIGMOID_MUL, "sigmoid_mul", 1, 0},
    OpInfo{SWY_OP_CAUSAL_CONV, "causal_conv", 1, sizeof(swy_gated_delta_attrs)},
    OpInfo{SWY_OP_DELTA_GATES, "delta_gates", 1, sizeof(swy_gated_delta_attrs)},
    OpInfo{SWY_OP_DELTA_RULE, "delta_rule", 1, sizeof(swy_gated_delta_attrs)},
    OpInfo{SWY_OP_GATED_RMS_NORM, "gated_rms_norm", 1, sizeof(swy_heads_attrs)},
    OpInfo{SWY_OP_ROUTER_TOPK, "router_topk", 1, sizeof(swy_moe_attrs)},
    OpInfo{SWY_OP_EXPERTS, "experts", 1, sizeof(swy_moe_attrs)},
    OpInfo{SWY_OP_SILU_MUL, "silu_mul", 1, 0},
    OpInfo{SWY_OP_SIGMOID_SCALE_ADD, "sigmoid_scale_add", 1, 0},
};

// The entry of an id or a name; NULL when this runtime does not know it.
constexpr const OpInfo* find_op(swy_op_id id) {
  for (const OpInfo& op : kOps) {
    if (op.id == id) return &op;
  }
  return nullptr;
}
constexpr const OpInfo* find_op(std::string_view name) {
  for (const OpInfo& op : kOps) {
    if (op.name == name) return &op;
  }
  return nullptr;
}

// "attention"; "#99" for an id that is not known.
inline std::string op_name(swy_op_id id) {
  const OpInfo* op = find_op(id);
  return op != nullptr ? std::string(op->name) : fmt::format("#{}", id);
}

// "f32", "bf16", "i32", "i8", "i4", "i4a", the reserved ones, "encoded"; "type 99" for a number that is not known.
inline std::string dtype_name(swy_dtype dtype) {
  constexpr std::string_view names[] = {"f32", "bf16",    "i32",  "i8",      "i4",    "i4a",
                                        "f16", "f8_e4m3", "e8m0", "f8_e5m2", "mxfp4", "nvfp4"};
  if (dtype == SWY_ENCODED) return "encoded";
  return dtype >= SWY_F32 && dtype <= SWY_NVFP4 ? std::string(names[dtype - SWY_F32]) : fmt::format("type {}", dtype);
}

}  // namespace switchyard
