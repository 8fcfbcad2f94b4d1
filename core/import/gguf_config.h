// SPDX-License-Identifier: Apache-2.0
// The configuration of the model in a GGUF file, by the names of config.json.
#pragma once

#include "core/import/gguf.h"
#include "core/models/registry.h"

namespace switchyard {

struct GgufConfig {
  const Family* family;
  Config config;
};

// Errors: unsupported, naming the architecture; invalid_data, naming a value of the metadata that is missing or out of
// range. Settings that only the family reads are looked at when it is built.
Result<GgufConfig> gguf_config(const GgufFile& file);

}  // namespace switchyard
