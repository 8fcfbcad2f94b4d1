// SPDX-License-Identifier: Apache-2.0
// When the launches of lists ran (swy.profile/1).
#pragma once

#include "clock.h"
#include "switchyard/sdk/spans.hpp"

namespace gpu {

// While timestamps are on, a list is waited for when it is submitted, and its spans are kept.
struct Profile {
  explicit Profile(const Features& f) : clock(f.timestamp_bits, f.tick_ns) {}

  RisingTicks clock;
  VkQueryPool now = VK_NULL_HANDLE;  // one timestamp, of read_clocks
  swy::Spans spans;
};

extern const swy_profile kProfile;

// The name of a launch: the kernel's for the first launch of an operation; for others the shader's word is added.
const char* span_name(swy_device& device, const char* kernel, const char* shader, bool first);
// Makes room for the timestamps of a list.
swy_status make_queries(swy_list& list, swy_error* error);
// Keeps the spans of a list that was just submitted, once it is done.
swy_status keep_spans(swy_list& list, swy_error* error);

}  // namespace gpu
