// SPDX-License-Identifier: Apache-2.0
// A GGUF file as the checkpoint that it was made from: tensors under their Hugging Face names, with what llama.cpp's
// converter did to them undone.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/import/gguf_config.h"
#include "core/models/source.h"

namespace switchyard {

class GgufModel final : public TensorSource {
 public:
  // Errors: unsupported, naming the architecture; invalid_data, naming a value of the metadata that is missing or out
  // of range.
  static Result<GgufModel> create(GgufFile file);

  const GgufFile& file() const { return file_; }
  const Family& family() const { return *settings_.family; }
  const Config& config() const { return settings_.config; }
  std::string quantization() const;  // "GGUF: Q4_K, Q6_K, F32"

  // The tokenizer as a tokenizer.json, and the chat template; "" where the file has none. Errors: invalid_data;
  // unsupported, naming the kind of tokenizer.
  Result<std::string> tokenizer_json() const;
  std::string chat_template() const;

  const SourceTensor* find(const std::string& name) const override;
  std::vector<std::string> names() const override;

 private:
  class View;
  class GateUp;
  class InTurns;
  using HeadPlaces = std::shared_ptr<const std::vector<uint32_t>>;  // NULL: in the checkpoint's order

  // What decides where its rows lie.
  struct Heads {
    uint32_t attention, kv, head_dim;
    uint32_t keys, values, key_dim, value_dim;  // of the gated delta rule
  };

  GgufModel(GgufFile file, GgufConfig settings) : file_(std::move(file)), settings_(std::move(settings)) {}
  void name_tensors();
  void name_layer(const std::string& from, const std::string& to);
  void name_mtp(const std::string& from);
  void name_attention(const std::string& from, const std::string& to);
  void name_delta(const std::string& from, const std::string& to);
  void name_betas_and_alphas(const std::string& from, const std::string& to);
  void name_experts(const std::string& from, const std::string& to);
  void name_biased_experts(const std::string& from, const std::string& to);
  void name_norm(const std::string& from, const std::string& to);
  // `from` is the name in the file. NULL where the file has no such tensor; else it lives as long as this.
  View* name(const std::string& from, const std::string& to);

  GgufFile file_;
  GgufConfig settings_;
  Heads heads_{};
  HeadPlaces places_;
  uint32_t layers_ = 0;
  std::map<std::string, std::shared_ptr<SourceTensor>> views_;
  std::map<std::string, bool, std::less<>> used_;  // names of the file
};

}  // namespace switchyard
