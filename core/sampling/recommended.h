// SPDX-License-Identifier: Apache-2.0
// The sampling settings that a model recommends, as its program's metadata has them.
#pragma once

#include <span>
#include <string_view>
#include <utility>

#include "core/sampling/sampler.h"

namespace switchyard {

// Sets the parameters that entries "sampling.NAME" of the metadata name; others, and values that are no numbers, change
// nothing. Whether they are in range is checked when a sampler is made of them.
void take_recommended(std::span<const std::pair<std::string_view, std::string_view>> metadata, SamplingParams& params);

}  // namespace switchyard
