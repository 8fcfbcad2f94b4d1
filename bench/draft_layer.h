// SPDX-License-Identifier: Apache-2.0
// What a model's multi-token prediction layer costs and saves.
#pragma once

#include <string>

#include "core/plugin/registry.h"

namespace switchyard {

struct LayerBench {
  std::string model, backend;
  std::string text;    // file; "": the guesses are forced, for models with random weights
  std::string texts;   // only rows whose name has this part
  uint32_t pairs = 0;  // of texts; 0: by the model
  bool where = false;  // also where the time of each row of texts went
};

// Prints what steps of the layer take, and pairs of texts. With a text each prompt is a part of it, the drafts are the
// layer's own, and the texts without drafts come from a model that was loaded without the layer.
Status print_layer(Registry& registry, Host& host, const LayerBench& bench);

}  // namespace switchyard
