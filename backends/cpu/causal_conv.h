// SPDX-License-Identifier: Apache-2.0
// The causal convolution over a sequence's rows, for CAUSAL_CONV and GATED_DELTA: a block of channels at a time.
#pragma once

#include <span>

#include "kernels.h"

namespace cpu {

using CausalConv = swy::Operands<SWY_OP_CAUSAL_CONV>;
using GatedDelta = swy::Operands<SWY_OP_GATED_DELTA>;
// What both read at the same places.
using Convolved = swy::Operands<SWY_OP_CAUSAL_CONV, SWY_OP_GATED_DELTA>;
inline constexpr uint32_t kConv = Convolved::weight("conv"), kConvState = Convolved::state("conv_state");
inline constexpr uint32_t kChannels = CausalConv::input("x");
static_assert(kChannels == GatedDelta::input("qkv"));

// Neighbouring channels of a block: where they begin in the operation's channels and in the block's columns.
struct ConvPiece {
  uint64_t channel, column, width;
};

// The rows [first, last) of one sequence, with the slots of its states. Rows of an earlier step that stand come before
// its own: together they are its run.
struct SequenceRows {
  uint32_t first, last;
  uint32_t read_slot, write_slot;
  bool active;  // otherwise the states do not change
  bool fresh;   // the states are zeros
  // GATED_DELTA r2: rows that stand, and where; whether its own stay pending, and where; elements of such a row.
  uint32_t kept = 0;
  bool pending = false;
  const float* stands = nullptr;
  float* stays = nullptr;
  uint64_t stride = 0;
  SequenceRows(const swy_step* step, uint32_t seq);

  uint64_t own() const { return last - first; }
  uint64_t run() const { return kept + own(); }
  // The states get so many rows of the run.
  uint64_t applied() const { return !active ? 0 : pending ? kept : run(); }
  // The row of the step that is row i of the run, of those that are its own.
  uint64_t step_row(uint64_t i) const { return first + i - kept; }
};

// One member's memory for a block of `columns` channels.
struct ConvScratch {
  uint64_t stride;     // of taps and history
  const float** rows;  // [kernel]: where a token's convolution reads
  float* history;      // [kernel - 1, stride]: the inputs before the first token
  float* taps;         // [kernel, stride]
  ConvScratch(Arena& arena, uint32_t kernel, uint64_t stride_);
};

// A block of channels of one sequence. Input 0, weight 0 and state 0 of the operation are those of CAUSAL_CONV.
struct ConvBlock {
  const ConvScratch& scratch;
  std::span<const ConvPiece> pieces;
  uint64_t channels;  // of the operation
  SequenceRows seq;

  void read_taps(const swy::Call& call) const;
  void read_state(const swy::Call& call) const;   // the inputs before the first row
  void write_state(const swy::Call& call) const;  // the last inputs, once the block's rows are done
  // An input of the run as the convolution counts them: input i + kernel - 1 is row i of the run.
  const float* row(const swy::Call& call, const ConvPiece& piece, uint64_t i) const;
};

}  // namespace cpu
