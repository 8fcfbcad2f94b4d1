// SPDX-License-Identifier: Apache-2.0
// ServiceStats: what a service has done since it was created, and what it does now.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "core/draft/draft_counts.h"

namespace switchyard {

// Counts of durations in buckets, as Prometheus has them: counts[i] are those up to bounds()[i] seconds that are above
// the bucket before; the last count is of all larger ones.
struct Histogram {
  static std::span<const double> bounds() {
    static constexpr std::array<double, kBounds> all = {.0001, .0002, .0005, .001, .002, .005, .01, .02, .04,
                                                        .06,   .08,   .1,    .25,  .5,   .75,  1,   2.5, 5,
                                                        7.5,   10,    20,    40,   80,   160,  320, 640, 2560};
    return all;
  }
  void add(uint64_t ns) {
    const double seconds = static_cast<double>(ns) / 1e9;
    const auto all = bounds();
    ++counts[static_cast<size_t>(std::lower_bound(all.begin(), all.end(), seconds) - all.begin())];
    sum_seconds += seconds;
    ++count;
  }

  static constexpr size_t kBounds = 27;
  std::array<uint64_t, kBounds + 1> counts{};
  double sum_seconds = 0;
  uint64_t count = 0;
};

struct ServiceStats {
  // Now.
  uint32_t waiting = 0, running = 0, paused = 0, set_aside = 0;  // requests
  uint64_t waiting_tokens = 0;                                   // of the prompts that wait
  uint32_t pages = 0, pages_used = 0, page_tokens = 0;           // of the cache of keys and values
  uint32_t slots = 0, slots_used = 0;                            // of the other states
  uint64_t cached_tokens = 0, cached_bytes = 0, cached_host_bytes = 0;
  uint32_t checkpoints = 0;  // states that the prefix cache keeps
  uint32_t step_sizes = 0;   // sizes of steps that are planned and recorded
  bool draining = false;
  // Since the service was created.
  uint64_t submitted = 0, steps = 0, set_asides = 0;
  uint64_t step_sizes_recorded = 0;          // how often a size was planned and recorded
  std::map<std::string, uint64_t> refused;   // by why: "invalid", "too_long", "queue_full", "draining"
  std::map<std::string, uint64_t> finished;  // by Finish::reason
  uint64_t prompt_tokens = 0, generated_tokens = 0, computed_prompt_tokens = 0;
  DraftCounts drafts;                                  // of requests that ended
  uint64_t cache_queries = 0, cache_hits = 0;          // prompts that were looked up, and those that had a beginning
  uint64_t cache_hit_tokens = 0, cache_evictions = 0;  // tokens that were not computed again; checkpoints given up
  uint64_t last_step_ns = 0;                           // by Os::now_ns: when the last step ended
  Histogram first_token, between_tokens, whole, queued, prompt, draw;
};

}  // namespace switchyard
