// SPDX-License-Identifier: Apache-2.0
// What the layers of several families consist of. A block is read from the configuration once and built in each of its
// layers. `from` is the module that holds its tensors in the checkpoint.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/models/builder.h"
#include "core/models/config.h"

namespace switchyard {

// The embedding, the residual stream and the head.
struct Trunk {
  // `eps` is what the family has where config.json does not say.
  explicit Trunk(const Config& config, double eps = 1e-6);

  uint32_t hidden, layers, vocab;
  float eps;
  bool tied;

  Activation embed(Builder& b);
  Activation norm(Builder& b, const Scope& at, const std::string& name, Activation x, const std::string& weight) const;
  void head(Builder& b, Activation x);

 private:
  friend struct Mtp;
  Weight table_, head_;
};

// Per layer: attention to the whole context, rather than a recurrent state.
std::vector<bool> full_attention_layers(const Config& config, uint32_t layers);
// Refuses what is not attention to the whole context in every layer.
void only_full_attention(const Config& config);

// Grouped-query attention with normalised queries and keys, between its projections.
struct Attention {
  // What config.json leaves to the architecture.
  struct Form {
    bool gated = false;      // the query projection also gives a gate per element of the output
    double rotary_part = 1;  // of each head
    double rope_theta = 10000;
  };
  Attention(const Config& config, const Trunk& trunk, Form form);
  Activation build(Builder& b, const Scope& at, const std::string& from, Activation h) const;

  uint32_t heads, kv_heads, head_dim, rotary_dim;
  float rope_theta, eps;
  bool gated;
};

// Gated delta rule (Yang, Kautz, Hatamizadeh 2024) with a short convolution, between its projections.
struct GatedDelta {
  GatedDelta(const Config& config, const Trunk& trunk);
  Activation build(Builder& b, const Scope& at, const std::string& from, Activation h) const;

  uint32_t key_heads, value_heads, key_dim, value_dim, conv_kernel;
  float eps;

  uint64_t keys() const { return uint64_t{key_heads} * key_dim; }
  uint64_t values() const { return uint64_t{value_heads} * value_dim; }
  uint64_t channels() const { return 2 * keys() + values(); }

 private:
  struct Projections {
    Weight qkv, z, b, a;
  };
  Projections projections(Builder& b, const std::string& from, uint64_t hidden) const;
  Projections interleaved_projections(Builder& b, const std::string& from, uint64_t hidden) const;
};

// down(silu(gate x) * up x)
struct Mlp {
  explicit Mlp(const Config& config) : width(config.count("intermediate_size")) {}
  Activation build(Builder& b, const Scope& at, const std::string& from, Activation x) const;

  uint32_t width;
};

// Of `experts` MLPs the `top_k` that a router picks for each token, their shares adding up to 1.
struct Experts {
  enum class Form { alone, with_shared_expert };
  Experts(const Config& config, Form form);
  Activation build(Builder& b, const Scope& at, const std::string& from, Activation x) const;

  uint32_t experts, top_k, width;
  uint32_t shared_width;  // 0: no expert that every token uses

 private:
  std::pair<Weight, Weight> expert_weights(Builder& b, const std::string& from, uint64_t hidden) const;
};

// The multi-token prediction layer of Qwen3-Next and Qwen3.5, the function `mtp` of the program: from the row that the
// head sees at a position, and the token after it, it makes the row for the token after that one. It has the trunk's
// embedding and head, and a layer with states of its own.
struct Mtp {
  using FeedForward = std::function<Activation(Builder&, const Scope& at, const std::string& from, Activation x)>;

  Mtp(const Config& config, const Trunk& trunk, const Attention& attention, FeedForward feed_forward);
  // Nothing where the checkpoint has no such layer; without a checkpoint, where the configuration has none.
  void build(Builder& b) const;

 private:
  std::string root(const Builder& b) const;

  const Trunk& trunk_;
  const Attention& attention_;
  FeedForward feed_forward_;
  bool configured_;
};

// In each layer experts, or an MLP where config.json says so; with the norm before and the sum after.
struct ExpertsOrMlp {
  ExpertsOrMlp(const Config& config, const Trunk& trunk, Experts::Form form);
  Activation build(Builder& b, const Scope& at, const Trunk& trunk, uint32_t layer, Activation x) const;

 private:
  Experts experts_;
  std::vector<bool> dense_;  // per layer
  std::optional<Mlp> mlp_;
};

}  // namespace switchyard
