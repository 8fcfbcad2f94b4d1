// SPDX-License-Identifier: Apache-2.0
// KV_APPEND: k and v [rows, kv_heads, head_dim] to their pages.
#include "attention.cuh"

namespace gpu {
namespace {

// blockIdx.y: rows.
template <class T>
__global__ void __launch_bounds__(256) append_rows(const __grid_constant__ Attention a, const swy_step* step) {
  depend();
  release_next();
  const uint32_t width = a.kv_heads * a.head_dim;
  for (uint32_t row = blockIdx.y; row < step->rows; row += gridDim.y) {
    const uint32_t seq = step_array<uint32_t>(step, step->row_seq_at)[row];
    if (step_array<uint32_t>(step, step->seq_active_at)[seq] == 0) continue;
    const uint32_t position = step_array<uint32_t>(step, step->row_position_at)[row];
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < width; i += gridDim.x * blockDim.x) {
      T* key = keys_at<T>(a, step, table_of(step, seq), i / a.head_dim, position) + i % a.head_dim;
      store_kv(key, a.k[uint64_t{row} * width + i]);
      store_kv(key + uint64_t{step->page_size} * a.head_dim, a.v[uint64_t{row} * width + i]);
    }
  }
}

// The same in 8 bits: a warp per KV head.
__global__ void __launch_bounds__(256) append_bytes(const __grid_constant__ Attention a, const swy_step* step) {
  depend();
  release_next();
  const uint32_t kv = (blockIdx.x * blockDim.x + threadIdx.x) / 32, size = step->page_size;
  if (kv >= a.kv_heads) return;
  for (uint32_t row = blockIdx.y; row < step->rows; row += gridDim.y) {
    const uint32_t seq = step_array<uint32_t>(step, step->row_seq_at)[row];
    if (step_array<uint32_t>(step, step->seq_active_at)[seq] == 0) continue;
    const uint32_t position = step_array<uint32_t>(step, step->row_position_at)[row];
    const uint32_t page = table_of(step, seq)[position / size], to = a.bytes.row(kv, false, position % size);
    const uint64_t from = (uint64_t{row} * a.kv_heads + kv) * a.head_dim;
    store_bytes(a.bytes, a.pages, page, to, a.k + from);
    store_bytes(a.bytes, a.pages, page, to + size, a.v + from);
  }
}

swy_status record_append(const Recording& r) {
  const swy_attention_attrs at = attention_attrs(r.op);
  const auto rows = static_cast<uint32_t>(swy::tensor(r.op, "k").dims[0]);
  Attention a{};
  a.k = r.operands.input("k");
  a.v = r.operands.input("v");
  a.pages = r.operands.state<void>("kv");
  a.kv_heads = at.kv_heads;
  a.head_dim = at.head_dim;
  const uint32_t blocks = ceil_div(uint64_t{a.kv_heads} * a.head_dim, 256);
  const uint32_t row_blocks = rows < 4096 ? rows : 4096;
  if (r.device().kv_i8) {
    a.bytes = BytePages(a.kv_heads, a.head_dim, r.bucket().page_size);
    return launch(r, append_bytes, dim3(ceil_div(a.kv_heads * 32, 256), row_blocks), 256, 0, a, r.list.step);
  }
  return launch(r, r.device().kv_bf16 ? append_rows<uint16_t> : append_rows<float>,
                dim3(blocks < 64 ? blocks : 64, row_blocks), 256, 0, a, r.list.step);
}

swy_status supports_append(const swy_device& device, const swy_op& op, const swy_bucket&, swy_error* error) {
  return supports_kv(device, op, error);
}

double cost_append(const swy_device& device, const swy_op& op, const swy_bucket&) {
  return cost_of(device, 2 * row_bytes(op), 0);
}

constexpr Kernel kKernels[] = {
    {"kv_append.plain", SWY_OP_KV_APPEND, kInvariant, SWY_BF16, supports_append, cost_append, nullptr, record_append}};

}  // namespace

std::span<const Kernel> kv_append_kernels() { return kKernels; }

}  // namespace gpu
