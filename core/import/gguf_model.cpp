// SPDX-License-Identifier: Apache-2.0
// Names and changes are those of llama.cpp's converter: norms whose weights a checkpoint stores minus 1 are stored
// whole, A_log as -exp(A_log), and value heads lie in another order.
#include "core/import/gguf_model.h"

#include <cmath>
#include <set>

#include "core/import/gguf_repack.h"

namespace switchyard {

// Some rows of a tensor of the file, as the checkpoint has them.
class GgufModel::View final : public SourceTensor {
 public:
  enum class Value { same, minus_one, log_of_negative };

  explicit View(const GgufTensor& tensor) : tensor_(tensor) { dims = tensor.dims; }

  View* rows_from(uint64_t first, uint64_t count) {
    first_row_ = first;
    dims = {count, tensor_.width()};
    return this;
  }
  View* shape(std::vector<uint64_t> as) {
    dims = std::move(as);
    return this;
  }
  // Blocks of MXFP4 stay in that encoding, rather than in one that more backends have.
  View* keep_mxfp4() {
    mxfp4_ = tensor_.block->id == kGgufMXFP4;
    return this;
  }
  View* value(Value v) {
    value_ = v;
    return this;
  }
  // From row (or column) `begin` on, units of this size stand in the order in which the file has them: `heads[h]` is
  // the place of head h.
  View* reorder_rows(const HeadPlaces& heads, uint64_t unit, uint64_t begin = 0) {
    row_order_ = {heads, unit, begin};
    return this;
  }
  View* reorder_columns(const HeadPlaces& heads, uint64_t unit) {
    column_order_ = {heads, unit, 0};
    return this;
  }

  WeightEncoding encoding() const override {
    return mxfp4_ ? WeightEncoding{SWY_MXFP4, kRepackGroup} : encoding_of(*tensor_.block);
  }

  void read_row(uint64_t row, std::span<float> out) const override {
    if (column_order_.heads == nullptr) {
      decode_blocks(*tensor_.block, row_bytes(row), out);
    } else {
      std::vector<float> stored(out.size());
      decode_blocks(*tensor_.block, row_bytes(row), stored);
      for (size_t i = 0; i < out.size(); ++i) out[i] = stored[column_order_.place(i)];
    }
    for (float& x : out) {
      if (value_ == Value::minus_one) x -= 1;
      if (value_ == Value::log_of_negative) x = std::log(-x);
    }
  }

  bool encode_row(uint64_t row, std::span<std::byte> quants, std::span<uint16_t> scales,
                  std::span<uint16_t> offsets) const override {
    const uint64_t groups = scales.size(), group = encoding().group;
    const bool whole_groups = column_order_.heads == nullptr || column_order_.unit % group == 0;
    if (value_ != Value::same || groups * group != width() || !whole_groups) return false;
    const std::byte* from = row_bytes(row).data();
    const uint64_t bytes = quants.size() / groups;
    for (uint64_t g = 0; mxfp4_ && g < groups; ++g) {
      if (!repack_mxfp4(from + g * tensor_.block->bytes, &quants[g * bytes], &scales[g])) return false;
    }
    if (mxfp4_) return true;
    for (uint64_t g = 0; g < groups; ++g) {
      const RepackedGroup to{&quants[g * bytes], &scales[g], offsets.empty() ? nullptr : &offsets[g]};
      if (!repack_group(*tensor_.block, from, column_order_.place(g * group) / group, to)) return false;
    }
    return true;
  }

  void release_rows(uint64_t first, uint64_t count) const override {
    if (row_order_.heads != nullptr) {  // they lie apart, so all are given back after the last
      if (first + count != rows()) return;
      first = 0;
      count = rows();
    }
    tensor_.file->release(tensor_.file_offset + (first_row_ + first) * tensor_.row_bytes(),
                          count * tensor_.row_bytes());
  }

