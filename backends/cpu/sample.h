// SPDX-License-Identifier: Apache-2.0
// Shared by SAMPLE, TOP_CANDIDATES and LM_HEAD_SAMPLE: the sampling rows of a step, and which members sample them.
#pragma once

#include "kernels.h"
#include "switchyard/sdk/row_sampler.hpp"

namespace cpu {

// The passes over rows for the instruction set in use.
const swy::RowKernels& sampling_passes();

// Sampling row i of the step: its parameters and input, and where its result goes.
struct SampleRow {
  uint32_t index;
  const swy_sample_slot& slot;
  const swy_sample_params& params;
  swy_sample_row_in in{};
  uint32_t* counts_out = nullptr;  // [vocab]

  // `logits` [logit rows, vocab].
  SampleRow(const swy::Call& call, uint32_t i, const float* logits, uint64_t vocab);

  // Writes the result, the token and the counts.
  void answer(const swy::Call& call, int32_t status, const swy_sample_row_out& out) const;

 private:
  void count(int32_t token) const;
};

// Bytes that draw_rows needs for up to `rows` rows, of which lists of `list` ids are wanted.
uint64_t draw_bytes(uint64_t rows, uint64_t vocab, uint64_t list);

// Calls each(sampler, leads, n) for every n below `rows`. Each row goes to one member; the remaining rows, when every
// member has equally many, go to the whole team one after another, if the vocabulary is large enough to pay for the
// barriers. One of the members that share a row leads. Collective; `memory` has draw_bytes.
template <class Each>
void draw_rows(const swy::Call& call, uint64_t rows, uint64_t vocab, uint64_t list, char* memory, const Each& each);

// How many of the rows go to one member each.
uint64_t rows_alone(uint64_t rows, uint64_t vocab, uint64_t list);

// SAMPLE for one row, from logits in memory.
void sample_row(const swy::Call& call, swy::RowSampler& sampler, bool leads, uint32_t i, const float* logits,
                uint64_t vocab);

template <class Each>
void draw_rows(const swy::Call& call, uint64_t rows, uint64_t vocab, uint64_t list, char* memory, const Each& each) {
  const auto ids = static_cast<uint32_t>(vocab);
  const uint64_t alone = rows_alone(rows, vocab, list);
  const auto [first, last] = call.split(alone);
  if (first < last) {
    swy::RowSampler sampler(ids, memory + call.rank() * swy_align64(swy::RowSampler::bytes(ids, 1)), swy::kAlone,
                            sampling_passes());
    for (uint64_t n = first; n < last; ++n) each(sampler, true, n);
  }
  if (alone == rows) return;
  if (alone > 0) call.barrier();
  swy::RowSampler sampler(ids, memory, *call.team, sampling_passes());
  for (uint64_t n = alone; n < rows; ++n) each(sampler, call.rank() == 0, n);
}

}  // namespace cpu
