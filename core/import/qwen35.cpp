// SPDX-License-Identifier: Apache-2.0
#include "core/import/qwen35.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace switchyard {
namespace {

std::string shape_text(const std::vector<uint64_t>& dims) {
  std::string text;
  for (const uint64_t d : dims) text += fmt::format("{}{}", text.empty() ? "" : ", ", d);
  return "[" + text + "]";
}

// Builds the program layer by layer. The first error ends it at the next layer or expert. Without a checkpoint it
// names every weight and its shape, and no source.
class Builder {
 public:
  Builder(const ModelConfig& config, const Checkpoint* checkpoint, WeightEncoding encoding)
      : c_(config), checkpoint_(checkpoint), encoding_(encoding) {
    plan_.spec.functions.emplace_back().name = "main";
    const bool nested = find("model.language_model.embed_tokens.weight") != nullptr;
    prefix_ = nested ? "model.language_model." : "model.";
  }

  Result<ImportPlan> build() {
    const uint32_t table = quantized(prefix_ + "embed_tokens.weight", {c_.vocab, c_.hidden});
    uint32_t x = op("embedding", SWY_OP_EMBEDDING, {}, {}, {table}, {}, c_.hidden);
    for (uint32_t l = 0; l < c_.layers && status_.ok(); ++l) x = layer(l, x);
    x = norm("final_norm", x, prefix_ + "norm.weight");
    const uint32_t head = c_.tied ? table : quantized("lm_head.weight", {c_.vocab, c_.hidden});
    const uint32_t logits = op("logits", SWY_OP_LM_HEAD, {}, {x}, {head}, {}, c_.vocab);
    function().values[logits].rows = SWY_ROWS_LOGITS;
    function().outputs = {logits};
    SWY_TRY(status_);
    if (checkpoint_ != nullptr) note_skipped();
    return std::move(plan_);
  }

 private:
  ProgramSpec::Function& function() { return plan_.spec.functions[0]; }

  uint32_t value(const std::string& name, uint64_t width) {
    function().values.push_back({name, SWY_F32, SWY_ROWS_STEP, width});
    return static_cast<uint32_t>(function().values.size() - 1);
  }

  // An operation with one output, named like it; returns the output.
  uint32_t op(const std::string& name, swy_op_id id, std::vector<std::byte> attrs, std::vector<uint32_t> inputs,
              std::vector<uint32_t> weights, std::vector<uint32_t> states, uint64_t width) {
    const uint32_t out = value(name, width);
    function().ops.push_back(
        {id, 1, std::move(attrs), std::move(inputs), std::move(weights), std::move(states), {out}});
    return out;
  }

  uint32_t state(const std::string& name, swy_state_kind kind, std::vector<uint64_t> dims) {
    plan_.spec.states.push_back({name, kind, SWY_F32, std::move(dims)});
    return static_cast<uint32_t>(plan_.spec.states.size() - 1);
  }

  // ---- weights

  const SourceTensor* find(const std::string& name) const {
    return checkpoint_ == nullptr ? nullptr : checkpoint_->find(name);
  }

  const SourceTensor* source(const std::string& name, const std::vector<uint64_t>& dims) {
    if (checkpoint_ == nullptr) return nullptr;
    used_.insert(name);
    const SourceTensor* t = find(name);
    if (t == nullptr) {
      fail(fmt::format("the checkpoint has no tensor {}", name));
    } else if (t->dims != dims) {
      fail(fmt::format("tensor {} has shape {}; config.json asks for {}", name, shape_text(t->dims), shape_text(dims)));
      t = nullptr;
    }
    return t;
  }

  uint32_t add(const std::string& name, swy_dtype dtype, uint32_t group, std::vector<uint64_t> dims,
               std::vector<const SourceTensor*> parts) {
    plan_.spec.tensors.push_back({name, dtype, group, std::move(dims), {}});
    plan_.sources.push_back({std::move(parts)});
    return static_cast<uint32_t>(plan_.spec.tensors.size() - 1);
  }

  uint32_t quantized(const std::string& name, const std::vector<uint64_t>& dims) {
    return add(name, encoding_.dtype, encoding_.group, dims, {source(name, dims)});
  }

  // A weight that keeps the checkpoint's type (fp16 becomes fp32). `stored` is its shape in the checkpoint.
  uint32_t plain(const std::string& name, std::vector<uint64_t> dims, const std::vector<uint64_t>& stored = {}) {
    const SourceTensor* t = source(name, stored.empty() ? dims : stored);
    const swy_dtype dtype = t == nullptr || t->type == SourceType::bf16 ? SWY_BF16 : SWY_F32;
    return add(name, dtype, 0, std::move(dims), {t});
  }

  // ---- operations

