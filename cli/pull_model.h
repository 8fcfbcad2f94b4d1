// SPDX-License-Identifier: Apache-2.0
// Fetching a model of the hub, with what a person wants to know before and meanwhile.
#pragma once

#include <cstdint>
#include <string>

#include "core/hub/cache.h"
#include "core/hub/settings.h"

namespace switchyard::cli {

struct PullLimits {
  uint32_t attempts = 5;
  uint32_t stall_seconds = 30;
  bool any_family = false;  // also models that cannot be converted
};

struct PulledModel {
  hub::CachedModel model;
  uint64_t fetched_bytes = 0;
  double seconds = 0;
};

// The newest revision of a model, into the folder that programs which use the hub share. Files that are there are not
// fetched again. Errors: usage, where no folder is known; not_found, in offline mode, for a model that is not here;
// unsupported, for a model of no known family; io, where the disk has too little room; those of hub::pull_files.
Result<PulledModel> pull_model(const hub::ModelName& name, const PullLimits& limits);

// "21.0 GiB"
std::string size_text(uint64_t bytes);

}  // namespace switchyard::cli
