// SPDX-License-Identifier: Apache-2.0
// Builds the program of a model, one operation after another, and says from which tensors its weights come.
//
// Each operation takes its operands by name. Its output has the operation's name, and its states that of their scope.
// The first error makes everything after it be of no consequence: a family asks `ok` once a layer.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/models/source.h"
#include "core/program/id_ranges.h"
#include "core/program/spec.h"

namespace switchyard {

// Some rows of a tensor.
struct SourceRows {
  const SourceTensor* tensor = nullptr;
  uint64_t first = 0, count = 0;
};

// A program, and what to fill its weights with.
struct ModelPlan {
  struct Weight {
    std::vector<SourceRows> parts;  // one after another
    float centre = 0;               // the value around which such weights lie
  };

  ProgramSpec spec;
  std::vector<Weight> weights;                               // per tensor of the spec
  std::vector<std::shared_ptr<const SourceTensor>> derived;  // what is not in the checkpoint as the program has it
  std::vector<std::string> notes;                            // for the user: tensors that were skipped
  uint32_t layers = 0, vocab = 0;
};

// An activation [rows, width], and a weight.
struct Activation {
  uint32_t id = 0;
};
struct Weight {
  uint32_t id = 0;
};

// A part of the model: what its values' names and its tensors' names begin with.
struct Scope {
  std::string name, from;

  Scope inside(const std::string& module) const { return {name, from + module}; }
};

// What LINEAR makes with one of its weights.
struct Projection {
  std::string name;
  Weight weight;
  std::optional<Weight> bias = {};  // of all that one input goes through, or of none
};

// Operands and sizes of ops.h' composites. Attributes in which a field of the second revision is not 0 make an
// operation of that revision; its operands are those that are there.
struct AttentionOperands {
  Activation q, k, v;
  std::optional<Weight> q_norm = {}, k_norm = {}, inv_freq = {}, sinks = {};
};
struct GatedDeltaOperands {
  Activation qkv, z, b, a;
  Weight conv, a_log, dt_bias, norm;
};
struct SharedExpert {
  Weight gate, up, down, scale;
};
struct MoeOperands {
  Weight router, gate_up, down;
  std::optional<SharedExpert> shared = {};
  std::optional<Weight> router_bias = {}, gate_up_bias = {}, down_bias = {};
};

struct MlpOperands {
  Weight gate, up, down;
};

// The ids that the multi-token prediction layer guesses from, of a vocabulary of this size; none: all.
using Shortlist = std::function<Result<IdRanges>(uint32_t vocab)>;

class Builder {
 public:
  // `encoding` is that of matrices; without one each keeps its source's, and so does one in MXFP4 where 4 bits are
  // asked for. `norm_bias`: what RMS_NORM adds to its weights. Without tensors the plan has the weights of such a
  // model, and no sources but for what follows from the configuration.
  Builder(const TensorSource* tensors, std::optional<WeightEncoding> encoding, float norm_bias);

  bool ok() const { return status_.ok(); }
  void fail(Status status);
  uint64_t width(Activation v) const;

  Scope model() const { return {"", root_}; }
  Scope layer(uint32_t index);
  // What the tensors of the multi-token prediction layer begin with; "": there is none.
  std::string mtp_root() const;

