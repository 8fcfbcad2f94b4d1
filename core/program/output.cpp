// SPDX-License-Identifier: Apache-2.0
#include "core/program/output.h"

#include <filesystem>

#include "core/program/file_header.h"

namespace switchyard {

namespace {

// A pipe, a terminal or a device: there is nothing to lose in it, and no disk.
bool is_device(const std::string& output) {
  std::error_code ec;
  return std::filesystem::is_other(output, ec);
}

}  // namespace

Status check_program_output(Os& os, const std::string& output) {
  if (!os.exists(output)) return {};
  if (is_device(output)) return {};
  SWY_LET(const auto file, os.map(output));
  if (is_program_file(file->bytes())) return {};
  return error(Code::usage, "{} exists and is not a program file; remove it or write elsewhere", output);
}

Status check_space(Os& os, const std::string& output, uint64_t bytes) {
  if (is_device(output)) return {};
  std::error_code ec;  // the disk is that of the file which a link leads to
  const std::filesystem::path path = std::filesystem::is_symlink(output, ec)
                                         ? std::filesystem::weakly_canonical(output, ec)
                                         : std::filesystem::path(output);
  const std::string folder = path.parent_path().string();
  const auto free = os.free_bytes(folder.empty() ? "." : folder);
  if (free.ok() && *free < bytes) {
    return error(Code::io, "{} needs {:.1f} MiB, and its disk has {:.1f} MiB free; free some space or write elsewhere",
                 output, static_cast<double>(bytes) / 1048576, static_cast<double>(*free) / 1048576);
  }
  return {};
}

}  // namespace switchyard
