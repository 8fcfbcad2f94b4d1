// SPDX-License-Identifier: Apache-2.0
// CUDA's runtime for C++, with launches.
#pragma once

#include <memory>
#include <tuple>
#include <utility>

#include "device.h"
#include "runtime_types.h"

namespace emulated {

// While one lives, what this thread allocates is the driver's, not the plugin's.
struct DriverMemory {
  DriverMemory();
  ~DriverMemory();
  DriverMemory(const DriverMemory&) = delete;
  DriverMemory& operator=(const DriverMemory&) = delete;
};

cudaError_t record(const cudaLaunchConfig_t& config, const void* kernel, std::function<void()> body);

template <class... P, class... A>
cudaError_t launch_kernel(const cudaLaunchConfig_t& config, void (*kernel)(P...), A&&... args) {
  const DriverMemory memory;
  auto bound = std::make_shared<std::tuple<P...>>(std::forward<A>(args)...);
  return record(config, reinterpret_cast<const void*>(kernel), [kernel, bound] { std::apply(kernel, *bound); });
}

// kernel<<<grid, block, bytes, stream>>>
template <class... P>
auto launch_plain(void (*kernel)(P...), dim3 grid, dim3 block, size_t bytes, cudaStream_t stream) {
  return [=](auto&&... args) {
    cudaLaunchConfig_t c{};
    c.gridDim = grid, c.blockDim = block, c.dynamicSmemBytes = bytes, c.stream = stream;
    launch_kernel(c, kernel, static_cast<P>(args)...);
  };
}

}  // namespace emulated

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...), A&&... args) {
  return emulated::launch_kernel(*config, kernel, std::forward<A>(args)...);
}
