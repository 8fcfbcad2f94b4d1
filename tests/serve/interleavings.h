// SPDX-License-Identifier: Apache-2.0
// Random requests that share beginnings, through a service with little memory, beside the same requests alone.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "tests/serve/fixture.h"

namespace switchyard {

class Interleavings {
 public:
  struct Totals {
    uint64_t hits = 0, set_asides = 0, cancelled = 0;
  };

  explicit Interleavings(uint32_t seed) : random_(seed), alone_(options()) {
    for (int i = 0; i < 6; ++i) segments_.push_back(random_ids(random_, 20 + random_() % 80, alone_.vocab()));
    ServiceOptions limits;
    limits.prompt_rows = 64;
    limits.events = 1 + random_() % 4;
    limits.checkpoint_tokens = 128;
    limits.cache_host_bytes = uint64_t{random_() % 3} << 22;
    service_ = serve(with_pages(options(), 8 + random_() % 4), limits);
  }

  // So many requests, of which up to five run or wait at a time.
  Totals run(uint32_t requests) {
    Totals totals;
    for (uint32_t n = 0; n < requests || !open_.empty();) {
      if (n < requests && open_.size() < 5 && random_() % 2 == 0) {
        begin();
        ++n;
      } else if (!open_.empty()) {
        look(random_() % open_.size(), totals);
      }
    }
    const ServiceStats s = service_->stats();
    totals.hits = s.cache_hits;
    totals.set_asides = s.set_asides;
    EXPECT_EQ(s.running + s.waiting + s.set_aside, 0u);
    return totals;
  }

 private:
  struct Open {
    GenerationRequest request;
    std::shared_ptr<Ticket> ticket;
    std::vector<int32_t> ids;
    size_t patience = 0;  // tokens until it is cancelled
  };

  static ModelOptions options() {
    ModelOptions o = options_for(3);
    o.checkpoints = 4;
    return o;
  }

  void begin() {
    Open open;
    std::vector<int32_t> prompt;
    if (!answered_.empty() && random_() % 3 == 0) prompt = answered_[random_() % answered_.size()];
    for (uint32_t i = 0; prompt.empty() || i < random_() % 3; ++i) {
      const auto& more = segments_[random_() % segments_.size()];
      if (prompt.size() + more.size() < 400) prompt.insert(prompt.end(), more.begin(), more.end());
    }
    SamplingParams params = random_params(random_, alone_.vocab());
    params.top_logprobs = 0;
    params.seed = random_() % 3;
    open.request = ask(std::move(prompt), 1 + random_() % 40, params);
    open.request.priority = static_cast<int32_t>(random_() % 2);
    open.request.cache = random_() % 8 != 0;
    if (random_() % 2 == 0) open.request.checkpoints = {static_cast<uint32_t>(random_() % 200), 64};
    open.patience = random_() % 6 == 0 ? random_() % 10 : SIZE_MAX;
    Admission admission = service_->submit(open.request);
    ASSERT_TRUE(admission.ok()) << admission.rejection.status.message();
    open.ticket = std::move(admission.ticket);
    open_.push_back(std::move(open));
  }

  // Takes what one request has drawn; at its end, compares it with what it draws alone.
  void look(size_t index, Totals& totals) {
    Open& o = open_[index];
    if (o.ids.size() >= o.patience) o.ticket->cancel();
    const auto event = o.ticket->wait(1'000'000);
    if (!event) return;
    if (event->id >= 0) o.ids.push_back(event->id);
    if (event->finish == nullptr) return;
    std::vector<int32_t> expected = alone_.ids(o.request);
    const bool cancelled = event->finish->reason == "cancelled";
    const bool slow = event->finish->reason == "slow";  // this loop did not read it, and others waited
    const bool cut = cancelled || slow;
    totals.cancelled += cancelled ? 1 : 0;
    if (cut) expected.resize(std::min(expected.size(), o.ids.size()));
    EXPECT_EQ(o.ids, expected) << event->finish->reason << ", " << event->finish->usage.cached_tokens << " cached, set "
                               << event->finish->usage.set_aside << " times aside";
    EXPECT_TRUE(slow || event->finish->status.ok()) << event->finish->status.message();
    std::vector<int32_t> whole = o.request.prompt;
    whole.insert(whole.end(), o.ids.begin(), o.ids.end());
    if (whole.size() < 350) answered_.push_back(std::move(whole));
    if (answered_.size() > 8) answered_.erase(answered_.begin());
    open_.erase(open_.begin() + static_cast<ptrdiff_t>(index));
  }

  std::mt19937 random_;
  Alone alone_;
  std::vector<std::vector<int32_t>> segments_, answered_;
  std::vector<Open> open_;
  std::unique_ptr<Service> service_;
};

}  // namespace switchyard
