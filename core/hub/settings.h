// SPDX-License-Identifier: Apache-2.0
// Where the hub is and where its files are kept, by the environment variables that other programs use for the same.
#pragma once

#include <string>

#include "core/base/os.h"

namespace switchyard::hub {

struct HubSettings {
  std::string endpoint;      // HF_ENDPOINT, without a slash at its end
  std::string cache;         // HF_HUB_CACHE, or "hub" in HF_HOME, or in ~/.cache/huggingface; "": no place is known
  std::string token;         // HF_TOKEN, or the file that `hf auth login` writes; "": none. Never printed.
  std::string token_source;  // "HF_TOKEN", or the file
  bool offline = false;      // HF_HUB_OFFLINE
  uint32_t attempts = 5;     // of each request, until some bytes arrive
  uint32_t stall_seconds = 30;
};

// Errors: usage, for an endpoint that is no http address, and for a token with characters that none has.
Result<HubSettings> read_hub_settings(Os& os);

// Where models are kept; "" where no place is known.
std::string hub_cache_folder();

}  // namespace switchyard::hub
