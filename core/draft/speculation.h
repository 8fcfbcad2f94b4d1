// SPDX-License-Identifier: Apache-2.0
// Speculation: whether steps verify drafted tokens, and whose.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/base/status.h"

namespace switchyard {

enum class Speculation : uint8_t {
  off,
  automatic,  // n-grams, text that a constraint forces, and the layer where no step runs ahead; as many as pay
  ngram,      // n-grams alone, and always as many as are proposed
  mtp,        // the model's multi-token prediction layer alone, and always three
  model,      // as automatic, with a small model in place of the layer
};

// ModelOptions::drafts where speculation is on.
inline constexpr uint32_t kDefaultDrafts = 31;  // with the row before them a step of 32

const char* speculation_name(Speculation speculation);
// A name; or "model:" and the file of that model. Errors: usage, with the names there are.
Result<Speculation> parse_speculation(std::string_view text);
// The file of "model:FILE"; "" of others.
std::string_view draft_model_file(std::string_view text);

}  // namespace switchyard
