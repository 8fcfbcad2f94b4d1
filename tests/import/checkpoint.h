// SPDX-License-Identifier: Apache-2.0
// Checkpoints to convert: copies of tests/data/tiny, changed or broken as a test wants.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/import/convert.h"
#include "core/program/program.h"
#include "tests/support/files.h"

namespace switchyard::testing {

struct RawTensor {
  std::string dtype;  // as in the file: "BF16", "F32"
  nlohmann::json shape;
  std::string bytes;
};
using RawTensors = std::map<std::string, RawTensor>;

// A safetensors file of these tensors, in the order of their names; shapes and sizes need not agree.
std::string safetensors(const RawTensors& tensors);

// A copy of one checkpoint in a folder of its own.
class TinyCheckpoint {
 public:
  explicit TinyCheckpoint(const std::string& name = "half-rotary");

  std::string path(const std::string& file = "") const { return folder_.path(file); }
  void write(const std::string& file, const std::string& bytes) const { folder_.write(file, bytes); }
  void remove(const std::string& file) const { std::filesystem::remove(path(file)); }

  nlohmann::json config() const;
  void set_config(const nlohmann::json& config) const { write("config.json", config.dump()); }
  RawTensors tensors() const;
  // Replaces all weights by one model.safetensors.
  void set_tensors(const RawTensors& tensors) const;

 private:
  TemporaryFolder folder_;
};

// Converts to `output`. A failure's message must be one line, of a length that a person reads.
Result<ConvertReport> convert_to(const std::string& source, const std::string& output, WeightEncoding encoding = {},
                                 Os& os = Os::real());

// The program that `checkpoint` becomes; a failure fails the test.
Program converted(const TinyCheckpoint& checkpoint, WeightEncoding encoding = {});

// A weight as fp32.
std::vector<float> weight_values(const Program& program, const std::string& name);

}  // namespace switchyard::testing
