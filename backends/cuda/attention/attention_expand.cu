// SPDX-License-Identifier: Apache-2.0
// Keys and values in 8 bits for the kernels of prompts, whose products read bf16 from the pages: `expand` writes what
// the step's sequences read to pages in the workspace, which have the pool's numbers. So the page tables stay as they
// are, and prompts that begin alike share these pages, too.
#include "attention_prompt.cuh"

namespace gpu {
namespace {

constexpr uint32_t kThreads = 256, kAhead = 4;  // units of 16 elements that a thread requests together

// blockIdx.x: a share of the positions; blockIdx.y: KV head, key or value; blockIdx.z: sequence.
template <uint32_t kDim>
__global__ void __launch_bounds__(kThreads) expand(const __grid_constant__ Attention a, const swy_step* step) {
  constexpr uint32_t kUnits = kDim / 16;
  const uint32_t seq = blockIdx.z, size = step->page_size, stride = gridDim.x * kThreads;
  release_next();
  if (seq >= step->seqs || step_array<uint32_t>(step, step->seq_active_at)[seq] == 0) return depend();
  const uint32_t* start = step_array<uint32_t>(step, step->row_start_at) + seq;
  const uint32_t* position = step_array<uint32_t>(step, step->row_position_at);
  const uint32_t* table = table_of(step, seq);
  depend();
  if (start[0] == start[1]) return;
  const uint32_t first = first_read(a, position[start[0]] + 1), count = position[start[1] - 1] + 1 - first;
  const uint32_t in_page = blockIdx.y * size;  // the first row of this KV head's keys or values
  for (uint32_t at = blockIdx.x * kThreads + threadIdx.x; at < count * kUnits; at += stride * kAhead) {
    uint64_t row[kAhead];
    uint4 bytes[kAhead];
    float scale[kAhead];
#pragma unroll
    for (uint32_t j = 0; j < kAhead; ++j) {
      const uint32_t i = at + j * stride, p = first + min(i / kUnits, count - 1), page = table[p / size];
      row[j] = uint64_t{page} * a.kv_heads * 2 * size + in_page + p % size;
      const int8_t* from = a.bytes.elements(a.pages, page, in_page + p % size);
      bytes[j] = reinterpret_cast<const uint4*>(from)[i % kUnits];
      scale[j] = *a.bytes.scale(a.pages, page, in_page + p % size);
    }
#pragma unroll
    for (uint32_t j = 0; j < kAhead; ++j) {
      const uint32_t i = at + j * stride, words[4] = {bytes[j].x, bytes[j].y, bytes[j].z, bytes[j].w};
      if (i >= count * kUnits) break;
      uint32_t out[8];
#pragma unroll
      for (uint32_t w = 0; w < 4; ++w) {
        float x[4];
        to_floats(words[w], x);
        out[2 * w] = pack_bf16(x[0] * scale[j], x[1] * scale[j]);
        out[2 * w + 1] = pack_bf16(x[2] * scale[j], x[3] * scale[j]);
      }
      auto* to = reinterpret_cast<uint4*>(a.expanded + row[j] * kDim + i % kUnits * 16);
      to[0] = make_uint4(out[0], out[1], out[2], out[3]);
      to[1] = make_uint4(out[4], out[5], out[6], out[7]);
    }
  }
}

// Positions that a sequence's rows read.
double positions_read(const swy_op& op, const swy_bucket& bucket) {
  const double rows = (bucket.flags & SWY_BUCKET_DECODE) != 0 ? 1 : bucket.rows, window = attention_attrs(op).window;
  return window != 0 && window + rows < bucket.context ? window + rows : bucket.context;
}

}  // namespace

swy_status record_expand(const Recording& r, Attention& a) {
  if (a.kv_type != SWY_I8) return SWY_OK;
  const swy_bucket& b = r.bucket();
  const auto kernel = a.head_dim == 64 ? expand<64> : a.head_dim == 128 ? expand<128> : expand<256>;
  const double units = positions_read(r.op, b) * a.head_dim / 16;
  const uint32_t needed = ceil_div(static_cast<uint64_t>(units), kThreads * kAhead);
  const uint32_t most = ceil_div(16 * static_cast<uint32_t>(r.device().processors), a.kv_heads * 2 * b.seqs);
  const dim3 grid(needed < most ? needed : most, a.kv_heads * 2, b.seqs);
  SWY_CUDA_TRY(launch(r, kernel, grid, kThreads, 0, a, r.list.step));
  a.pages = a.expanded;
  a.kv_type = SWY_BF16;
  return SWY_OK;
}

uint64_t expanded_elements(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  const auto& a = attention_attrs(op);
  return device.kv_i8 ? uint64_t{bucket.pages} * a.kv_heads * 2 * bucket.page_size * a.head_dim : 0;
}

double expand_cost(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  if (!device.kv_i8) return 0;
  const auto& a = attention_attrs(op);
  const double rows = bucket.seqs * positions_read(op, bucket) * a.kv_heads * 2;
  return 2 + device.rates.bytes(rows * (kv_row_bytes(device, a.head_dim) + 2.0 * a.head_dim), 3.0e6);
}

}  // namespace gpu
