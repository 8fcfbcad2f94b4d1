// SPDX-License-Identifier: Apache-2.0
// Whether a backend computes what another does: the distributions over the next token on the same text, and where
// greedy texts part.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/report.h"
#include "core/base/os.h"
#include "core/engine/diverge.h"
#include "core/engine/session.h"

namespace switchyard::bench {

// A model's answer to a text: the logits after each of `tokens` tokens, the first `prompt` of which are fed at once and
// the others one by one, f32 [tokens, vocab]; and its greedy continuation of the prompt. Errors: those of the session;
// cancelled, if it would take longer than `seconds`, estimated from the first tokens.
struct Saying {
  uint32_t tokens = 0, vocab = 0;
  std::vector<float> logits;
  std::vector<GreedyStep> greedy;  // `continued` tokens
};
Result<Saying> say(Model& model, std::span<const int32_t> text, uint32_t prompt, uint32_t continued, double seconds);

// To a file and back, for another process. Errors: io; invalid_data.
Status save(Os& os, const std::string& path, const Saying& saying);
Result<Saying> load_saying(Os& os, const std::string& path);

// KL(reference || model), mean and worst position, top-1 agreement, and the first greedy token that differs. `model`
// follows the reference's greedy text, token by token, from the same prompt. Errors: usage, for another vocabulary.
Result<Correctness> compare(Model& model, std::span<const int32_t> text, uint32_t prompt, const Saying& reference,
                            double seconds);

}  // namespace switchyard::bench
