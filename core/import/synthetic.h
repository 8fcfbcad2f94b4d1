// SPDX-License-Identifier: Apache-2.0
// Synthetic models: the shapes of a real configuration with random weights, so that speed can be measured at full size
// without a download.
//
// Weights are tame: every product keeps the scale of its input, states decay, and the router spreads rows over the
// experts. No two tensors are alike. The same request gives the same bytes, whatever the number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/os.h"
#include "core/base/status.h"
#include "core/models/source.h"
#include "core/program/program.h"

namespace switchyard {

struct SyntheticRequest {
  std::string config;   // the name of a published one (core/models/published.h), or the path of a config.json
  uint32_t layers = 0;  // 0: the configuration's
  uint32_t vocab = 0;
  bool mtp = false;        // with a multi-token prediction layer, where the family has them
  uint32_t shortlist = 0;  // tokens that the layer guesses from; 0: all
  uint64_t seed = 1;
  WeightEncoding encoding{SWY_I4, 32};
  // Text of a tokenizer that every vocabulary at least as large carries; "" for none.
  std::string tokenizer_json;
  std::string chat_template;
  uint32_t tokenizer_vocab = 0;
  std::vector<uint32_t> eos_ids;
};

// "CONFIG[,layers=N][,vocab=N][,mtp=1][,shortlist=N][,seed=S][,quant=Q][,group=G]", the text after "synth:". Errors:
// usage, naming the part.
Result<SyntheticRequest> parse_synthetic(const std::string& text);

// A program whose weights are made when they are first read. Errors: those of the configuration.
Result<Program> synthetic_program(Os& os, const SyntheticRequest& request, uint32_t threads);

// Writes it to a file. Returns the file's size. `progress` as in ConvertOptions.
Result<uint64_t> write_synthetic(Os& os, const SyntheticRequest& request, const std::string& output, uint32_t threads,
                                 const std::function<bool(uint64_t done, uint64_t total)>& progress);

}  // namespace switchyard
