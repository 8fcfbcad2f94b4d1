// SPDX-License-Identifier: Apache-2.0
// Compiled pipelines in a file, from one process to the next: a driver takes seconds to compile all of them.
//
// The file is in $XDG_CACHE_HOME/switchyard/vulkan, or under ~/.cache, one for each device, driver and version of the
// plugin. It is written whole or not at all. If it is damaged, foreign or missing, or the folder cannot be written,
// only time is lost.
#pragma once

#include <vector>

#include "api.h"

namespace gpu {

class StoredPipelines {
 public:
  // Of a device. May throw bad_alloc.
  void open(const PhysicalDevice& device, const char* plugin_version);
  // The stored data, for vkCreatePipelineCache; empty if there is none. May throw bad_alloc.
  std::vector<char> load();
  // Stores the data of vkGetPipelineCacheData, if it is not the data that was loaded.
  void store(const void* data, size_t bytes) noexcept;

 private:
  // The header of a file.
  struct Header {
    char magic[8];
    char plugin_version[32];
    DriverIdentity driver;
    uint32_t reserved;
    uint64_t bytes, hash;  // of the data that follows
  };
  static_assert(sizeof(Header) == 112);  // no padding: it is compared as bytes

  Header expected_{};          // but for bytes and hash
  std::string folder_, file_;  // empty: there is no folder for it
  uint64_t loaded_bytes_ = 0, loaded_hash_ = 0;
};

}  // namespace gpu
