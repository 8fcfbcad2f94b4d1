// SPDX-License-Identifier: Apache-2.0
// --trace: a timeline of what a command runs.
#pragma once

#include <memory>
#include <string>

#include "bench/trace_file.h"
#include "cli/settings.h"
#include "core/base/status.h"
#include "core/generate/loaded_model.h"

namespace switchyard::cli {

void add_trace(CLI::App& command, std::string& path);

class RunTrace {
 public:
  // Starts tracing. None if `path` is empty. Errors: usage, for a path that cannot be written to, before anything is
  // done; those of the devices.
  static Result<std::unique_ptr<RunTrace>> start(const LoadedModel& loaded, const Settings& settings,
                                                 const std::string& path);
  // Writes the file, even after the failure `ran`, and says so on stderr; the result is still `ran`.
  static Status finish(std::unique_ptr<RunTrace> trace, Status ran);

 private:
  RunTrace(const LoadedModel& loaded, std::string path);
  Status write();

  std::string path_;
  std::unique_ptr<OutputFile> output_;
  bench::TraceFile file_;
  std::unique_ptr<Profile> profile_;
};

}  // namespace switchyard::cli
