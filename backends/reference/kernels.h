// SPDX-License-Identifier: Apache-2.0
// The kernels of this backend, one list per file.
#pragma once

#include <span>

#include "switchyard/sdk/kernel.hpp"

namespace reference {

std::span<const swy::HostKernel> embedding_kernels();
std::span<const swy::HostKernel> rms_norm_kernels();
std::span<const swy::HostKernel> linear_kernels();
std::span<const swy::HostKernel> attention_kernels();
std::span<const swy::HostKernel> gated_delta_kernels();
std::span<const swy::HostKernel> moe_kernels();
std::span<const swy::HostKernel> mlp_kernels();
std::span<const swy::HostKernel> add_kernels();
std::span<const swy::HostKernel> lm_head_kernels();
std::span<const swy::HostKernel> cast_kernels();
std::span<const swy::HostKernel> sample_kernels();

}  // namespace reference
