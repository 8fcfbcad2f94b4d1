// SPDX-License-Identifier: Apache-2.0
// How the weight of linear_router.h is computed: the product in fp32, then its digits.
#include "linear_router.h"

#include "common/boxes.cuh"
#include "switchyard/weights.h"

namespace gpu {
namespace {

constexpr uint32_t kThreads = 256, kColumns = 64, kRows = 16, kDepth = 32;  // of a block's tile, and of a step of it
constexpr int kMiddle = 0x8888, kMostDigits = 0xffff - kMiddle;             // 4-bit weights have 8 for 0

// R diag(w): element k of row e.
__device__ inline float router_at(const RouterRows& r, uint32_t e, uint32_t k) {
  if (e >= r.rows()) return 0;
  const float element = e < r.experts() ? plain_at(r.router, uint64_t{e} * r.router.width + k) : plain_at(r.gate, k);
  return element * (plain_at(r.norm, k) + r.bias);
}

// to [rows, width]. blockIdx.x: 64 columns, blockIdx.y: 16 rows.
__global__ void __launch_bounds__(kThreads)
    router_product(const __grid_constant__ RouterRows r, const __grid_constant__ Weight projection, float* to) {
  __shared__ float left[kRows][kDepth], right[kDepth][kColumns];
  const uint32_t column = threadIdx.x % kColumns, own = threadIdx.x / kColumns;  // rows own, own + 4, ...
  const uint32_t first = blockIdx.y * kRows, at = blockIdx.x * kColumns + column;
  constexpr uint32_t kStep = kThreads / kColumns, kEach = kRows / kStep;
  float sum[kEach] = {};
  for (uint32_t k = 0; k < projection.rows; k += kDepth) {
    for (uint32_t i = threadIdx.x; i < kRows * kDepth; i += kThreads) {
      const bool in = k + i % kDepth < projection.rows;
      left[i / kDepth][i % kDepth] = in ? router_at(r, first + i / kDepth, k + i % kDepth) : 0;
    }
    for (uint32_t i = own; i < kDepth; i += kStep) {
      const bool in = k + i < projection.rows && at < projection.width;
      right[i][column] = in ? weight_at(projection, k + i, at) : 0;
    }
    __syncthreads();
    for (uint32_t i = 0; i < kDepth; ++i) {
#pragma unroll
      for (uint32_t j = 0; j < kEach; ++j) sum[j] = fmaf(left[own + j * kStep][i], right[i][column], sum[j]);
    }
    __syncthreads();
  }
#pragma unroll
  for (uint32_t j = 0; j < kEach; ++j) {
    const uint32_t row = first + own + j * kStep;
    if (row < r.rows() && at < projection.width) to[uint64_t{row} * projection.width + at] = sum[j];
  }
}

// The largest of a row's sizes; every thread gets it.
__device__ inline float largest_of(const float* row, uint32_t width) {
  __shared__ float most[kThreads / 32];
  float top = 0;
  for (uint32_t i = threadIdx.x; i < width; i += kThreads) top = fmaxf(top, fabsf(row[i]));
  top = warp_max(top);
  if (threadIdx.x % 32 == 0) most[threadIdx.x / 32] = top;
  __syncthreads();
  for (uint32_t w = 0; w < kThreads / 32; ++w) top = fmaxf(top, most[w]);
  return top;
}

// blockIdx.x: a row of the product, or one of those that fill the last tile. Scales are fp16 and a digit's is 16 times
// that of the one before, so a row is first brought to a largest element between 2^14 and 2^15 by a power of two.
__global__ void __launch_bounds__(kThreads)
    router_digits(const float* from, uint32_t rows, const __grid_constant__ Weight to, float* factors) {
  const uint32_t row = blockIdx.x;
  const float* x = from + uint64_t{row} * to.width;
  const bool exists = row < rows;
  constexpr uint32_t kOne = 127, kTop = 14;  // exponents
  const uint32_t exponent = max(__float_as_uint(exists ? largest_of(x, to.width) : 0.0f) >> 23, kTop + 1);
  const float factor = __uint_as_float((2 * kOne + kTop - exponent) << 23);
  if (threadIdx.x == 0) factors[row] = __uint_as_float((exponent - kTop) << 23);
  for (uint32_t g = threadIdx.x; g < to.groups; g += kThreads) {
    const uint32_t first = g * to.group;
    float top = 0;
    for (uint32_t i = 0; exists && i < to.group; ++i) top = fmaxf(top, fabsf(x[first + i]));
    // The scale in fp16, rounded up; no less than the smallest normal number.
    const float least = fmaxf(top * factor * (1.0f / kMostDigits), 0x1p-14f);
    const uint32_t scale = (__float_as_uint(least) >> 13) - (112u << 10) + 1;
    const float inverse = factor / half_bits(static_cast<uint16_t>(scale));
    for (uint32_t digit = 0; digit < kDigits; ++digit) {
      const uint64_t line = uint64_t{row} * kDigits + digit, at = line * to.groups + g;
      const_cast<uint16_t*>(to.scales)[at] = static_cast<uint16_t>(scale + (4 * digit << 10));
      if (to.offsets != nullptr) {  // -8 times the scale
        const_cast<uint16_t*>(to.offsets)[at] = static_cast<uint16_t>((scale + ((4 * digit + 3) << 10)) | 0x8000u);
      }
      uint8_t* bytes = const_cast<uint8_t*>(to.data) + line * to.row_bytes + first / 2;
      for (uint32_t i = 0; i < to.group; i += 2) {
        uint32_t nibbles[2];
        for (uint32_t j = 0; j < 2; ++j) {
          const int q = exists ? __float2int_rn(x[first + i + j] * inverse) : 0;
          nibbles[j] = static_cast<uint32_t>(q + kMiddle) >> 4 * digit & 15;
        }
        bytes[i / 2] = static_cast<uint8_t>(nibbles[0] | nibbles[1] << 4);
      }
    }
  }
}

// Computes rows.through and rows.factors, of so many experts, by way of the product.
swy_status compute(const swy_device& device, const Weight& projection, const RouterRows& rows, uint32_t experts,
                   float* product, swy_error* error) {
  router_product<<<dim3(ceil_div(projection.width, kColumns), ceil_div(rows.rows(), kRows)), kThreads, 0,
                   device.stream>>>(rows, projection, product);
  router_digits<<<experts, kThreads, 0, device.stream>>>(product, rows.rows(), rows.through,
                                                         const_cast<float*>(rows.factors));
  return check(cudaGetLastError(), "computing a router's product", error);
}

// A weight's memory, to the end of its last plane.
DerivedWeights::Source source_of(const Weight& w) {
  const uint8_t* end = w.data + uint64_t{w.rows} * w.row_bytes;
  const uint16_t* plane = w.offsets != nullptr ? w.offsets : w.scales;
  if (plane != nullptr) end = reinterpret_cast<const uint8_t*>(plane + uint64_t{w.rows} * w.groups);
  return {w.data, w.data == nullptr ? 0 : static_cast<uint64_t>(end - w.data)};
}

}  // namespace

uint32_t router_blocks(uint32_t rows) { return ceil_div(rows, kTileRows / kDigits); }

swy_status derive_router(const Recording& r, const Weight& projection, RouterRows& rows) {
  const uint32_t padded = router_blocks(rows.rows()) * (kTileRows / kDigits);
  swy_tensor t{};
  t.struct_size = sizeof t;
  t.dtype = projection.dtype;
  t.group = projection.groups == 1 ? 0 : projection.group;
  t.rank = 2;
  t.dims[0] = uint64_t{padded} * kDigits, t.dims[1] = projection.width;
  swy_weight_planes planes;
  if (swy_weight_planes_of(&t, &planes) != 0) {
    return swy::fail(r.error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "a router of %u rows has no product with a weight",
                     rows.rows());
  }
  const uint64_t factors_at = swy_align64(planes.total_bytes);
  const auto place = [=](RouterRows of, char* memory) {
    of.through = weight_of(t, memory);
    of.factors = reinterpret_cast<const float*>(memory + factors_at);
    return of;
  };
  const auto make = [=](swy_device& device, char* memory, char* scratch, swy_error* error) {
    return compute(device, projection, place(rows, memory), padded, reinterpret_cast<float*>(scratch), error);
  };
  const DerivedWeights::Key key{
      {source_of(rows.router), source_of(rows.gate), source_of(rows.norm), source_of(projection)}, rows.bias};
  const DerivedWeights::Sizes sizes{factors_at + padded * sizeof(float),
                                    uint64_t{rows.rows()} * projection.width * sizeof(float)};
  swy_device& device = *r.list.device;
  SWY_CUDA_TRY(device.derived.get(device, key, sizes, make, r.list.derived, r.error));
  rows = place(rows, r.list.derived.back()->memory.data());
  return SWY_OK;
}

}  // namespace gpu
