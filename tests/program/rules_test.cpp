// SPDX-License-Identifier: Apache-2.0
// Programs that break one rule each. The files are well-formed and their checksums are right.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "core/program/verify.h"
#include "tests/program/sample.h"

namespace switchyard {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

struct Mutation {
  const char* name;
  std::function<void(ProgramSpec&)> change;
  const char* message;
  Code code = Code::invalid_data;
};

void PrintTo(const Mutation& m, std::ostream* out) { *out << m.name; }

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

ProgramSpec::Op& op_of(ProgramSpec& s, swy_op_id id) {
  for (size_t f = 0; f < s.functions.size(); ++f) {
    for (auto& op : s.functions[f].ops) {
      if (op.id == id) return op;
    }
  }
  throw std::out_of_range("no such op");
}

// Changes a field of an op's attribute struct.
template <class Attrs, class Field, class Number>
auto attr(swy_op_id id, Field Attrs::*field, Number value) {
  return [=](ProgramSpec& s) {
    auto& bytes = op_of(s, id).attrs;
    Attrs attrs{};
    const size_t size = std::min(sizeof attrs, bytes.size());  // a first revision may have fewer
    std::memcpy(&attrs, bytes.data(), size);
    attrs.*field = static_cast<Field>(value);
    std::memcpy(bytes.data(), &attrs, size);
  };
}

// The value that is operand `i` of an op of "main" or "pieces".
ProgramSpec::Value& value_of(ProgramSpec& s, swy_op_id id, std::vector<uint32_t> ProgramSpec::Op::*list, size_t i) {
  for (auto& f : s.functions) {
    for (auto& op : f.ops) {
      if (op.id == id) return f.values.at((op.*list).at(i));
    }
  }
  throw std::out_of_range("no such op");
}

auto out_width(swy_op_id id, size_t i, uint64_t width) {
  return [=](ProgramSpec& s) { value_of(s, id, &ProgramSpec::Op::outputs, i).width = width; };
}
auto in_width(swy_op_id id, size_t i, uint64_t width) {
  return [=](ProgramSpec& s) { value_of(s, id, &ProgramSpec::Op::inputs, i).width = width; };
}
auto out_dtype(swy_op_id id, size_t i, swy_dtype dtype) {
  return [=](ProgramSpec& s) { value_of(s, id, &ProgramSpec::Op::outputs, i).dtype = dtype; };
}
auto out_rows(swy_op_id id, size_t i, swy_rows rows) {
  return [=](ProgramSpec& s) { value_of(s, id, &ProgramSpec::Op::outputs, i).rows = rows; };
}
// Gives operand `i` of an op its own weight, of this shape.
auto weight(swy_op_id id, size_t i, swy_dtype dtype, const std::vector<uint64_t>& dims) {
  return [=](ProgramSpec& s) {
    s.tensors.push_back({"other", dtype, 0, dims, {}});
    op_of(s, id).weights.at(i) = static_cast<uint32_t>(s.tensors.size() - 1);
  };
}
// Takes ids of 8 experts to an op of 4: by a router of its own before it.
auto more_experts(swy_op_id id) {
  return [=](ProgramSpec& s) {
    auto& f = s.functions[1];
    const auto value = [&](swy_dtype dtype, uint64_t width) {
      f.values.push_back({fmt::format("new{}", f.values.size()), dtype, SWY_ROWS_STEP, width});
      return static_cast<uint32_t>(f.values.size() - 1);
    };
    const uint32_t logits = value(SWY_F32, 8), ids = value(SWY_I32, 2), weights = value(SWY_F32, 2);
    f.inputs.push_back(logits);
    for (auto& op : f.ops) {
      if (op.id == id) op.inputs[1] = ids;
    }
    swy_moe_attrs attrs{};
    attrs.experts = 8, attrs.top_k = 2, attrs.width = 12;
    f.ops.insert(f.ops.begin(),
                 {SWY_OP_ROUTER_TOPK, 1, attr_bytes(attrs, SWY_OP_ROUTER_TOPK, 1), {logits}, {}, {}, {ids, weights}});
  };
}
// An op at the end of "main", which is refused whatever its operands are.
auto in_main(swy_op_id id) {
  return [=](ProgramSpec& s) {
    const auto attrs = id == SWY_OP_TOP_CANDIDATES ? attr_bytes(swy_top_candidates_attrs{}) : std::vector<std::byte>{};
    s.functions[0].ops.push_back({id, 1, attrs, {}, {}, {}, {}});
  };
}
auto state(swy_op_id id, size_t i, swy_state_kind kind, swy_dtype dtype, const std::vector<uint64_t>& dims) {
  return [=](ProgramSpec& s) {
    s.states.push_back({"other", kind, dtype, dims});
    op_of(s, id).states.at(i) = static_cast<uint32_t>(s.states.size() - 1);
  };
}

const std::vector<Mutation> kStructure = {
    {"unknown feature", [](ProgramSpec& s) { s.required_features = {"time_travel"}; }, "needs feature 'time_travel'",
     Code::unsupported},
    {"unreadable feature", [](ProgramSpec& s) { s.required_features = {"\x1b[2J"}; }, "no readable name"},
    {"unknown op", [](ProgramSpec& s) { op_of(s, SWY_OP_ADD).id = 999; },
     "needs op #999, which this runtime does not know", Code::unsupported},
    {"newer revision", [](ProgramSpec& s) { op_of(s, SWY_OP_ATTENTION).revision = 3; },
     "this program needs op 'attention' revision 3; this runtime knows revision 2; update switchyard",
     Code::unsupported},
    {"revision 0", [](ProgramSpec& s) { op_of(s, SWY_OP_MOE).revision = 0; }, "op 'moe' has revision 0"},
    {"tensor without a name", [](ProgramSpec& s) { s.tensors[3].name.clear(); }, "the name of tensor 3"},
    {"tensor with control codes", [](ProgramSpec& s) { s.tensors[0].name = "\x1b]0;x\x07"; }, "the name of tensor 0"},
    {"long name", [](ProgramSpec& s) { s.tensors[0].name.assign(257, 'a'); }, "1..256 characters"},
    {"two tensors of a name", [](ProgramSpec& s) { s.tensors[1].name = s.tensors[0].name; },
     "two tensors are named 'embed'"},
    {"two states of a name", [](ProgramSpec& s) { s.states[1].name = "kv"; }, "two states are named 'kv'"},
    {"two functions of a name", [](ProgramSpec& s) { s.functions[1].name = "main"; }, "two functions are named 'main'"},
    {"value without a name", [](ProgramSpec& s) { s.functions[0].values[2].name.clear(); }, "the name of value 2"},
    {"metadata without a key", [](ProgramSpec& s) { s.metadata[0].first.clear(); }, "the name of metadata entry 0"},
    {"shortlist that does not rise",
     [](ProgramSpec& s) {
       s.metadata[0] = {"mtp.shortlist", "0-38 38-39"};
     },
     "mtp.shortlist: the shortlist '0-38 38-39' has no rising token ids below 50 at byte 10"},
    {"shortlist of ids that are none",
     [](ProgramSpec& s) {
       s.metadata[0] = {"mtp.shortlist", "0-38 50"};
     },
     "has no rising token ids below 50 at byte 7"},
    {"shortlist of another layer",
     [](ProgramSpec& s) {
       s.metadata[0] = {"mtp.shortlist", "0-38"};
       s.functions[1].name = "mtp";
     },
     "the shortlist has 39 tokens, and the layer that guesses from it makes logits of"},
    {"odd group", [](ProgramSpec& s) { s.tensors[0].group = 33; }, "groups of 33; groups are 16, 32, 64, 128 or 0"},
    {"group on bf16", [](ProgramSpec& s) { s.tensors[1].group = 32; }, "only quantized tensors have groups"},
    {"packed segment without a layout", [](ProgramSpec& s) { s.tensors[2].packed[0].layout.clear(); }, "has no layout"},
    {"empty packed segment", [](ProgramSpec& s) { s.tensors[2].packed[0].bytes = 0; }, "segment is empty"},
    {"state kind", [](ProgramSpec& s) { s.states[0].kind = 7; }, "state 'kv' is of unknown kind 7"},
    {"state dtype", [](ProgramSpec& s) { s.states[0].dtype = SWY_I4; }, "state 'kv' cannot be i4"},
    {"state rank 0", [](ProgramSpec& s) { s.states[0].dims.clear(); }, "has 0 dimensions"},
    {"state rank 5",
     [](ProgramSpec& s) {
       s.states[0].dims = {1, 1, 1, 1, 1};
     },
     "has 5 dimensions"},
    {"value dtype", [](ProgramSpec& s) { s.functions[0].values[0].dtype = SWY_I8; }, "value 'v0' cannot be i8"},
    {"value dtype 77", [](ProgramSpec& s) { s.functions[0].values[0].dtype = 77; }, "cannot be type 77"},
    {"value rows", [](ProgramSpec& s) { s.functions[0].values[0].rows = 3; }, "unknown rows 3"},
    {"value width 0", [](ProgramSpec& s) { s.functions[0].values[0].width = 0; }, "has width 0"},
    {"value width huge", [](ProgramSpec& s) { s.functions[0].values[0].width = UINT64_MAX; }, "widths are 1 to"},
    {"input index", [](ProgramSpec& s) { op_of(s, SWY_OP_ADD).inputs[1] = 4000000000u; },
     "input 4000000000 does not exist"},
    {"output index", [](ProgramSpec& s) { op_of(s, SWY_OP_ADD).outputs[0] = 4000000000u; },
     "output 4000000000 does not"},
    {"weight index", [](ProgramSpec& s) { op_of(s, SWY_OP_LINEAR).weights[0] = 500; }, "weight 500 does not exist"},
    {"state index", [](ProgramSpec& s) { op_of(s, SWY_OP_ATTENTION).states[0] = 500; }, "state 500 does not exist"},
    {"function input index", [](ProgramSpec& s) { s.functions[1].inputs[0] = 500; }, "value 500 does not exist"},
    {"function output index", [](ProgramSpec& s) { s.functions[1].outputs[0] = 500; }, "value 500 does not exist"},
    {"use before definition", [](ProgramSpec& s) { std::swap(s.functions[0].ops[0], s.functions[0].ops[1]); },
     "op 0 (rms_norm): value 'v0' is used before it is defined"},
    {"defined twice", [](ProgramSpec& s) { s.functions[0].ops.push_back(s.functions[0].ops[0]); }, "is defined twice"},
    {"input defined twice", [](ProgramSpec& s) { s.functions[1].inputs.push_back(0); }, "is defined twice"},
    {"never defined",
     [](ProgramSpec& s) {
       s.functions[0].values.push_back({"lost", SWY_F32, SWY_ROWS_STEP, 1});
     },
     "value 'lost' is never defined"},
    {"output never defined",
     [](ProgramSpec& s) { s.functions[0].ops.pop_back(), s.functions[0].outputs.push_back(25); },
     "is used before it is defined"},
    {"two writers",
     [](ProgramSpec& s) {
       auto& f = s.functions[0];
       f.values.push_back({"again", SWY_F32, SWY_ROWS_STEP, 32});
       f.ops.push_back(op_of(s, SWY_OP_ATTENTION));
       f.ops.back().outputs[0] = static_cast<uint32_t>(f.values.size() - 1);
     },
     "state 'kv' is written by two ops"},
    {"no outputs", [](ProgramSpec& s) { s.functions[0].outputs.clear(); }, "has no output; it yields logits"},
    {"no logits", [](ProgramSpec& s) { s.functions[0].outputs = {0}; }, "is not logits"},
    {"main with inputs", [](ProgramSpec& s) { std::swap(s.functions[0], s.functions[1]); }, "it gets none"},
};

const std::vector<Mutation> kOperands = {
    {"too few inputs", [](ProgramSpec& s) { op_of(s, SWY_OP_ADD).inputs.pop_back(); }, "it has 1 inputs; 2 are needed"},
    {"too many inputs",
     [](ProgramSpec& s) {
       op_of(s, SWY_OP_EMBEDDING).inputs = {0, 0};
     },
     "it has 2 inputs; 0 are needed"},
    {"nine weights", [](ProgramSpec& s) { op_of(s, SWY_OP_LINEAR).weights.assign(9, 0); },
     "9 weights; 1 to 8 are needed"},
    {"no weight", [](ProgramSpec& s) { op_of(s, SWY_OP_EMBEDDING).weights.clear(); }, "0 weights; 1 are needed"},
    {"no state", [](ProgramSpec& s) { op_of(s, SWY_OP_GATED_DELTA).states.pop_back(); }, "1 states; 2 are needed"},
    {"no output", [](ProgramSpec& s) { op_of(s, SWY_OP_LM_HEAD).outputs.clear(); }, "0 outputs; 1 are needed"},
    {"one output for three", [](ProgramSpec& s) { op_of(s, SWY_OP_LINEAR).outputs.pop_back(); },
     "need as many outputs"},
    {"no attributes", [](ProgramSpec& s) { op_of(s, SWY_OP_MOE).attrs.clear(); }, "its attributes have 0 bytes"},
    {"attributes too long", [](ProgramSpec& s) { op_of(s, SWY_OP_MOE).attrs.resize(40); },
     "its attributes have 40 bytes"},
    {"attributes of another size", attr(SWY_OP_MOE, &swy_moe_attrs::struct_size, 40), "declare 40"},
    {"attributes where none belong", [](ProgramSpec& s) { op_of(s, SWY_OP_ADD).attrs.resize(8); }, "have 8 bytes"},
    {"embedding width", weight(SWY_OP_EMBEDDING, 0, SWY_F32, {50, 41}), "is [50, 41]; [50, 40] is needed"},
    {"embedding rank", weight(SWY_OP_EMBEDDING, 0, SWY_F32, {40}), "is [40]"},
    {"embedding rows", out_rows(SWY_OP_EMBEDDING, 0, SWY_ROWS_LOGITS), "must have the rows of the step"},
    {"embedding dtype", out_dtype(SWY_OP_EMBEDDING, 0, SWY_I32), "cannot be i32"},
    {"rms_norm eps", attr(SWY_OP_RMS_NORM, &swy_rms_norm_attrs::eps, kNan), "eps is nan"},
    {"rms_norm negative eps", attr(SWY_OP_RMS_NORM, &swy_rms_norm_attrs::eps, -1.0f), "eps is -1"},
    {"rms_norm bias", attr(SWY_OP_RMS_NORM, &swy_rms_norm_attrs::weight_bias, kNan), "weight_bias is nan"},
    {"rms_norm weight", weight(SWY_OP_RMS_NORM, 0, SWY_F32, {39}), "is [39]; [40] is needed"},
    {"rms_norm quantized", weight(SWY_OP_RMS_NORM, 0, SWY_I8, {40}), "cannot be i8"},
    {"rms_norm output", out_width(SWY_OP_RMS_NORM, 0, 41), "has width 41; 40 is needed"},
    {"linear shape", weight(SWY_OP_LINEAR, 1, SWY_F32, {16, 41}),
     "weight 'w[1]' ('other') is [16, 41]; [16, 40] is needed"},
    {"attention heads 0", attr(SWY_OP_ATTENTION, &swy_attention_attrs::heads, 0), "heads is 0"},
    {"attention heads huge", attr(SWY_OP_ATTENTION, &swy_attention_attrs::heads, UINT32_MAX), "heads is 4294967295"},
    {"attention kv heads 0", attr(SWY_OP_ATTENTION, &swy_attention_attrs::kv_heads, 0), "kv_heads is 0"},
    {"attention ratio", attr(SWY_OP_ATTENTION, &swy_attention_attrs::heads, 3), "input 'q'"},
    {"attention kv heads", attr(SWY_OP_ATTENTION, &swy_attention_attrs::kv_heads, 3),
     "kv_heads is 3; it must divide 2 (heads)"},
    {"attention odd rotary", attr(SWY_OP_ATTENTION, &swy_attention_attrs::rotary_dim, 3),
     "rotary_dim is 3; it must be a multiple of 2"},
    {"attention wide rotary", attr(SWY_OP_ATTENTION, &swy_attention_attrs::rotary_dim, 18),
     "rotary_dim is 18; it must be 0 to 16 (head_dim)"},
    {"attention theta", attr(SWY_OP_ATTENTION, &swy_attention_attrs::rope_theta, 0), "rope_theta is 0"},
    {"attention scale", attr(SWY_OP_ATTENTION, &swy_attention_attrs::scale, kNan), "scale is nan"},
    {"attention eps", attr(SWY_OP_ATTENTION, &swy_attention_attrs::norm_eps, 1), "norm_eps is 1"},
    {"attention gated", attr(SWY_OP_ATTENTION, &swy_attention_attrs::gated, 2), "gated is 2"},
    {"attention ungated", attr(SWY_OP_ATTENTION, &swy_attention_attrs::gated, 0), "has width 64; 32 is needed"},
    {"attention k", [](ProgramSpec& s) { op_of(s, SWY_OP_ATTENTION).inputs[1] = 0; }, "has width 40; 16 is needed"},
    {"attention norm", weight(SWY_OP_ATTENTION, 1, SWY_F32, {17}), "is [17]; [16] is needed"},
    {"attention state kind", state(SWY_OP_ATTENTION, 0, SWY_STATE_SLOTTED, SWY_F32, {2, 1, 16}), "must be paged"},
    {"attention state shape", state(SWY_OP_ATTENTION, 0, SWY_STATE_PAGED, SWY_F32, {1, 2, 16}), "[2, 1, 16] is needed"},
    {"attention output", out_width(SWY_OP_ATTENTION, 0, 64), "has width 64; 32 is needed"},
    {"delta heads", attr(SWY_OP_GATED_DELTA, &swy_gated_delta_attrs::key_heads, 0), "key_heads is 0"},
    {"delta ratio", attr(SWY_OP_GATED_DELTA, &swy_gated_delta_attrs::key_heads, 3),
     "it must be a multiple of 3 (key_heads)"},
    {"delta kernel", attr(SWY_OP_GATED_DELTA, &swy_gated_delta_attrs::conv_kernel, 1), "conv_kernel is 1"},
    {"delta dims", attr(SWY_OP_GATED_DELTA, &swy_gated_delta_attrs::key_dim, UINT32_MAX), "key_dim is 4294967295"},
    {"delta l2", attr(SWY_OP_GATED_DELTA, &swy_gated_delta_attrs::l2_eps, kNan), "l2_eps is nan"},
    {"delta z", in_width(SWY_OP_GATED_DELTA, 1, 25), "is needed"},
    {"delta conv", weight(SWY_OP_GATED_DELTA, 0, SWY_F32, {40, 3}), "is [40, 3]; [40, 4] is needed"},
    {"delta conv state", state(SWY_OP_GATED_DELTA, 0, SWY_STATE_SLOTTED, SWY_F32, {40, 4}), "[40, 3] is needed"},
    {"delta state dtype", state(SWY_OP_GATED_DELTA, 1, SWY_STATE_SLOTTED, SWY_BF16, {2, 8, 12}), "cannot be bf16"},
    {"delta state shape", state(SWY_OP_GATED_DELTA, 1, SWY_STATE_SLOTTED, SWY_F32, {2, 12, 8}), "[2, 8, 12] is needed"},
    {"moe top_k 0", attr(SWY_OP_MOE, &swy_moe_attrs::top_k, 0), "top_k is 0; it must be 1 to 4 (experts)"},
    {"moe top_k 5", attr(SWY_OP_MOE, &swy_moe_attrs::top_k, 5), "top_k is 5"},
    {"moe experts", attr(SWY_OP_MOE, &swy_moe_attrs::experts, 8), "is [4, 40]; [8, 40] is needed"},
    {"moe no shared expert", attr(SWY_OP_MOE, &swy_moe_attrs::shared_width, 0), "shared_width 0 needs 3 weights"},
    {"moe shared width", attr(SWY_OP_MOE, &swy_moe_attrs::shared_width, 21), "[21, 40] is needed"},
    {"moe gate_up", weight(SWY_OP_MOE, 1, SWY_F32, {4, 12, 40}),
     "weight 'gate_up' ('other') is [4, 12, 40]; [4, 24, 40] is needed"},
    {"moe down", weight(SWY_OP_MOE, 2, SWY_F32, {4, 12, 40}), "[4, 40, 12] is needed"},
    {"moe two inputs", [](ProgramSpec& s) { op_of(s, SWY_OP_MOE).inputs.push_back(0); },
     "it has 2 inputs; 1 or 3 are needed (x, expert_ids, expert_weights)"},
    {"moe injected ids",
     [](ProgramSpec& s) {
       op_of(s, SWY_OP_MOE).inputs = {0, 0, 0};
     },
     "input 'expert_ids' ('v0') cannot be f32"},
    {"add widths", [](ProgramSpec& s) { op_of(s, SWY_OP_ADD).inputs[1] = 2; }, "has width 64; 40 is needed"},
    {"lm_head rows", out_rows(SWY_OP_LM_HEAD, 0, SWY_ROWS_STEP), "must have the rows of the logits"},
    {"lm_head dtype", out_dtype(SWY_OP_LM_HEAD, 0, SWY_BF16), "cannot be bf16"},
    {"lm_head shape", weight(SWY_OP_LM_HEAD, 0, SWY_F32, {51, 40}), "[50, 40] is needed"},
    {"add_rms_norm eps", attr(SWY_OP_ADD_RMS_NORM, &swy_rms_norm_attrs::eps, kNan), "eps is nan"},
    {"add_rms_norm output", out_width(SWY_OP_ADD_RMS_NORM, 1, 2), "has width 2; 40 is needed"},
    {"rms_norm_linear norm", weight(SWY_OP_RMS_NORM_LINEAR, 0, SWY_F32, {41}), "[40] is needed"},
    {"rms_norm_linear shape", weight(SWY_OP_RMS_NORM_LINEAR, 4, SWY_F32, {3, 40}), "[2, 40] is needed"},
    {"linear_add residual", [](ProgramSpec& s) { op_of(s, SWY_OP_LINEAR_ADD).inputs[1] = 2; },
     "input 'residual' ('v2') has width 64; 40 is needed"},
    {"moe_add residual", [](ProgramSpec& s) { op_of(s, SWY_OP_MOE_ADD).inputs[1] = 2; }, "40 is needed"},
    {"cast width", out_width(SWY_OP_CAST, 0, 41), "has width 41"},
    {"gather_rows rows", out_rows(SWY_OP_GATHER_ROWS, 0, SWY_ROWS_STEP), "must have the rows of the logits"},
    {"head_split", attr(SWY_OP_HEAD_SPLIT, &swy_heads_attrs::heads, 3), "96 is needed"},
    {"head_rms_norm", attr(SWY_OP_HEAD_RMS_NORM, &swy_heads_attrs::head_dim, 8), "16 is needed"},
    {"head_rms_norm eps", attr(SWY_OP_HEAD_RMS_NORM, &swy_heads_attrs::eps, 2), "eps is 2"},
    {"rope", attr(SWY_OP_ROPE, &swy_heads_attrs::rotary_dim, 18), "rotary_dim is 18; it must be 0 to 16 (head_dim)"},
    {"rope theta", attr(SWY_OP_ROPE, &swy_heads_attrs::rope_theta, -1), "rope_theta is -1"},
    {"kv_append", state(SWY_OP_KV_APPEND, 0, SWY_STATE_PAGED, SWY_F32, {2, 2, 16}), "[2, 1, 16] is needed"},
    {"attend", attr(SWY_OP_ATTEND, &swy_attention_attrs::heads, 4), "64 is needed"},
    {"sigmoid_mul", [](ProgramSpec& s) { op_of(s, SWY_OP_SIGMOID_MUL).inputs[1] = 1; }, "32 is needed"},
    {"causal_conv", weight(SWY_OP_CAUSAL_CONV, 0, SWY_F32, {40, 5}), "[40, 4] is needed"},
    {"delta_gates", out_dtype(SWY_OP_DELTA_GATES, 1, SWY_BF16), "cannot be bf16"},
    {"delta_rule", state(SWY_OP_DELTA_RULE, 0, SWY_STATE_SLOTTED, SWY_F32, {1, 8, 12}), "[2, 8, 12] is needed"},
    {"gated_rms_norm", weight(SWY_OP_GATED_RMS_NORM, 0, SWY_F32, {13}), "[12] is needed"},
    {"router_topk", out_dtype(SWY_OP_ROUTER_TOPK, 0, SWY_F32), "cannot be f32"},
    {"experts", weight(SWY_OP_EXPERTS, 1, SWY_F32, {4, 40, 13}), "[4, 40, 12] is needed"},
    {"experts weights", [](ProgramSpec& s) { op_of(s, SWY_OP_EXPERTS).inputs[2] = 0; }, "2 is needed"},
    {"more experts in the router", more_experts(SWY_OP_EXPERTS), "holds ids of 8 experts; there are 4 here"},
    {"more experts in the router of a moe", more_experts(SWY_OP_MOE), "holds ids of 8 experts; there are 4 here"},
    {"ids of the caller",
     [](ProgramSpec& s) {
       auto& f = s.functions[1];
       f.values.push_back({"any", SWY_I32, SWY_ROWS_STEP, 2});
       f.inputs.push_back(static_cast<uint32_t>(f.values.size() - 1));
       op_of(s, SWY_OP_EXPERTS).inputs[1] = f.inputs.back();
     },
     "input 'expert_ids' ('any') must be the expert ids of a router_topk"},
    {"sample", in_main(SWY_OP_SAMPLE), "op 'sample' cannot be part of a program"},
    {"top_candidates", in_main(SWY_OP_TOP_CANDIDATES), "op 'top_candidates' cannot be part of a program"},
    {"lm_head_sample", in_main(SWY_OP_LM_HEAD_SAMPLE), "op 'lm_head_sample' cannot be part of a program"},
    {"rows of samples", out_rows(SWY_OP_ADD, 0, SWY_ROWS_SAMPLE), "has unknown rows 2"},
    {"silu_mul", out_width(SWY_OP_SILU_MUL, 0, 39), "has width 39"},
    {"sigmoid_scale_add",
     [](ProgramSpec& s) {
       std::swap(op_of(s, SWY_OP_SIGMOID_SCALE_ADD).inputs[0], op_of(s, SWY_OP_SIGMOID_SCALE_ADD).inputs[2]);
     },
     "is needed"},
};

// Of revisions_spec().
const std::vector<Mutation> kRevisions = {
    {"attributes of revision 1", [](ProgramSpec& s) { op_of(s, SWY_OP_ATTENTION).attrs.resize(48); },
     "its attributes have 48 bytes and declare 64; revision 2 has 64"},
    {"revision 1 with attributes of 2", [](ProgramSpec& s) { op_of(s, SWY_OP_MOE).revision = 1; },
     "its attributes have 80 bytes and declare 80; revision 1 has 32"},
    {"linear without a bias", [](ProgramSpec& s) { op_of(s, SWY_OP_LINEAR).weights.pop_back(); },
     "it has 5 weights; 2 to 16 are needed (w, bias)"},
    {"linear bias", weight(SWY_OP_LINEAR, 4, SWY_F32, {33}), "weight 'bias[1]' ('other') is [33]; [32] is needed"},
    {"linear bias quantized", weight(SWY_OP_LINEAR, 4, SWY_I8, {32}), "weight 'bias[1]' ('other') cannot be i8"},
    {"linear_add bias", weight(SWY_OP_LINEAR_ADD, 1, SWY_F32, {65}), "[64] is needed"},
    {"rms_norm_linear bias", weight(SWY_OP_RMS_NORM_LINEAR, 2, SWY_F32, {65}), "[64] is needed"},
    {"attention without sinks", attr(SWY_OP_ATTENTION, &swy_attention_attrs::sinks, 0),
     "qk_norm 1, rotary_dim 8, sinks 0 needs 3 weights (q_norm, k_norm, inv_freq); there are 4"},
    {"attention sinks 2", attr(SWY_OP_ATTENTION, &swy_attention_attrs::sinks, 2), "sinks is 2"},
    {"attention qk_norm 2", attr(SWY_OP_ATTENTION, &swy_attention_attrs::qk_norm, 2), "qk_norm is 2"},
    {"attention rope_scale", attr(SWY_OP_ATTENTION, &swy_attention_attrs::rope_scale, kNan), "rope_scale is nan"},
    {"attention table", attr(SWY_OP_ATTENTION, &swy_attention_attrs::rotary_dim, 6),
     "weight 'inv_freq' ('inv_freq') is [4]; [3] is needed"},
    {"attention table bf16", weight(SWY_OP_ATTENTION, 2, SWY_BF16, {4}), "cannot be bf16"},
    {"attention sinks shape", weight(SWY_OP_ATTENTION, 3, SWY_F32, {2}), "[4] is needed"},
    {"rope without rotation", attr(SWY_OP_ROPE, &swy_heads_attrs::rotary_dim, 0),
     "rotary_dim is 0; it must be 2 to 16 (head_dim)"},
    {"rope scale", attr(SWY_OP_ROPE, &swy_heads_attrs::rope_scale, 0), "rope_scale is 0"},
    {"attend sinks", weight(SWY_OP_ATTEND, 0, SWY_F32, {5}), "[4] is needed"},
    {"moe router 3", attr(SWY_OP_MOE, &swy_moe_attrs::router, 3), "router is 3; it must be 0 to 2"},
    {"moe normalize", attr(SWY_OP_MOE, &swy_moe_attrs::normalize, 2), "normalize is 2"},
    {"moe groups 0", attr(SWY_OP_MOE, &swy_moe_attrs::expert_groups, 0), "expert_groups is 0"},
    {"moe groups 3", attr(SWY_OP_MOE, &swy_moe_attrs::expert_groups, 3),
     "expert_groups is 3; it must divide 8 (experts)"},
    {"moe top_groups", attr(SWY_OP_MOE, &swy_moe_attrs::top_groups, 5),
     "top_groups is 5; it must be 1 to 4 (expert_groups)"},
    {"moe top_k beyond its groups", attr(SWY_OP_MOE, &swy_moe_attrs::top_k, 5), "top_k is 5; it must be 1 to 4"},
    {"moe scale", attr(SWY_OP_MOE, &swy_moe_attrs::routed_scale, 0), "routed_scale is 0"},
    {"moe activation", attr(SWY_OP_MOE, &swy_moe_attrs::activation, 2), "activation is 2"},
    {"moe alpha", attr(SWY_OP_MOE, &swy_moe_attrs::act_alpha, kNan), "act_alpha is nan"},
    {"moe limit", attr(SWY_OP_MOE, &swy_moe_attrs::act_limit, kNan), "act_limit is nan"},
    {"moe biases", attr(SWY_OP_MOE, &swy_moe_attrs::expert_bias, 0), "expert_bias 0 needs 9 weights"},
    {"moe router bias", weight(SWY_OP_MOE, 7, SWY_F32, {7}), "weight 'router_bias' ('other') is [7]; [8] is needed"},
    {"moe correction", weight(SWY_OP_MOE, 8, SWY_F32, {9}), "[8] is needed"},
    {"moe gate_up bias", weight(SWY_OP_MOE, 9, SWY_F32, {8, 32}), "[8, 64] is needed"},
    {"moe down bias", weight(SWY_OP_MOE, 10, SWY_F32, {8, 32}), "[8, 64] is needed"},
    {"moe_add router", attr(SWY_OP_MOE_ADD, &swy_moe_attrs::router, 7), "router is 7"},
    {"router_topk correction", weight(SWY_OP_ROUTER_TOPK, 0, SWY_F32, {9}), "[8] is needed"},
    {"experts bias", weight(SWY_OP_EXPERTS, 2, SWY_F32, {8, 63}), "[8, 64] is needed"},
    {"silu_mul activation", attr(SWY_OP_SILU_MUL, &swy_activation_attrs::activation, 2), "activation is 2"},
    {"mlp width", attr(SWY_OP_MLP, &swy_mlp_attrs::width, 47),
     "weight 'gate' ('gate') is [48, 64]; [47, 64] is needed"},
    {"mlp down", weight(SWY_OP_MLP, 2, SWY_F32, {64, 47}), "[64, 48] is needed"},
    {"mlp limit", attr(SWY_OP_MLP, &swy_mlp_attrs::act_limit, kNan), "act_limit is nan"},
    {"mlp_add residual", [](ProgramSpec& s) { op_of(s, SWY_OP_MLP_ADD).inputs[1] = 3; }, "64 is needed"},
};

void expect_named(ProgramSpec spec, const Mutation& mutation) {
  ASSERT_TRUE(parse(unchecked_file_of(spec)).ok());
  mutation.change(spec);
  const auto program = parse(unchecked_file_of(spec));
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(mutation.code, program.status().code());
  EXPECT_NE(std::string::npos, program.status().message().find(mutation.message)) << program.status().message();
  for (const char c : program.status().message()) EXPECT_TRUE(c >= 0x20 && c < 0x7f);
}

class Rules : public ::testing::TestWithParam<Mutation> {};
class RevisionRules : public ::testing::TestWithParam<Mutation> {};

TEST_P(Rules, ABrokenRuleIsNamed) { expect_named(sample_spec(), GetParam()); }
TEST_P(RevisionRules, ABrokenRuleIsNamed) { expect_named(revisions_spec(), GetParam()); }

// No file has it: neither writer gives such a tensor bytes.
TEST(RulesOfTensors, GroupsOfMxfp4AreOfOneSize) {
  const auto file = file_of(revisions_spec());
  Program program = *parse(file);
  EXPECT_TRUE(verify_program(program, file.size()).ok());
  program.tensors[0].group = 64;
  EXPECT_EQ(verify_program(program, file.size()).message(),
            "tensor 'embed' of mxfp4 has groups of 64; they are always 32");
}

INSTANTIATE_TEST_SUITE_P(Structure, Rules, ::testing::ValuesIn(kStructure));
INSTANTIATE_TEST_SUITE_P(Operands, Rules, ::testing::ValuesIn(kOperands));
INSTANTIATE_TEST_SUITE_P(Operands, RevisionRules, ::testing::ValuesIn(kRevisions));

}  // namespace
}  // namespace switchyard