 private:
  struct Order {
    HeadPlaces heads = {};
    uint64_t unit = 0, begin = 0;

    uint64_t place(uint64_t i) const {
      if (heads == nullptr || i < begin) return i;
      return begin + (*heads)[(i - begin) / unit] * unit + (i - begin) % unit;
    }
  };

  std::span<const std::byte> row_bytes(uint64_t row) const {
    return tensor_.bytes.subspan((first_row_ + row_order_.place(row)) * tensor_.row_bytes(), tensor_.row_bytes());
  }

  const GgufTensor& tensor_;
  uint64_t first_row_ = 0;
  Value value_ = Value::same;
  bool mxfp4_ = false;
  Order row_order_, column_order_;
};

// The gate's and the up projection's rows of each expert, one after the other or in turns, as one tensor
// [experts, 2 * width, in].
class GgufModel::GateUp final : public SourceTensor {
 public:
  GateUp(const GgufTensor& gate, const GgufTensor& up) : gate_(gate), up_(up), width_(gate.dims[1]) {
    dims = {gate.dims[0], 2 * width_, gate.dims[2]};
  }
  void in_turns() {
    in_turns_ = true;
    gate_.keep_mxfp4();
    up_.keep_mxfp4();
  }

  WeightEncoding encoding() const override { return more_bits(gate_.encoding(), up_.encoding()); }
  void read_row(uint64_t row, std::span<float> out) const override { half(row).read_row(row_of(row), out); }
  bool encode_row(uint64_t row, std::span<std::byte> quants, std::span<uint16_t> scales,
                  std::span<uint16_t> offsets) const override {
    return half(row).encoding() == encoding() && half(row).encode_row(row_of(row), quants, scales, offsets);
  }
  void release_rows(uint64_t first, uint64_t count) const override {
    const uint64_t begin = first / 2, end = (first + count) / 2;  // about half of them in each
    gate_.release_rows(begin, end - begin);
    up_.release_rows(begin, end - begin);
  }

 private:
  const View& half(uint64_t row) const {
    return (in_turns_ ? row % 2 == 0 : row % (2 * width_) < width_) ? gate_ : up_;
  }
  uint64_t row_of(uint64_t row) const { return in_turns_ ? row / 2 : row / (2 * width_) * width_ + row % width_; }

  View gate_, up_;
  uint64_t width_;
  bool in_turns_ = false;
};

// Their biases [experts, 2 * width], in turns.
class GgufModel::InTurns final : public SourceTensor {
 public:
  InTurns(const GgufTensor& gate, const GgufTensor& up) : gate_(gate), up_(up) {
    dims = {gate.dims[0], 2 * gate.dims[1]};
  }

  WeightEncoding encoding() const override { return more_bits(gate_.encoding(), up_.encoding()); }
  void read_row(uint64_t row, std::span<float> out) const override {
    std::vector<float> gate(out.size() / 2), up(out.size() / 2);
    gate_.read_row(row, gate);
    up_.read_row(row, up);
    for (size_t i = 0; i < out.size(); ++i) out[i] = (i % 2 == 0 ? gate : up)[i / 2];
  }
  void release_rows(uint64_t first, uint64_t count) const override {
    gate_.release_rows(first, count);
    up_.release_rows(first, count);
  }

