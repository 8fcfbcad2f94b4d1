// SPDX-License-Identifier: Apache-2.0
// CAUSAL_CONV: y [rows, channels] = silu of the causal convolution of x, and the state's last inputs.
#include "gated_delta.cuh"

namespace gpu {
namespace {

// Threads: channels; blockIdx.y: rows.
template <bool kPends>
__global__ void convolve(const __grid_constant__ Delta d, const swy_step* step) {
  depend();
  release_next();
  const uint32_t c = blockIdx.x * blockDim.x + threadIdx.x, channels = d.channels(), taps = d.kernel;
  if (c >= channels) return;
  for (uint32_t n = blockIdx.y; n < run_rows<kPends>(d, step); n += gridDim.y) {
    const RunRow row = run_row<kPends>(d, step, n);
    if (!row.there) continue;
    float sum = 0;
    for (uint32_t t = 0; t < taps; ++t) {
      const uint32_t back = taps - 1 - t;  // rows before this one
      const float x = input_of<kPends>(d, row.run, static_cast<int>(row.nth - back), c);
      sum = fmaf(x, plain_at(d.conv, uint64_t{c} * taps + t), sum);
    }
    d.mixed[uint64_t{row.place} * channels + c] = silu(sum);
  }
}

// The last kernel - 1 inputs of each active sequence. Threads: channels; blockIdx.y: sequences.
template <bool kPends>
__global__ void keep_inputs(const __grid_constant__ Delta d, const swy_step* step) {
  depend();
  release_next();
  const uint32_t c = blockIdx.x * blockDim.x + threadIdx.x, channels = d.channels(), keep = d.kernel - 1;
  if (c >= channels || blockIdx.y >= step->seqs) return;
  const Run s = run_of<kPends>(step, blockIdx.y);
  if (!s.active) return;
  float* to = d.conv_state + (s.write * channels + c) * keep;
  for (uint32_t t = 0; t < keep; ++t) {  // ascending: where the slots are one nothing is read after it was written
    to[t] = input_of<kPends>(d, s, static_cast<int>(t + s.applied() - keep), c);
  }
}

swy_status record_conv(const Recording& r) {
  Delta d = delta_of(r);
  d.qkv = r.operands.input("x");
  d.mixed = r.operands.output("y");
  return record_convolution(r, d);
}

double cost_conv(const swy_device& device, const swy_op& op, const swy_bucket&) {
  return cost_of(device, row_bytes(op), 0, 2);
}

constexpr Kernel kKernels[] = {
    {"causal_conv.plain", SWY_OP_CAUSAL_CONV, kInvariant, SWY_F32, nullptr, cost_conv, nullptr, record_conv}};

}  // namespace

swy_status record_convolution(const Recording& r, const Delta& d) {
  const bool pends = d.pending != nullptr;
  const uint32_t rows = r.bucket().rows + r.bucket().seqs * d.pending_rows, blocks = ceil_div(d.channels(), 256);
  SWY_CUDA_TRY(launch(r, pends ? convolve<true> : convolve<false>, dim3(blocks, rows < 16384 ? rows : 16384), 256, 0, d,
                      r.list.step));
  return record_kept_inputs(r, d);
}

swy_status record_kept_inputs(const Recording& r, const Delta& d) {
  return launch(r, d.pending != nullptr ? keep_inputs<true> : keep_inputs<false>,
                dim3(ceil_div(d.channels(), 256), r.bucket().seqs), 256, 0, d, r.list.step);
}

std::span<const Kernel> causal_conv_kernels() { return kKernels; }

}  // namespace gpu
