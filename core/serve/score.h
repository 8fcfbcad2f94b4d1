// SPDX-License-Identifier: Apache-2.0
// How likely a model holds a given text to be. Nothing is drawn.
#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "core/serve/service.h"

namespace switchyard {

struct TokenScore {
  float logprob = 0;                                // ln of its probability, given the tokens before it
  std::vector<std::pair<int32_t, float>> top = {};  // the most likely tokens in its place
};

// Of each token from the second on, with the `top` most likely ones. The service computes the text in small parts
// between the steps of its requests; it takes one of its sessions meanwhile. Where memory for states runs out, the
// prefix cache makes room. `goes_on` is asked before each part, on the caller's thread. To be called by a thread that
// may wait. Errors: usage, for a token id out of range, or a text that does not fit into the context; those of the
// devices (out_of_device_memory: every session is in use); cancelled, when the service has stopped, or after `goes_on`
// said no.
Result<std::vector<TokenScore>> score_text(Service& service, std::span<const int32_t> ids, uint32_t top,
                                           const std::function<bool()>& goes_on = {});

}  // namespace switchyard
