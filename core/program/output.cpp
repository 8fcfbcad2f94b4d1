// SPDX-License-Identifier: Apache-2.0
#include "core/program/output.h"

#include <filesystem>

#include "core/program/file_header.h"

namespace switchyard {

Status check_program_output(Os& os, const std::string& output) {
  if (!os.exists(output)) return {};
  SWY_LET(const auto file, os.map(output));
  if (is_program_file(file->bytes())) return {};
  return error(Code::usage, "{} exists and is not a program file; remove it or write elsewhere", output);
}

Status check_space(Os& os, const std::string& output, uint64_t bytes) {
  const std::string folder = std::filesystem::path(output).parent_path().string();
  const auto free = os.free_bytes(folder.empty() ? "." : folder);
  if (free.ok() && *free < bytes) {
    return error(Code::io, "{} needs {:.1f} MiB, and its disk has {:.1f} MiB free; free some space or write elsewhere",
                 output, static_cast<double>(bytes) / 1048576, static_cast<double>(*free) / 1048576);
  }
  return {};
}

}  // namespace switchyard
