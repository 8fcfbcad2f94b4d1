// SPDX-License-Identifier: Apache-2.0
// What share of a drafter's guesses is kept, by their place: texts that go on from parts of a file, at several
// temperatures, with guesses that are drawn with the sequence's noise and with the most likely ones.
#pragma once

#include <string>

#include "core/generate/loaded_model.h"

namespace switchyard {

struct AcceptanceOptions {
  std::string drafter;  // as --speculate has it: ngram, mtp, model:FILE
  std::string text;     // file
  uint32_t drafts = 4;  // a step
  uint32_t prompts = 32, prompt_tokens = 64, tokens = 64;
  uint32_t ngram_tokens = 400;  // of texts for n-grams: it takes a while until a text repeats itself
};

// Prints a table. `m` has one session, and drafts; a drafter that is a model is added to it. Errors: usage, for a text
// that is too short; those of the model.
Status print_acceptance(LoadedModel& m, const std::string& backend, const ModelOptions& model_options,
                        const AcceptanceOptions& options);

}  // namespace switchyard