 private:
  View gate_, up_;
};

namespace {

constexpr uint32_t kMostLayers = 4096, kMostValueHeads = 65536;

// Where the file has head h of the checkpoint: there, value heads of one key head are neighbours; here they lie apart.
std::vector<uint32_t> tiled_places(uint32_t value_heads, uint32_t key_heads) {
  const uint32_t each = value_heads / key_heads;
  std::vector<uint32_t> places;
  for (uint32_t h = 0; h < value_heads; ++h) places.push_back(h % each * key_heads + h / each);
  return places;
}

// Where one tensor for both, in which a key head's `each` values of the first take turns with those of the second, has
// head h of the first.
std::vector<uint32_t> places_of_turns(uint32_t value_heads, uint32_t each) {
  std::vector<uint32_t> places;
  for (uint32_t h = 0; h < value_heads; ++h) places.push_back(h / each * 2 * each + h % each);
  return places;
}

}  // namespace

Result<GgufModel> GgufModel::create(GgufFile file) {
  SWY_LET(GgufConfig settings, gguf_config(file));
  const Config& c = settings.config;
  GgufModel model(std::move(file), settings);
  model.layers_ = c.count("num_hidden_layers", kMostLayers);
  model.heads_ = {.attention = c.count("num_attention_heads"),
                  .kv = c.count("num_key_value_heads"),
                  .head_dim = c.count("head_dim"),
                  .keys = c.count_or("linear_num_key_heads", 1),
                  .values = c.count_or("linear_num_value_heads", 1),
                  .key_dim = c.count_or("linear_key_head_dim", 1),
                  .value_dim = c.count_or("linear_value_head_dim", 1)};
  const Heads& h = model.heads_;
  c.require(h.values <= kMostValueHeads && h.values % h.keys == 0,
            fmt::format("{} value heads (at most {}) do not share {} key heads", h.values, kMostValueHeads, h.keys));
  SWY_TRY(c.status());
  const bool grouped = model.family().gguf == "qwen3next";  // as in the checkpoint
  if (!grouped && h.values != h.keys) {
    model.places_ = std::make_shared<const std::vector<uint32_t>>(tiled_places(h.values, h.keys));
  }
  model.name_tensors();
  return model;
}

GgufModel::View* GgufModel::name(const std::string& from, const std::string& to) {
  const GgufTensor* t = file_.tensor(from);
  if (t == nullptr) return nullptr;
  used_[from] = true;
  const auto view = std::make_shared<View>(*t);
  views_.emplace(to, view);
  return view.get();
}

void GgufModel::name_norm(const std::string& from, const std::string& to) {
  View* v = name(from, to);
  if (v != nullptr && family().norm_bias != 0) v->value(View::Value::minus_one);
}

void GgufModel::name_tensors() {
  name("token_embd.weight", "model.embed_tokens.weight");
  name("output.weight", "lm_head.weight");
  name_norm("output_norm.weight", "model.norm.weight");
  for (uint32_t l = 0; l < layers_; ++l) name_layer(fmt::format("blk.{}.", l), fmt::format("model.layers.{}.", l));
  name_mtp(fmt::format("blk.{}.", layers_));
}

// The multi-token prediction layer is the block after the model's. One with an embedding or a head of its own is left
// out, as is one in parts.
void GgufModel::name_mtp(const std::string& from) {
  const std::string own = from + "nextn.";
  for (const char* needed : {"eh_proj.weight", "enorm.weight", "hnorm.weight", "shared_head_norm.weight"}) {
    if (file_.tensor(own + needed) == nullptr) return;
  }
  for (const char* other : {"embed_tokens.weight", "shared_head_head.weight"}) {
    if (file_.tensor(own + other) != nullptr) return;
  }
  name(own + "eh_proj.weight", "mtp.fc.weight");
  name_norm(own + "enorm.weight", "mtp.pre_fc_norm_embedding.weight");
  name_norm(own + "hnorm.weight", "mtp.pre_fc_norm_hidden.weight");
  name_norm(own + "shared_head_norm.weight", "mtp.norm.weight");
  name_layer(from, "mtp.layers.0.");
}

void GgufModel::name_layer(const std::string& from, const std::string& to) {
  name_norm(from + "attn_norm.weight", to + "input_layernorm.weight");
  for (const char* norm : {"post_attention_norm.weight", "ffn_norm.weight"}) {
    name_norm(from + norm, to + "post_attention_layernorm.weight");
  }
  if (file_.tensor(from + "ssm_a") == nullptr) {
    name_attention(from, to + "self_attn.");
  } else {
    name_delta(from, to + "linear_attn.");
  }
  for (const char* p : {"gate", "up", "down"}) {
    name(fmt::format("{}ffn_{}.weight", from, p), fmt::format("{}mlp.{}_proj.weight", to, p));
  }
  if (family().model_type == "gpt_oss") {
    name_biased_experts(from, to + "mlp.");
    return;
  }
  name(from + "ffn_gate_inp.weight", to + "mlp.gate.weight");
  name_experts(from, to + "mlp.");
}

void GgufModel::name_attention(const std::string& from, const std::string& to) {
  name_norm(from + "attn_q_norm.weight", to + "q_norm.weight");
  name_norm(from + "attn_k_norm.weight", to + "k_norm.weight");
  name(from + "attn_output.weight", to + "o_proj.weight");
  name(from + "attn_output.bias", to + "o_proj.bias");
  for (const char* p : {"q", "k", "v"}) {
    name(fmt::format("{}attn_{}.bias", from, p), fmt::format("{}{}_proj.bias", to, p));
  }
  name(from + "attn_sinks.weight", to + "sinks");
  const uint64_t q = uint64_t{heads_.attention} * heads_.head_dim, kv = uint64_t{heads_.kv} * heads_.head_dim;
  const std::string fused = from + "attn_qkv.weight";
  const GgufTensor* t = file_.tensor(fused);
  if (t != nullptr && (t->rows() == q + 2 * kv || t->rows() == 2 * q + 2 * kv)) {  // without or with a gate
    const uint64_t first = t->rows() - 2 * kv;
    name(fused, to + "q_proj.weight")->rows_from(0, first);
    name(fused, to + "k_proj.weight")->rows_from(first, kv);
    name(fused, to + "v_proj.weight")->rows_from(first + kv, kv);
    return;
  }
  for (const char* p : {"q", "k", "v"}) {
    name(fmt::format("{}attn_{}.weight", from, p), fmt::format("{}{}_proj.weight", to, p));
  }
}

void GgufModel::name_delta(const std::string& from, const std::string& to) {
  const HeadPlaces& places = places_;
  const uint64_t keys = uint64_t{heads_.keys} * heads_.key_dim, unit = heads_.value_dim;
  if (View* v = name(from + "attn_qkv.weight", to + "in_proj_qkv.weight")) v->reorder_rows(places, unit, 2 * keys);
  if (View* v = name(from + "attn_gate.weight", to + "in_proj_z.weight")) v->reorder_rows(places, unit);
  name_betas_and_alphas(from + "ssm_ba.weight", to);
  if (View* v = name(from + "ssm_alpha.weight", to + "in_proj_a.weight")) v->reorder_rows(places, 1);
  if (View* v = name(from + "ssm_beta.weight", to + "in_proj_b.weight")) v->reorder_rows(places, 1);
  if (View* v = name(from + "ssm_a", to + "A_log")) v->reorder_columns(places, 1)->value(View::Value::log_of_negative);
  if (View* v = name(from + "ssm_dt.bias", to + "dt_bias")) v->reorder_columns(places, 1);
  if (View* v = name(from + "ssm_conv1d.weight", to + "conv1d.weight")) {
    v->reorder_rows(places, unit, 2 * keys);
    if (v->dims.size() == 2) v->shape({v->dims[0], 1, v->dims[1]});
  }
  name(from + "ssm_norm.weight", to + "norm.weight");
  if (View* v = name(from + "ssm_out.weight", to + "out_proj.weight")) v->reorder_columns(places, unit);
}

// Of Qwen3-Next: one tensor for both.
void GgufModel::name_betas_and_alphas(const std::string& from, const std::string& to) {
  const GgufTensor* t = file_.tensor(from);
  if (t == nullptr || t->rows() != 2 * uint64_t{heads_.values}) return;
  const uint32_t each = heads_.values / heads_.keys;
  const auto places = std::make_shared<const std::vector<uint32_t>>(places_of_turns(heads_.values, each));
  name(from, to + "in_proj_b.weight")->rows_from(0, heads_.values)->reorder_rows(places, 1);
  name(from, to + "in_proj_a.weight")->rows_from(each, heads_.values)->reorder_rows(places, 1);
}

void GgufModel::name_experts(const std::string& from, const std::string& to) {
  for (const char* p : {"gate", "up", "down"}) {
    name(fmt::format("{}ffn_{}_shexp.weight", from, p), fmt::format("{}shared_expert.{}_proj.weight", to, p));
  }
  if (View* v = name(from + "ffn_gate_inp_shexp.weight", to + "shared_expert_gate.weight")) v->shape({1, v->width()});
  name(from + "ffn_down_exps.weight", to + "experts.down_proj");
  if (name(from + "ffn_gate_up_exps.weight", to + "experts.gate_up_proj") != nullptr) return;
  const std::string gate = from + "ffn_gate_exps.weight", up = from + "ffn_up_exps.weight";
  const GgufTensor *g = file_.tensor(gate), *u = file_.tensor(up);
  if (g == nullptr || u == nullptr || g->dims != u->dims || g->dims.size() != 3) return;
  used_[gate] = used_[up] = true;
  views_.emplace(to + "experts.gate_up_proj", std::make_shared<GateUp>(*g, *u));
}

// Of gpt-oss: gates and up projections take turns in the checkpoint, and have tensors of their own here.
void GgufModel::name_biased_experts(const std::string& from, const std::string& to) {
  name(from + "ffn_gate_inp.weight", to + "router.weight");
  name(from + "ffn_gate_inp.bias", to + "router.bias");
  if (View* v = name(from + "ffn_down_exps.weight", to + "experts.down_proj")) v->keep_mxfp4();
  name(from + "ffn_down_exps.bias", to + "experts.down_proj_bias");
  const auto both = [&](const char* kind, size_t rank) {
    const std::string gate = from + "ffn_gate_exps." + kind, up = from + "ffn_up_exps." + kind;
    const GgufTensor *g = file_.tensor(gate), *u = file_.tensor(up);
    const bool fits = g != nullptr && u != nullptr && g->dims == u->dims && g->dims.size() == rank;
    if (fits) used_[gate] = used_[up] = true;
    return std::pair(fits ? g : nullptr, u);
  };
  if (const auto [g, u] = both("weight", 3); g != nullptr) {
    const auto gate_up = std::make_shared<GateUp>(*g, *u);
    gate_up->in_turns();
    views_.emplace(to + "experts.gate_up_proj", gate_up);
  }
  if (const auto [g, u] = both("bias", 2); g != nullptr) {
    views_.emplace(to + "experts.gate_up_proj_bias", std::make_shared<InTurns>(*g, *u));
  }
}

const SourceTensor* GgufModel::find(const std::string& name) const {
  const auto it = views_.find(name);
  return it == views_.end() ? nullptr : it->second.get();
}

std::vector<std::string> GgufModel::names() const {
  std::vector<std::string> all;
  for (const auto& [name, view] : views_) all.push_back(name);
  const std::string drafting = fmt::format("blk.{}.", layers_);
  for (const GgufTensor& t : file_.tensors()) {
    if (!used_.contains(t.name)) all.push_back((t.name.starts_with(drafting) ? "mtp." : "") + t.name);
  }
  return all;
}

std::string GgufModel::quantization() const {
  std::set<std::string> kinds;
  for (const GgufTensor& t : file_.tensors()) kinds.insert(t.block->name);
  return fmt::format("GGUF: {}", fmt::join(kinds, ", "));
}

std::string GgufModel::chat_template() const {
  const GgufValue* v = file_.find("tokenizer.chat_template");
  return std::string(v == nullptr ? "" : v->text().value_or(""));
}

}  // namespace switchyard
