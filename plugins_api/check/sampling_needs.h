// SPDX-License-Identifier: Apache-2.0
// Which parts of the sampler a case needs.
#pragma once

#include "plugins_api/check/case.h"

namespace switchyard::check {

// The SWY_SAMPLES_* flags that its steps need.
uint32_t sampling_needs(const Case& c);

}  // namespace switchyard::check
