// SPDX-License-Identifier: Apache-2.0
// What the name of a model means: a model file, a GGUF file, or a model of the hub, which is fetched if it is not here.
#pragma once

#include <optional>
#include <string>

#include "cli/settings.h"
#include "core/base/status.h"
#include "core/hub/cache.h"
#include "core/models/source.h"

namespace switchyard::cli {

// A model on this machine.
struct ModelSource {
  enum class Kind { program, gguf, checkpoint };
  Kind kind = Kind::program;
  std::string path;                             // of the file, or of the checkpoint's folder
  std::string origin;                           // "OWNER/NAME:Q4_K_M" of a model of the hub; else ""
  std::string key;                              // of a checkpoint of the hub: what its files are
  std::optional<WeightEncoding> encoding = {};  // to convert to; none: as it is
};

// The file or folder that --model names; without it, the demo model.
std::string model_path(const Settings& settings);
// Errors: usage, for a folder or a checkpoint, with what to do instead; invalid_data, for a .gguf file that is none.
Status check_model_path(const std::string& path);

// Fetches what --model names if it is a model of the hub that is not here. Errors: those of `pull_model`; usage.
Result<ModelSource> find_model(const Settings& settings);
Result<ModelSource> source_of(const hub::CachedModel& model);

// The program file of a model: made now, with progress, unless an earlier command has made it. Errors: those of
// `convert`; usage, where no folder for it is known.
Result<std::string> program_of(const ModelSource& source, const Settings& settings);

}  // namespace switchyard::cli
