// SPDX-License-Identifier: Apache-2.0
// Ragged steps divided into parts: at most `size` neighbouring rows of one sequence, counted from its first row.
#pragma once

#include "device_code.cuh"

namespace gpu {

// Numbers of parts have gaps, so that a block finds its part without counting all earlier ones: sequence s has the
// numbers from part_number(its first row, s, size) on, and no two sequences share one, whatever their rows.
__host__ __device__ inline uint32_t part_number(uint32_t first_row, uint32_t seq, uint32_t size) {
  return first_row / size + seq;
}
inline uint32_t part_numbers(const swy_bucket& bucket, uint32_t size) { return bucket.rows / size + bucket.seqs; }

struct Part {
  uint32_t seq, first, rows;  // rows of the step; rows is 0 if there is no such part
  uint32_t total;             // rows of the sequence
  bool active;
};
// All lanes of a warp must call this.
__device__ inline Part part_of(const swy_step* step, uint32_t number, uint32_t size) {
  const uint32_t* start = step_array<uint32_t>(step, step->row_start_at);
  const uint32_t lane = threadIdx.x % 32, seqs = step->seqs;
  uint32_t begun = 0;  // sequences whose first number is at most this one
  for (uint32_t base = 0; base < seqs; base += 32) {
    const uint32_t s = base + lane;
    begun += __popc(__ballot_sync(kAll, s < seqs && part_number(start[s], s, size) <= number));
  }
  if (begun == 0) return {};
  const uint32_t seq = begun - 1, end = start[seq + 1];
  const uint32_t first = start[seq] + (number - part_number(start[seq], seq, size)) * size;
  return {seq, first, first < end ? min(size, end - first) : 0, end - start[seq],
          step_array<uint32_t>(step, step->seq_active_at)[seq] != 0};
}

}  // namespace gpu
