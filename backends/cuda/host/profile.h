// SPDX-License-Identifier: Apache-2.0
// When the launches of lists ran (swy.profile/1).
#pragma once

#include "switchyard/sdk/spans.hpp"

struct swy_list;

namespace gpu {

// While timestamps are on, a small kernel after each launch stores the time, so no kernel begins before the previous
// one has ended. A list is waited for when it is submitted, and its spans are kept.
struct Profile {
  uint64_t* tick = nullptr;  // one, in the device's memory
  swy::Spans spans;
};

extern const swy_profile kProfile;

constexpr uint32_t kMostTicks = 8192;  // of a list; launches beyond leave no spans

// Begins a list, with timestamps if they are on.
swy_status begin_spans(swy_list& list, swy_error* error);
// Notes that a launch was recorded. `function`: the host's address of its kernel; it names the launches after an
// operation's first.
swy_status note_launch(swy_list& list, const void* function, swy_error* error);
// Keeps the spans of the list that was just submitted, once it is done.
swy_status keep_spans(swy_list& list, swy_error* error);

// For which compute capability (90 for 9.0) the code is that the driver has loaded.
swy_status code_of_kernels(int* capability, swy_error* error);

}  // namespace gpu
