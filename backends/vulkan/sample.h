// Drawing tokens from logits: what SAMPLE and LM_HEAD_SAMPLE share.
#pragma once

#include "kernels.h"

namespace gpu {

// Draws by the operation's outputs and states from logits [logit rows, vocab].
swy_status record_draws(const Recording& r, Span logits, uint64_t vocab, Arena& arena);
uint64_t draws_bytes(const swy_op& op, uint64_t vocab);  // what it takes of the workspace
swy_status supports_draws(const swy_device& device, const swy_op& op, uint64_t vocab, swy_error* error);

}  // namespace gpu
