// SPDX-License-Identifier: Apache-2.0
// MLP, MLP_ADD: y [rows, out] = down act(gate x, up x), each piece rounded to fp32 as in the decomposition.
#include <algorithm>

#include "arithmetic.h"
#include "kernels.h"

namespace reference {
namespace {

const swy_mlp_attrs& attrs_of(const swy_op& op) { return *static_cast<const swy_mlp_attrs*>(op.attrs); }
uint64_t scratch_floats(const swy_op& op) {
  return kBlock * std::max<uint64_t>(swy::tensor(op, "x").dims[1], attrs_of(op).width);
}

// Scratch, then what gate and up give [rows, width].
uint64_t mlp_workspace(const swy_op& op, const swy_bucket& bucket) {
  return scratch_bytes(scratch_floats(op)) + 2 * swy_align64(uint64_t{bucket.rows} * attrs_of(op).width * 4);
}

void mlp(const swy::Call& call) {
  const auto& a = call.attrs<swy_mlp_attrs>();
  const swy_activation_attrs act = activation_of(a);
  const uint64_t floats = scratch_floats(*call.op), width = a.width;
  const uint32_t rows = call.rows(swy::tensor(*call.op, "x"));
  float* row_scratch = scratch(call, floats);
  float* gate = call.work<float>(scratch_bytes(floats));
  float* up = gate + rows * width;
  linear_rows(call, Weight(call, "gate"), call.input("x"), rows, gate, width, row_scratch);
  linear_rows(call, Weight(call, "up"), call.input("x"), rows, up, width, row_scratch);
  call.barrier();
  const auto [first, last] = call.split(rows * width);
  for (uint64_t i = first; i < last; ++i) gate[i] = static_cast<float>(activate(act, gate[i], up[i]));
  call.barrier();
  const Weight down(call, "down");
  linear_rows(call, down, gate, rows, call.output("y"), down.rows(), row_scratch);
}

void mlp_add(const swy::Call& call) {
  mlp(call);
  call.barrier();
  const swy_tensor& out = swy::tensor(*call.op, "y");
  const float* residual = call.input("residual");
  float* y = call.output("y");
  const auto [first, last] = call.split(call.rows(out) * out.dims[1]);
  for (uint64_t i = first; i < last; ++i) y[i] += residual[i];
}

constexpr swy::HostKernel kernel(const char* name, uint32_t op, void (*run)(const swy::Call&)) {
  return {
      .name = name, .op = op, .weight_dtypes = kMatrices, .cost = generic_cost, .run = run, .workspace = mlp_workspace};
}
constexpr swy::HostKernel kKernels[] = {
    kernel("mlp.plain", SWY_OP_MLP, mlp),
    kernel("mlp_add.plain", SWY_OP_MLP_ADD, mlp_add),
};

}  // namespace

std::span<const swy::HostKernel> mlp_kernels() { return kKernels; }

}  // namespace reference
