// SPDX-License-Identifier: Apache-2.0
// What CUDA's driver needs for itself is no memory of the plugin. The conformance kit lets allocations of the plugin
// fail, which it knows by the code that calls operator new; the driver that is emulated in the plugin is spared.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstdlib>
#include <new>

namespace emulated {
namespace {
thread_local int in_driver = 0;
}

DriverMemory::DriverMemory() { ++in_driver; }
DriverMemory::~DriverMemory() { --in_driver; }

}  // namespace emulated

#ifndef __SANITIZE_ADDRESS__
// The plugin's own, since it exports nothing but its entry. All of the process's give what std::free takes.
void* operator new(size_t bytes) {
  using New = void* (*)(size_t);
  static const auto of_process = reinterpret_cast<New>(dlsym(RTLD_DEFAULT, "_Znwm"));
  if (emulated::in_driver == 0) return of_process(bytes);
  void* p = std::malloc(bytes == 0 ? 1 : bytes);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
#endif
