// SPDX-License-Identifier: Apache-2.0
// Shared by the shaders of MOE: one mixture's operands. A "slot" of a row is one of its chosen experts; slot top_k is
// the shared expert. Weights of experts are [experts, rows, width], the shared expert's [rows, width].
layout(constant_id = 0) const uint kForm = F32;        // of the experts' weight
layout(constant_id = 1) const uint kSharedForm = F32;  // of the shared expert's
layout(constant_id = 2) const uint kFlags = 0;
const bool kShared = (kFlags & 1) != 0;    // there is a shared expert
const bool kResidual = (kFlags & 2) != 0;  // (down)
const bool kChoose = (kFlags & 4) != 0;    // the choice is made here, from logits (gate and up)
const bool kClamped = (kFlags & 8) != 0;   // (gate and up)
const uint kBiasType = kFlags >> 8 & 15;   // of the experts' biases; 0: there are none

// Element i of an expert's bias, which has `width` elements.
float bias_of(uint64_t biases, uint64_t expert, uint width, uint i) {
  return plain_at(biases + expert * width * (kBiasType == F32 ? 4 : 2), kBiasType, i);
}

bool uses(uint dtype) { return (kForm & 0xff) == dtype || (kShared && (kSharedForm & 0xff) == dtype); }
