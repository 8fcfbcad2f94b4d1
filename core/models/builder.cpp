// SPDX-License-Identifier: Apache-2.0
#include "core/models/builder.h"

#include "core/models/derived.h"

namespace switchyard {
namespace {

std::string shape_text(const std::vector<uint64_t>& dims) { return fmt::format("[{}]", fmt::join(dims, ", ")); }

std::vector<uint32_t> ids_of(const std::vector<Activation>& values) {
  std::vector<uint32_t> ids;
  for (const Activation v : values) ids.push_back(v.id);
  return ids;
}
std::vector<uint32_t> ids_of(const std::vector<Weight>& weights) {
  std::vector<uint32_t> ids;
  for (const Weight w : weights) ids.push_back(w.id);
  return ids;
}

std::vector<Weight> present(std::initializer_list<std::optional<Weight>> weights) {
  std::vector<Weight> out;
  for (const std::optional<Weight>& w : weights) {
    if (w) out.push_back(*w);
  }
  return out;
}

}  // namespace

Builder::Builder(const TensorSource* tensors, std::optional<WeightEncoding> encoding, float norm_bias)
    : tensors_(tensors), encoding_(encoding), norm_bias_(norm_bias) {
  plan_.spec.functions.emplace_back().name = "main";
  const std::string nested = "model.language_model.";
  root_ = has(nested + "embed_tokens.weight") ? nested : "model.";
}

void Builder::fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

uint64_t Builder::width(Activation v) const { return plan_.spec.functions.back().values[v.id].width; }

Scope Builder::layer(uint32_t index) {
  plan_.layers = std::max(plan_.layers, index + 1);
  const std::string name = fmt::format("layers.{}.", index);
  return {name, root_ + name};
}

std::string Builder::mtp_root() const {
  for (const char* root : {"mtp.", "model.mtp."}) {
    if (has(std::string(root) + "fc.weight") && has(std::string(root) + "layers.0.input_layernorm.weight")) return root;
  }
  return "";
}

Activation Builder::value(const std::string& name, uint64_t width) {
  function().values.push_back({name, SWY_F32, SWY_ROWS_STEP, width});
  return {static_cast<uint32_t>(function().values.size() - 1)};
}

Activation Builder::op(const std::string& name, Kind kind, std::vector<std::byte> attrs,
                       const std::vector<Activation>& inputs, const std::vector<Weight>& weights, uint64_t width,
                       std::vector<uint32_t> states) {
  const Activation out = value(name, width);
  truncate_attrs(attrs, kind.id, kind.revision);
  function().ops.push_back(
      {kind.id, kind.revision, std::move(attrs), ids_of(inputs), ids_of(weights), std::move(states), {out.id}});
  return out;
}

uint32_t Builder::state(const std::string& name, swy_state_kind kind, std::vector<uint64_t> dims) {
  plan_.spec.states.push_back({name, kind, SWY_F32, std::move(dims)});
  return static_cast<uint32_t>(plan_.spec.states.size() - 1);
}

// ---- weights

bool Builder::has(const std::string& name) const { return tensors_ != nullptr && tensors_->find(name) != nullptr; }

const SourceTensor* Builder::tensor(const std::string& name) {
  if (tensors_ == nullptr) return nullptr;
  used_.insert(name);
  const SourceTensor* t = tensors_->find(name);
  if (t == nullptr) {
    fail(error(Code::invalid_data, "the checkpoint has no tensor {}; is this the whole checkpoint?", name));
  }
  return t;
}

const SourceTensor* Builder::tensor(const std::string& name, const std::vector<uint64_t>& dims) {
  const SourceTensor* t = tensor(name);
  if (t != nullptr && t->dims != dims) {
    fail(error(Code::invalid_data, "tensor {} has shape {}; config.json asks for {}; is this the whole checkpoint?",
               name, shape_text(t->dims), shape_text(dims)));
    t = nullptr;
  }
  return t;
}

// In floating point, which no product of sizes overflows: each size alone is possible, and all together may not be.
void Builder::count(const std::vector<uint64_t>& dims) {
  constexpr double kMost = 1e14;  // fifty times the largest models
  double product = 1;
  for (const uint64_t d : dims) product *= static_cast<double>(d);
  elements_ += product;
  if (elements_ > kMost) {
    fail(error(Code::invalid_data,
               "the sizes describe a model of more than {:.0e} parameters, the most that is supported, so they are "
               "wrong",
               kMost));
  }
}

Weight Builder::add_weight(const std::string& name, WeightEncoding encoding, const std::vector<uint64_t>& dims,
                           std::vector<SourceRows> parts) {
  plan_.spec.tensors.push_back({name, encoding.dtype, encoding.group, dims, {}});
  plan_.weights.push_back({std::move(parts)});
  return {static_cast<uint32_t>(plan_.spec.tensors.size() - 1)};
}

// Of several parts that differ, the encoding that takes the most bits.
WeightEncoding Builder::matrix_encoding(const std::vector<SourceRows>& parts) const {
  if (parts.empty()) return encoding_.value_or(WeightEncoding{});
  WeightEncoding most = parts[0].tensor->encoding();
  for (const SourceRows& part : parts) most = more_bits(most, part.tensor->encoding());
  const bool four_bits = encoding_ && (encoding_->dtype == SWY_I4 || encoding_->dtype == SWY_I4A);
  if (!encoding_ || (four_bits && most.dtype == SWY_MXFP4)) return most;
  return *encoding_;
}

namespace {

std::vector<SourceRows> whole(const SourceTensor* t) {
  if (t == nullptr) return {};
  return {{t, 0, t->rows()}};
}

}  // namespace

Weight Builder::matrix(const std::string& name, const std::vector<uint64_t>& dims, std::vector<SourceRows> parts) {
  count(dims);
  const WeightEncoding e = matrix_encoding(parts);
  return add_weight(name, e, dims, std::move(parts));
}
Weight Builder::matrix(const std::string& name, const std::vector<uint64_t>& dims) {
  count(dims);
  std::vector<SourceRows> parts = whole(tensor(name, dims));
  const WeightEncoding e = matrix_encoding(parts);
  return add_weight(name, e, dims, std::move(parts));
}

Weight Builder::plain(const std::string& name, const std::vector<uint64_t>& dims, std::vector<SourceRows> parts) {
  count(dims);
  const bool narrow = parts.empty() || parts[0].tensor->encoding().dtype == SWY_BF16;
  return add_weight(name, {narrow ? SWY_BF16 : SWY_F32, 0}, dims, std::move(parts));
}
Weight Builder::plain(const std::string& name, const std::vector<uint64_t>& dims, const std::vector<uint64_t>& stored) {
  return plain(name, dims, whole(tensor(name, stored.empty() ? dims : stored)));
}

Weight Builder::rows_of(const std::string& name, Weight matrix, const IdRanges& rows) {
  const ProgramSpec::Tensor& from = plan_.spec.tensors[matrix.id];
  const std::vector<uint64_t> dims = {rows.count(), from.dims[1]};
  std::vector<SourceRows> parts;
  for (const SourceRows& whole_of : plan_.weights[matrix.id].parts) {
    for (const IdRanges::Range& r : rows.ranges())
      parts.push_back({whole_of.tensor, whole_of.first + r.first, r.count});
  }
  count(dims);
  return add_weight(name, {from.dtype, from.group}, dims, std::move(parts));
}

IdRanges Builder::shortlist(uint32_t vocab) {
  if (!shortlist_ || !ok()) return {};
  Result<IdRanges> made = shortlist_(vocab);
  if (!made.ok()) {
    fail(made.status());
    return {};
  }
  if (!made->empty()) {
    plan_.spec.metadata.emplace_back(kShortlistKey, made->text());
    plan_.notes.push_back(
        fmt::format("the multi-token prediction layer guesses from {} of {} tokens", made->count(), vocab));
  }
  return std::move(*made);
}

Weight Builder::given(const std::string& name, std::vector<float> values) {
  const std::vector<uint64_t> dims = {values.size()};
  const auto& t = plan_.derived.emplace_back(std::make_shared<const GivenValues>(std::move(values)));
  return add_weight(name, {SWY_F32, 0}, dims, {{t.get(), 0, 1}});
}

Weight Builder::norm_weight(const std::string& name, uint64_t width, float centre) {
  const Weight w = plain(name, {width});
  plan_.weights[w.id].centre = centre;
  return w;
}

// ---- operations

Activation Builder::embedding(const std::string& name, Weight table) {
  const std::vector<uint64_t>& dims = plan_.spec.tensors[table.id].dims;
  plan_.vocab = static_cast<uint32_t>(dims[0]);
  return op(name, SWY_OP_EMBEDDING, {}, {}, {table}, dims[1]);
}

Activation Builder::rms_norm(const std::string& name, Activation x, Weight weight, float eps) {
  swy_rms_norm_attrs a{};
  a.eps = eps;
  a.weight_bias = norm_bias_;
  return op(name, SWY_OP_RMS_NORM, attr_bytes(a), {x}, {weight}, width(x));
}

std::vector<Activation> Builder::linear(Activation x, const std::vector<Projection>& projections) {
  std::vector<Activation> outputs;
  std::vector<Weight> weights, biases;
  for (const Projection& p : projections) {
    outputs.push_back(value(p.name, plan_.spec.tensors[p.weight.id].dims[0]));
    weights.push_back(p.weight);
    if (p.bias) biases.push_back(*p.bias);
  }
  weights.insert(weights.end(), biases.begin(), biases.end());
  const uint32_t revision = biases.empty() ? 1 : 2;
  function().ops.push_back({SWY_OP_LINEAR, revision, {}, {x.id}, ids_of(weights), {}, ids_of(outputs)});
  return outputs;
}

Activation Builder::attention(const Scope& at, const AttentionOperands& o, swy_attention_attrs a) {
  a.norm_weight_bias = norm_bias_;
  const uint32_t cache = state(at.name + "kv", SWY_STATE_PAGED, {2, a.kv_heads, a.head_dim});
  const uint32_t revision = a.rope_scale != 0 ? 2 : 1;
  return op(at.name + "attention", {SWY_OP_ATTENTION, revision}, attr_bytes(a), {o.q, o.k, o.v},
            present({o.q_norm, o.k_norm, o.inv_freq, o.sinks}), uint64_t{a.heads} * a.head_dim, {cache});
}

Activation Builder::gated_delta(const Scope& at, const GatedDeltaOperands& o, swy_gated_delta_attrs a) {
  const uint32_t conv = state(at.name + "conv", SWY_STATE_SLOTTED, {width(o.qkv), a.conv_kernel - uint64_t{1}});
  const uint32_t rule = state(at.name + "delta", SWY_STATE_SLOTTED, {a.value_heads, a.key_dim, a.value_dim});
  return op(at.name + "gated_delta", SWY_OP_GATED_DELTA, attr_bytes(a), {o.qkv, o.z, o.b, o.a},
            {o.conv, o.a_log, o.dt_bias, o.norm}, width(o.z), {conv, rule});
}

Activation Builder::moe(const Scope& at, Activation x, const MoeOperands& o, swy_moe_attrs a) {
  std::vector<Weight> weights = {o.router, o.gate_up, o.down};
  if (o.shared) weights.insert(weights.end(), {o.shared->gate, o.shared->up, o.shared->down, o.shared->scale});
  for (const Weight w : present({o.router_bias, o.gate_up_bias, o.down_bias})) weights.push_back(w);
  const uint32_t revision = a.routed_scale != 0 ? 2 : 1;
  return op(at.name + "moe", {SWY_OP_MOE, revision}, attr_bytes(a), {x}, weights, width(x));
}

Activation Builder::mlp(const Scope& at, Activation x, const MlpOperands& o, swy_mlp_attrs a) {
  return op(at.name + "mlp", SWY_OP_MLP, attr_bytes(a), {x}, {o.gate, o.up, o.down}, width(x));
}

Activation Builder::add(const std::string& name, Activation x, Activation y) {
  return op(name, SWY_OP_ADD, {}, {x, y}, {}, width(x));
}

void Builder::lm_head(const std::string& name, Activation x, Weight weight, std::optional<Activation> also) {
  const uint64_t rows = plan_.spec.tensors[weight.id].dims[0];
  const Activation logits = op(name, SWY_OP_LM_HEAD, {}, {x}, {weight}, rows);
  function().values[logits.id].rows = SWY_ROWS_LOGITS;
  function().outputs = {logits.id};
  if (also) function().outputs.push_back(also->id);
}

Activation Builder::begin_function(const std::string& name, const std::string& input, uint64_t width) {
  plan_.spec.functions.emplace_back().name = name;
  const Activation in = value(input, width);
  function().inputs = {in.id};
  return in;
}

// ---- the end

Result<ModelPlan> Builder::finish(bool tied) {
  SWY_TRY(status_);
  if (tensors_ != nullptr) note_skipped(tied);
  return std::move(plan_);
}

void Builder::note_skipped(bool tied) {
  size_t vision = 0, mtp = 0, unknown = 0;
  std::string first_unknown;
  for (const std::string& name : tensors_->names()) {
    if (used_.count(name) != 0 || (tied && name == "lm_head.weight")) continue;
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
    plan_.notes.push_back(
        fmt::format("skipped {} tensors that this architecture does not use, the first is {}", unknown, first_unknown));
  }
}

}  // namespace switchyard
