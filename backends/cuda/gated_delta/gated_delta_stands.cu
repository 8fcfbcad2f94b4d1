// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA for prompts with pending rows: those that stand, before the step's own.
//
// The write slots get the states with what stands, and the kernels after this one go on from there. They write the
// convolution's inputs and the pending rows, which this one reads.
#include "gated_delta_chunks.cuh"
#include "gated_delta_columns.cuh"

namespace gpu {
namespace {

// blockIdx.x: key head * blocks of one + block; blockIdx.y: sequence. N: groups of 32 keys.
template <int N, bool kI16>
__global__ void __launch_bounds__(kColumnThreads, 2)
    apply_stands(const __grid_constant__ Delta d, uint32_t slices, const swy_step* step) {
  using Held = ColumnRows<N, kRowsAtOnce>;
  __shared__ __align__(16) Held m;
  const ColumnPlace place(d, slices);
  release_next();
  const Run s = blockIdx.y < step->seqs ? run_of<true>(step, blockIdx.y) : Run{};
  if (s.active && (s.kept > 0 || (s.pends && s.moves()))) {
    Columns<N, kI16> own(d, s, true, place);
    own.take_state();
    own.apply_standing(d, s, place.head, gate_weights(d, place.head), m);
    own.store(d, s, place);
  }
  depend();  // what was read here is that of earlier steps, and what was written is read by later kernels
}

template <int N>
auto kernel_of(const Delta& d) {
  return d.states.i16 ? apply_stands<N, true> : apply_stands<N, false>;
}

}  // namespace

swy_status record_stands(const Recording& r, const Delta& d) {
  const uint32_t slices = ceil_div(d.value_dim, kColumns);
  const auto kernel = d.key_dim <= 32 ? kernel_of<1>(d) : d.key_dim <= 64 ? kernel_of<2>(d) : kernel_of<4>(d);
  return launch(r, kernel, dim3(d.value_heads * slices, r.bucket().seqs), kColumnThreads, 0, d, slices, r.list.step);
}

}  // namespace gpu
