// SPDX-License-Identifier: Apache-2.0
// The settings of a model by the names that its config.json gives them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace switchyard {

// Copies share the settings and the first error: a reader takes all the values it wants and asks `status` once.
class Config {
 public:
  // Of config.json, where a text_config stands for the whole. `generation` is the text of generation_config.json, or
  // "". Errors: invalid_data, for what is no JSON, and for more ends of a text than a model has.
  static Result<Config> parse(std::string_view config, std::string_view generation);

  // What the source of the settings is called in messages, and what it calls each of them.
  struct Labels {
    std::string source = "config.json";
    std::function<std::string(const std::string&)> name;  // none: the names are its own
  };
  Config(const nlohmann::json& settings, Labels labels);

  // Each gives its value, and the first that is wrong becomes the status. `*_or` ask for a setting that may be missing.
  uint32_t count(const std::string& name, uint32_t most = 1u << 24) const;
  uint32_t count_or(const std::string& name, uint32_t otherwise) const;
  double number_or(const std::string& name, double otherwise) const;
  bool flag_or(const std::string& name, bool otherwise) const;
  std::string text_or(const std::string& name, const std::string& otherwise) const;
  // The object of this name; an empty one where there is none.
  Config inner(const std::string& name) const;
  // NULL where it is missing or null.
  const nlohmann::json* find(const std::string& name) const;

  // The setting is missing or has this value; else it is refused by name.
  void only_text(const std::string& name, const std::string& value) const;
  void only_flag(const std::string& name, bool value) const;
  // Unless `ok`, the status is this, after the source's name.
  void require(bool ok, const std::string& message, Code code = Code::invalid_data) const;

  const Status& status() const { return *status_; }
  bool ok() const { return status_->ok(); }

  Config with(const std::string& name, const nlohmann::json& value) const;

  std::string model_type;         // "?" where there is none
  std::vector<uint32_t> eos_ids;  // tokens that end a text

 private:
  uint32_t fail(const std::string& name, const std::string& must) const;
  std::string label(const std::string& name) const;

  std::shared_ptr<const nlohmann::json> settings_;
  Labels labels_;
  std::shared_ptr<Status> status_ = std::make_shared<Status>();
};

}  // namespace switchyard
