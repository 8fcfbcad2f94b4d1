// SPDX-License-Identifier: Apache-2.0
// MemoryNeed: the memory that a model takes of a device before its first step, so that too large a model is refused
// before anything is loaded, and the refusal says what would fit.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/saturate.h"
#include "core/base/status.h"

namespace switchyard {

struct MemoryNeed {
  std::string device;
  uint64_t free = 0;  // bytes; 0: the device does not say
  uint64_t weights = 0;
  uint64_t weights_i8 = 0, weights_i4 = 0;  // an estimate, if all weights that can be encoded had that encoding
  bool host = false;                        // the host's memory, where weights of a file can be mapped
  uint64_t slots = 0;                       // states of all sessions that do not grow
  uint64_t page = 0;                        // one page of every state that does
  uint32_t page_tokens = 0, pages = 0;
  uint32_t sessions = 1, context = 0;  // context: tokens that each session may have
  bool budgeted = false;               // a budget of the caller's limits the pages
  uint64_t steps = 0;                  // activations of the largest step
  uint32_t step_rows = 0;              // its rows

  uint64_t total() const { return saturating_add(saturating_add(weights, states()), steps); }
  uint64_t states() const { return saturating_add(slots, saturating_mul(page, pages)); }
};

// Errors: out_of_device_memory, with the memory needed and free, and the encoding, context, number of sessions or
// budget that would fit; or that the activations do not fit.
Status check_memory(const MemoryNeed& need);

}  // namespace switchyard
