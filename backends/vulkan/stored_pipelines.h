// Compiled pipelines in a file, from one process to the next: a driver takes seconds for all of them.
//
// The file lies in $XDG_CACHE_HOME/switchyard/vulkan, or the same under ~/.cache, one for each device, driver and
// version of the plugin. It is written whole or not at all. One that is damaged, foreign or not there, and a folder
// that cannot be written, cost the time that it would have saved and nothing else.
#pragma once

#include <vector>

#include "api.h"

namespace gpu {

class StoredPipelines {
 public:
  // Of a device. May throw bad_alloc.
  void open(const PhysicalDevice& device, const char* plugin_version);
  // What was stored, as vkCreatePipelineCache takes it; empty: nothing. May throw bad_alloc.
  std::vector<char> load();
  // Stores what vkGetPipelineCacheData gave, if it is not what was loaded.
  void store(const void* data, size_t bytes) noexcept;

 private:
  // What a file begins with.
  struct Header {
    char magic[8];
    char plugin_version[32];
    DriverIdentity driver;
    uint32_t reserved;
    uint64_t bytes, hash;  // of the data behind it
  };
  static_assert(sizeof(Header) == 112);  // no padding: it is compared as bytes

  Header expected_{};          // but for bytes and hash
  std::string folder_, file_;  // empty: there is no place for it
  uint64_t loaded_bytes_ = 0, loaded_hash_ = 0;
};

}  // namespace gpu
