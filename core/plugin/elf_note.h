// SPDX-License-Identifier: Apache-2.0
// Reads a plugin file's own description without running any of its code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/base/status.h"

namespace switchyard {

struct PluginNote {
  uint32_t abi_min = 0, abi_max = 0;
  std::string id;
  std::string version;
  std::string cpu;  // features that the code needs: "avx2 fma"
};

// `file` holds the whole file, untrusted. Errors: invalid_data: not ELF, for another processor, not a shared library,
// truncated, or without a Switchyard note.
Result<PluginNote> read_plugin_note(std::span<const std::byte> file);

// Whether the host can use a plugin with this description. Errors: invalid_data (an invalid id or ABI range);
// unsupported (another ABI, or a processor feature that is not in `cpu_features`).
Status check_plugin_note(const PluginNote& note, const std::string& cpu_features);

// [a-z][a-z0-9_-]*, at most 31 bytes.
bool is_plugin_id(const std::string& id);

// The first feature of `needed` (separated by blanks) that is not in `available`; "" when all are there.
std::string missing_cpu_feature(const std::string& needed, const std::string& available);

}  // namespace switchyard
