// SPDX-License-Identifier: Apache-2.0
// C++ SDK: a kernel of a backend whose device has its own memory, and the basis of such kernels' cost estimates.
#pragma once

#include <cstdint>

#include "switchyard/plugin.h"
#include "switchyard/weights.h"

#pragma GCC visibility push(hidden)  // so that two plugins with this code share none of it

namespace swy {

// swy_kernel.flags of kernels that may be replayed and repeat their bits; and of those whose rows are also independent
// of each other.
inline constexpr uint32_t kAlways = SWY_KERNEL_CAPTURE_SAFE | SWY_KERNEL_DETERMINISTIC;
inline constexpr uint32_t kInvariant = kAlways | SWY_KERNEL_BATCH_INVARIANT;

// swy_device_info.sampling_steps of a device whose SAMPLE covers the whole chain.
inline constexpr uint32_t kSamplesEverything = SWY_SAMPLES_GREEDY | SWY_SAMPLES_SEEDED | SWY_SAMPLES_TEMPERATURE |
                                               SWY_SAMPLES_TOP_K | SWY_SAMPLES_TOP_P | SWY_SAMPLES_MIN_P |
                                               SWY_SAMPLES_MASK | SWY_SAMPLES_PENALTIES | SWY_SAMPLES_BIAS |
                                               SWY_SAMPLES_LOGPROBS | SWY_SAMPLES_STOP_IDS;

// The contents of `Recording` are up to the backend: the list, the operation with its operands, where errors go.
// `Cost`: an estimate may also depend on the device, as double(const swy_device&, const swy_op&, const swy_bucket&).
template <class Recording, class Cost = double(const swy_op&, const swy_bucket&)>
struct DeviceKernel {
  const char* name;
  uint32_t op;
  uint32_t flags;
  swy_dtype activations;  // what products round them to
  // Whether it takes this very operation; nullptr: the types say it all.
  swy_status (*supports)(const swy_device& device, const swy_op& op, const swy_bucket& bucket,
                         swy_error* error) = nullptr;
  Cost* cost = nullptr;  // microseconds
  uint64_t (*workspace)(const swy_device& device, const swy_op& op,
                        const swy_bucket& bucket) = nullptr;  // bytes; nullptr: none
  swy_status (*record)(const Recording& r) = nullptr;
  uint32_t input_dtypes = SWY_DTYPE_BIT(SWY_F32);
  uint32_t output_dtypes = SWY_DTYPE_BIT(SWY_F32);
  const char* op_name = nullptr;           // `op` is SWY_OP_NAMED: which
  const char* const* encodings = nullptr;  // as in swy_kernel
  uint32_t op_revision = 1;    // the newest of the operation's revisions that it implements, with all before
  uint32_t weight_dtypes = 0;  // as in swy_kernel
};

// Bytes of a weight in its canonical form; 0: its description makes no sense.
inline double weight_bytes(const swy_tensor& t) {
  swy_weight_planes planes;
  return swy_weight_planes_of(&t, &planes) != 0 ? 0 : static_cast<double>(planes.total_bytes);
}

// Bytes of an operation's inputs and outputs in fp32, for all rows of the bucket.
inline double row_bytes(const swy_op& op) {
  const auto bytes = [](const swy_tensor* const* tensors, uint32_t count) {
    double sum = 0;
    for (uint32_t i = 0; i < count; ++i) sum += 4.0 * static_cast<double>(tensors[i]->dims[0] * tensors[i]->dims[1]);
    return sum;
  };
  return bytes(op.inputs, op.input_count) + bytes(op.outputs, op.output_count);
}

// Workgroups, or blocks, of d items for n of them.
inline uint32_t ceil_div(uint64_t n, uint64_t d) { return static_cast<uint32_t>((n + d - 1) / d); }

}  // namespace swy

#pragma GCC visibility pop