  uint32_t norm(const std::string& name, uint32_t x, const std::string& weight) {
    swy_rms_norm_attrs a{};
    a.eps = c_.eps;
    a.weight_bias = 1;
    return op(name, SWY_OP_RMS_NORM, attr_bytes(a), {x}, {plain(weight, {c_.hidden})}, {}, c_.hidden);
  }

  // LINEAR with several weights; returns the first output, the others follow it.
  uint32_t linear(uint32_t x, const std::vector<std::pair<std::string, uint32_t>>& outputs) {
    const uint32_t first =
        op(outputs[0].first, SWY_OP_LINEAR, {}, {x}, {outputs[0].second}, {}, width_of(outputs[0].second));
    for (size_t i = 1; i < outputs.size(); ++i) {
      const uint32_t v = value(outputs[i].first, width_of(outputs[i].second));
      function().ops.back().outputs.push_back(v);
      function().ops.back().weights.push_back(outputs[i].second);
    }
    return first;
  }
  uint64_t width_of(uint32_t weight) const { return plan_.spec.tensors[weight].dims[0]; }

  uint32_t layer(uint32_t l, uint32_t x) {
    const std::string name = fmt::format("layers.{}.", l), from = prefix_ + name;
    const uint32_t h = norm(name + "mixer_norm", x, from + "input_layernorm.weight");
    const uint32_t mixed =
        c_.attention[l] ? attention(name, from + "self_attn.", h) : delta(name, from + "linear_attn.", h);
    const uint32_t middle = op(name + "mixer_sum", SWY_OP_ADD, {}, {x, mixed}, {}, {}, c_.hidden);
    const uint32_t n = norm(name + "moe_norm", middle, from + "post_attention_layernorm.weight");
    const uint32_t experts = moe(name, from + "mlp.", n);
    return op(name + "moe_sum", SWY_OP_ADD, {}, {middle, experts}, {}, {}, c_.hidden);
  }

