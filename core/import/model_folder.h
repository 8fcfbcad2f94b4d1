// SPDX-License-Identifier: Apache-2.0
// Program files that were made of models in other formats, kept so that each is converted once.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/base/cancel.h"
#include "core/import/convert.h"
#include "core/import/gguf.h"

namespace switchyard {

// The key of a program's metadata that has ConvertOptions::origin.
constexpr const char* kOriginKey = "origin";

// $SWITCHYARD_MODELS, or $XDG_CACHE_HOME/switchyard/models, or the same under ~/.cache; "" when there is no absolute
// path to it.
std::string default_model_folder();

// The name of the program file for a GGUF file: its own, and a hash of its description and of the beginning of every
// tensor, so that a file that changes gets another.
std::string program_name(const std::string& path, const GgufFile& file);
// The same for a model that `key` describes: its files' hashes, say.
std::string program_name(const std::string& name, const std::string& key);

// The program file `options.output`, made now unless it is there. Processes that want the same file at the same time
// make it once: the others wait, after `waits` was called. Errors: those of convert; cancelled.
Result<ConvertReport> convert_once(Os& os, const ConvertOptions& options, const CancelCheck& cancelled,
                                   const std::function<void()>& waits);

// A program file of a folder.
struct KeptProgram {
  std::string path, origin;
  uint64_t bytes = 0;
};
// Those that can be read, by name.
std::vector<KeptProgram> kept_programs(Os& os, const std::string& folder);

}  // namespace switchyard
