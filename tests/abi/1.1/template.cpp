// SPDX-License-Identifier: Apache-2.0
// A complete Switchyard backend with one kernel. Copy this folder, rename `template`, and write your own.
//
// The kernel adds two activations (the residual connections of a transformer). Everything else of a program runs on the
// next backend of the user's list: switchyard run --backend template,reference.
//
// A backend is a shared object with one exported function, switchyard_plugin_negotiate. The SDK writes that function
// and the tables behind it for devices that compute in host memory; a backend for other devices fills the tables of
// switchyard/plugin.h itself. What is left is below, in four parts.
#include <iterator>

#include "switchyard/sdk/host_backend.hpp"

namespace {

// ---- 1. The kernel -------------------------------------------------------------------------------------------------
//
// ADD, as switchyard/ops.h defines it: inputs x, residual [rows, width], output x + residual, row-major fp32.
//
// Every member of the host's thread team calls this function at the same time; `split` returns each member's share. The
// rows are those of this step, at most as many as the list was recorded for. Kernels may not allocate, throw, or print.
void add(const swy::Call& call) {
  const swy_tensor& x = *call.op->inputs[0];
  const uint64_t elements = uint64_t{call.rows(x)} * x.dims[1];
  const auto [first, last] = call.split(elements);
  for (uint64_t i = first; i < last; ++i) call.output(0)[i] = call.input(0)[i] + call.input(1)[i];
}

// ---- 2. What the kernel can do -------------------------------------------------------------------------------------
//
// The descriptor's masks already say "fp32 in, fp32 out". `supports` may refuse an exact instance, with the reason that
// `switchyard plan --explain` will print. This one takes rows of up to a million elements.
swy_status supports(const swy_op& op, const swy_bucket&, swy_error* error) {
  constexpr uint64_t kMaxWidth = 1u << 20;
  if (op.inputs[0]->dims[1] <= kMaxWidth) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "rows of %llu elements are too wide, at most %llu fit",
                   static_cast<unsigned long long>(op.inputs[0]->dims[1]), static_cast<unsigned long long>(kMaxWidth));
}

// An estimate in microseconds; the scheduler compares it with other kernels of this backend and, under `--backend
// auto`, with other backends. Here: three streams of 4 bytes at 10 GB/s, and a little to begin.
double cost(const swy_op& op, const swy_bucket& bucket) {
  return 1.0 + 12.0 * bucket.rows * static_cast<double>(op.inputs[0]->dims[1]) / 10e3;
}

// ---- 3. The list of kernels ----------------------------------------------------------------------------------------
//
// Add an entry per kernel. `flags` are promises that tests hold you to: CAPTURE_SAFE (may be replayed with other steps)
// is mandatory; DETERMINISTIC and BATCH_INVARIANT let it serve --deterministic; IN_PLACE lets output 0 share input 0's
// memory.
const swy::HostKernel kKernels[] = {
    {.name = "add.template",
     .op = SWY_OP_ADD,
     .flags = SWY_KERNEL_CAPTURE_SAFE | SWY_KERNEL_DETERMINISTIC | SWY_KERNEL_BATCH_INVARIANT | SWY_KERNEL_IN_PLACE,
     .cost = cost,
     .run = add,
     .supports = supports},
};

// ---- 4. The backend ------------------------------------------------------------------------------------------------
//
// The id is what users write after --backend. It stands twice: in the table, and in the ELF note that the host reads
// before it runs any code of yours. The third argument of the macro names processor features that the code needs from
// the start ("avx2 fma"); the host then skips the file on machines without them.
swy::HostBackend backend{.id = "template",
                         .version = "0.1.0",
                         .kernels = kKernels,
                         .kernel_count = std::size(kKernels),
                         .device_name = "the template backend",
                         .sampling = 0};

}  // namespace

SWY_HOST_BACKEND("template", "0.1.0", "", backend)