  // ---- weights, by the names that they have in the checkpoint. All but matrices keep the checkpoint's type (bf16, or
  // fp32 for all others).
  bool has_tensors() const { return tensors_ != nullptr; }
  bool has(const std::string& name) const;
  Weight matrix(const std::string& name, const std::vector<uint64_t>& dims);
  Weight plain(const std::string& name, const std::vector<uint64_t>& dims, const std::vector<uint64_t>& stored = {});
  Weight norm_weight(const std::string& name, uint64_t width) { return norm_weight(name, width, 1 - norm_bias_); }
  Weight norm_weight(const std::string& name, uint64_t width, float centre);
  // Of parts of other tensors, all of the same width.
  Weight matrix(const std::string& name, const std::vector<uint64_t>& dims, std::vector<SourceRows> parts);
  Weight plain(const std::string& name, const std::vector<uint64_t>& dims, std::vector<SourceRows> parts);
  // NULL without tensors, or where this one is missing or has another shape, which is an error.
  const SourceTensor* tensor(const std::string& name, const std::vector<uint64_t>& dims);
  // The same without a shape, for a tensor that comes in several.
  const SourceTensor* tensor(const std::string& name);
  // A tensor made of others, as a part; of NULL there is none.
  template <class Form, class... More>
  const SourceTensor* derive(const SourceTensor* from, More... more) {
    if (from == nullptr) return nullptr;
    return plan_.derived.emplace_back(std::make_shared<const Form>(*from, more...)).get();
  }
  // Some rows of a matrix that was made of one tensor, in its encoding.
  Weight rows_of(const std::string& name, Weight matrix, const IdRanges& rows);
  // Numbers that follow from the configuration, in fp32.
  Weight given(const std::string& name, std::vector<float> values);

  // ---- operations
  Activation embedding(const std::string& name, Weight table);
  Activation rms_norm(const std::string& name, Activation x, Weight weight, float eps);
  std::vector<Activation> linear(Activation x, const std::vector<Projection>& projections);
  Activation linear(const std::string& name, Activation x, Weight weight) { return linear(x, {{name, weight}})[0]; }
  Activation attention(const Scope& at, const AttentionOperands& operands, swy_attention_attrs attrs);
  Activation gated_delta(const Scope& at, const GatedDeltaOperands& operands, swy_gated_delta_attrs attrs);
  Activation moe(const Scope& at, Activation x, const MoeOperands& operands, swy_moe_attrs attrs);
  Activation mlp(const Scope& at, Activation x, const MlpOperands& operands, swy_mlp_attrs attrs);
  Activation add(const std::string& name, Activation x, Activation y);
  // Ends the function: the logits are its first output, and `also` follows.
  void lm_head(const std::string& name, Activation x, Weight weight, std::optional<Activation> also = {});

  // Operations from now on are those of another function, beside the main one. Its input comes from its caller.
  Activation begin_function(const std::string& name, const std::string& input, uint64_t width);

  // What the layer guesses from. Asked of models that have one, and then part of the plan.
  void set_shortlist(Shortlist shortlist) { shortlist_ = std::move(shortlist); }
  IdRanges shortlist(uint32_t vocab);

  // Errors: invalid_data, for a tensor that is missing or has another shape, by name, and for impossible sizes.
  // `tied`: lm_head.weight is the embedding.
  Result<ModelPlan> finish(bool tied);

 private:
  ProgramSpec::Function& function() { return plan_.spec.functions.back(); }
  Activation value(const std::string& name, uint64_t width);
  struct Kind {
    // NOLINTNEXTLINE(google-explicit-constructor): an id alone is that of the first revision
    Kind(swy_op_id id_of, uint32_t revision_of = 1) : id(id_of), revision(revision_of) {}
    swy_op_id id;
    uint32_t revision;
  };
  // An operation with one output of its name.
  Activation op(const std::string& name, Kind kind, std::vector<std::byte> attrs, const std::vector<Activation>& inputs,
                const std::vector<Weight>& weights, uint64_t width, std::vector<uint32_t> states = {});
  uint32_t state(const std::string& name, swy_state_kind kind, std::vector<uint64_t> dims);
  Weight add_weight(const std::string& name, WeightEncoding encoding, const std::vector<uint64_t>& dims,
                    std::vector<SourceRows> parts);
  WeightEncoding matrix_encoding(const std::vector<SourceRows>& parts) const;
  void count(const std::vector<uint64_t>& dims);
  void note_skipped(bool tied);

  const TensorSource* tensors_;
  std::optional<WeightEncoding> encoding_;
  float norm_bias_;
  std::string root_;
  Shortlist shortlist_;
  ModelPlan plan_;
  std::set<std::string> used_;
  double elements_ = 0;
  Status status_;
};

}  // namespace switchyard