  uint32_t attention(const std::string& name, const std::string& from, uint32_t h) {
    const uint64_t q = uint64_t{c_.heads} * c_.head_dim, kv = uint64_t{c_.kv_heads} * c_.head_dim;
    const uint32_t first =
        linear(h, {{name + "q", quantized(from + "q_proj.weight", {q * (c_.gated ? 2 : 1), c_.hidden})},
                   {name + "k", quantized(from + "k_proj.weight", {kv, c_.hidden})},
                   {name + "v", quantized(from + "v_proj.weight", {kv, c_.hidden})}});
    swy_attention_attrs a{};
    a.heads = c_.heads;
    a.kv_heads = c_.kv_heads;
    a.head_dim = c_.head_dim;
    a.rotary_dim = c_.rotary_dim;
    a.rope_theta = c_.rope_theta;
    a.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c_.head_dim)));
    a.norm_eps = c_.eps;
    a.norm_weight_bias = 1;
    a.gated = c_.gated ? 1 : 0;
    const uint32_t cache = state(name + "kv", SWY_STATE_PAGED, {2, c_.kv_heads, c_.head_dim});
    const uint32_t y =
        op(name + "attention", SWY_OP_ATTENTION, attr_bytes(a), {first, first + 1, first + 2},
           {plain(from + "q_norm.weight", {c_.head_dim}), plain(from + "k_norm.weight", {c_.head_dim})}, {cache}, q);
    return linear(y, {{name + "o", quantized(from + "o_proj.weight", {c_.hidden, q})}});
  }

  uint32_t delta(const std::string& name, const std::string& from, uint32_t h) {
    const uint64_t keys = uint64_t{c_.key_heads} * c_.key_dim, values = uint64_t{c_.value_heads} * c_.value_dim;
    const uint64_t channels = 2 * keys + values;
    const uint32_t first = linear(h, {{name + "qkv", quantized(from + "in_proj_qkv.weight", {channels, c_.hidden})},
                                      {name + "z", quantized(from + "in_proj_z.weight", {values, c_.hidden})},
                                      {name + "b", plain(from + "in_proj_b.weight", {c_.value_heads, c_.hidden})},
                                      {name + "a", plain(from + "in_proj_a.weight", {c_.value_heads, c_.hidden})}});
    swy_gated_delta_attrs a{};
    a.key_heads = c_.key_heads;
    a.value_heads = c_.value_heads;
    a.key_dim = c_.key_dim;
    a.value_dim = c_.value_dim;
    a.conv_kernel = c_.conv_kernel;
    a.norm_eps = c_.eps;
    a.l2_eps = 1e-6f;
    const uint32_t conv = state(name + "conv", SWY_STATE_SLOTTED, {channels, c_.conv_kernel - 1});
    const uint32_t rule = state(name + "delta", SWY_STATE_SLOTTED, {c_.value_heads, c_.key_dim, c_.value_dim});
    const uint32_t y =
        op(name + "gated_delta", SWY_OP_GATED_DELTA, attr_bytes(a), {first, first + 1, first + 2, first + 3},
           {plain(from + "conv1d.weight", {channels, c_.conv_kernel}, {channels, 1, c_.conv_kernel}),
            plain(from + "A_log", {c_.value_heads}), plain(from + "dt_bias", {c_.value_heads}),
            plain(from + "norm.weight", {c_.value_dim})},
           {conv, rule}, values);
    return linear(y, {{name + "out", quantized(from + "out_proj.weight", {c_.hidden, values})}});
  }

  // Experts come as two tensors over all experts, or one by one.
  std::pair<uint32_t, uint32_t> expert_weights(const std::string& from) {
    const std::vector<uint64_t> gate_up = {c_.experts, 2 * uint64_t{c_.expert_width}, c_.hidden};
    const std::vector<uint64_t> down = {c_.experts, c_.hidden, c_.expert_width};
    if (checkpoint_ == nullptr || find(from + "gate_up_proj") != nullptr) {
      return {quantized(from + "gate_up_proj", gate_up), quantized(from + "down_proj", down)};
    }
    std::vector<const SourceTensor*> gate_up_parts, down_parts;
    for (uint32_t e = 0; e < c_.experts && status_.ok(); ++e) {
      const std::string expert = fmt::format("{}{}.", from, e);
      gate_up_parts.push_back(source(expert + "gate_proj.weight", {c_.expert_width, c_.hidden}));
      gate_up_parts.push_back(source(expert + "up_proj.weight", {c_.expert_width, c_.hidden}));
      down_parts.push_back(source(expert + "down_proj.weight", {c_.hidden, c_.expert_width}));
    }
    return {add(from + "gate_up_proj", encoding_.dtype, encoding_.group, gate_up, std::move(gate_up_parts)),
            add(from + "down_proj", encoding_.dtype, encoding_.group, down, std::move(down_parts))};
  }

  uint32_t moe(const std::string& name, const std::string& from, uint32_t x) {
    swy_moe_attrs a{};
    a.experts = c_.experts;
    a.top_k = c_.top_k;
    a.width = c_.expert_width;
    a.shared_width = c_.shared_width;
    const uint32_t router = plain(from + "gate.weight", {c_.experts, c_.hidden});
    const auto [gate_up, down] = expert_weights(from + "experts.");
    const std::string shared = from + "shared_expert.";
    return op(name + "moe", SWY_OP_MOE, attr_bytes(a), {x},
              {router, gate_up, down, quantized(shared + "gate_proj.weight", {c_.shared_width, c_.hidden}),
               quantized(shared + "up_proj.weight", {c_.shared_width, c_.hidden}),
               quantized(shared + "down_proj.weight", {c_.hidden, c_.shared_width}),
               plain(from + "shared_expert_gate.weight", {1, c_.hidden})},
              {}, c_.hidden);
  }

  // ---- errors and notes

  void fail(const std::string& message) {
    if (status_.ok()) status_ = Status(Code::invalid_data, message + "; is this the whole checkpoint?");
  }

  void note_skipped() {
    size_t vision = 0, mtp = 0, unknown = 0;
    std::string first_unknown;
    for (const auto& [name, tensor] : checkpoint_->tensors()) {
      if (used_.count(name) != 0 || (c_.tied && name == "lm_head.weight")) continue;
      if (name.starts_with("model.visual.") || name.starts_with("visual.")) {
        ++vision;
      } else if (name.starts_with("mtp.") || name.starts_with("model.mtp.")) {
        ++mtp;
      } else if (unknown++ == 0) {
        first_unknown = name;
      }
    }
    if (vision != 0) plan_.notes.push_back(fmt::format("skipped {} tensors of the vision encoder", vision));
    if (mtp != 0) plan_.notes.push_back(fmt::format("skipped {} tensors of the multi-token prediction head", mtp));
    if (unknown != 0) {
      plan_.notes.push_back(fmt::format("skipped {} tensors that this architecture does not use, the first is {}",
                                        unknown, first_unknown));
    }
  }

  const ModelConfig& c_;
  const Checkpoint* checkpoint_;
  WeightEncoding encoding_;
  std::string prefix_;
  ImportPlan plan_;
  std::set<std::string> used_;
  Status status_;
};

}  // namespace

Result<ImportPlan> plan_import(const ModelConfig& config, const Checkpoint* checkpoint, WeightEncoding encoding) {
  SWY_LET(ImportPlan plan, Builder(config, checkpoint, encoding).build());
  plan.spec.architecture = "qwen3_5_moe";
  plan.spec.context_length = config.context_length;
  plan.spec.eos_ids = config.eos_ids;
  return plan;
}

}  // namespace switchyard
