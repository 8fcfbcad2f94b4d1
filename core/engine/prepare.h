// SPDX-License-Identifier: Apache-2.0
// Preparing: makes the lists of all steps that the batches of a model can need in advance, so that no request waits
// while a step is planned and recorded.
#pragma once

#include <vector>

#include "core/engine/model.h"
#include "core/sampling/sampler.h"

namespace switchyard {

// One step for each size that a batch can have, of up to `sessions` sequences, `chunk` rows and `context` tokens:
//
//   decoding       every number of sequences, at every context: the most frequent steps have lists of their own size
//   with a prompt  every number of rows up to the chunk, of one sequence and of all, at the whole context
//
// in the sizes of bucket_size. Smaller steps fit into one of these. The number of lists grows with the logarithms: 17
// sessions of 4,096 tokens have at most 53.
std::vector<StepCounts> batch_steps(uint32_t sessions, uint32_t chunk, uint32_t context);

// The steps with drafts of up to so many tokens, by powers of two, at the whole context.
std::vector<StepCounts> draft_steps(uint32_t sessions, uint32_t drafts, uint32_t context);

// Makes these lists for requests that are sampled like `sampling`, on the path that a batch chooses for them. Other
// lists (with most likely tokens or masks, say) are made when a step first needs them. Existing lists stay. For
// programs with several sessions: a single one is not kept waiting by another. With ModelOptions::drafts the steps with
// drafts, too. Errors: those of planning and of the devices; usage, for parameters out of range; cancelled, when
// `progress` says so.
Status prepare_steps(Model& model, const SamplingParams& sampling, const StepRunner::Progress& progress = {});
// The lists of decoding steps alone, with drafts and without: planning one takes as long as many steps of a fast model,
// which drafts would have to make good. Errors: as prepare_steps.
Status prepare_decoding(Model& model, const SamplingParams& sampling, const StepRunner::Progress& progress = {});

}  // namespace switchyard
