// SPDX-License-Identifier: Apache-2.0
// CAUSAL_CONV: y [rows, channels] = silu of the causal convolution of x, and the state's last inputs.
#include "gated_delta.cuh"

namespace gpu {
namespace {

// Threads: channels; blockIdx.y: rows.
__global__ void convolve(const __grid_constant__ Delta d, const swy_step* step) {
  depend();
  release_next();
  const uint32_t c = blockIdx.x * blockDim.x + threadIdx.x, channels = d.channels(), taps = d.kernel;
  if (c >= channels) return;
  for (uint32_t row = blockIdx.y; row < step->rows; row += gridDim.y) {
    const Sequence s = sequence_of(step, step_array<uint32_t>(step, step->row_seq_at)[row]);
    const uint32_t i = row - s.first;
    float sum = 0;
    for (uint32_t t = 0; t < taps; ++t) {
      const uint32_t back = taps - 1 - t;  // rows before this one
      float x = 0;
      if (back <= i) {
        x = d.qkv[uint64_t{row - back} * channels + c];
      } else if (!s.fresh) {
        x = d.conv_state[(s.read * channels + c) * (taps - 1) + (taps - 1 + i - back)];
      }
      sum = fmaf(x, plain_at(d.conv, uint64_t{c} * taps + t), sum);
    }
    d.mixed[uint64_t{row} * channels + c] = silu(sum);
  }
}

// The last kernel - 1 inputs of each active sequence. Threads: channels; blockIdx.y: sequences.
__global__ void keep_inputs(const __grid_constant__ Delta d, const swy_step* step) {
  depend();
  release_next();
  const uint32_t c = blockIdx.x * blockDim.x + threadIdx.x, channels = d.channels(), keep = d.kernel - 1;
  if (c >= channels || blockIdx.y >= step->seqs) return;
  const Sequence s = sequence_of(step, blockIdx.y);
  if (!s.active) return;
  const float* from = d.conv_state + (s.read * channels + c) * keep;
  float* to = d.conv_state + (s.write * channels + c) * keep;
  for (uint32_t t = 0; t < keep; ++t) {  // ascending: with from == to nothing is read after it was written
    const uint32_t at = t + s.rows;      // among the old inputs and then the rows
    float x = 0;
    if (at >= keep) {
      x = d.qkv[uint64_t{s.first + at - keep} * channels + c];
    } else if (!s.fresh) {
      x = from[at];
    }
    to[t] = x;
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
  const uint32_t rows = r.bucket().rows, blocks = ceil_div(d.channels(), 256);
  SWY_CUDA_TRY(launch(r, convolve, dim3(blocks, rows < 16384 ? rows : 16384), 256, 0, d, r.list.step));
  return launch(r, keep_inputs, dim3(blocks, r.bucket().seqs), 256, 0, d, r.list.step);
}

std::span<const Kernel> causal_conv_kernels() { return kKernels; }

}  // namespace gpu
