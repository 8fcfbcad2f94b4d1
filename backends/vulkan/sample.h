// SPDX-License-Identifier: Apache-2.0
// Sampling tokens from logits: shared by SAMPLE and LM_HEAD_SAMPLE.
#pragma once

#include "kernels.h"

namespace gpu {

// Samples for the operation's outputs and states from logits [logit rows, vocab].
swy_status record_draws(const Recording& r, Span logits, uint64_t vocab, Arena& arena);
uint64_t draws_bytes(const swy_op& op, uint64_t vocab);  // its workspace
swy_status supports_draws(const swy_device& device, const swy_op& op, uint64_t vocab, swy_error* error);

}  // namespace gpu
