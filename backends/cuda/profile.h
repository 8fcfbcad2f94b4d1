// When the launches of lists ran (swy.profile/1).
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "switchyard/extensions.h"

struct swy_list;

namespace gpu {

// While timestamps are on, a small kernel behind each launch notes the time, so that no kernel begins before the one in
// front has ended; a list is waited for when it is submitted, and its spans are kept.
struct Profile {
  bool on = false;
  uint64_t* tick = nullptr;  // one, in the device's memory
  std::mutex mutex;          // over names: two lists may be recorded at once
  std::set<std::string> names;
  std::vector<swy_profile_span> spans;
  uint64_t lost = 0;
};

extern const swy_profile kProfile;

constexpr uint32_t kMostTicks = 8192;  // of a list; launches beyond leave no spans

// Begins a list: with timestamps if they are on.
swy_status begin_spans(swy_list& list, swy_error* error);
// A launch was recorded. `function`: the host's address of its kernel, which names those after an operation's first.
swy_status note_launch(swy_list& list, const void* function, swy_error* error);
// Keeps the spans of a list that was just submitted, once it is done.
swy_status keep_spans(swy_list& list, swy_error* error);

}  // namespace gpu
