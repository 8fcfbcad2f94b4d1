// SPDX-License-Identifier: Apache-2.0
// Clusters as CUDA's C++ interface has them.
#pragma once

#include "device.h"

namespace cooperative_groups {

struct cluster_group {
  void sync() const {
    ::emulated::ptx::barrier_cluster_arrive_relaxed_aligned();
    ::emulated::ptx::barrier_cluster_wait_aligned();
  }
  template <class T>
  T* map_shared_rank(T* mine, uint32_t rank) const {
    const uint32_t at = ::emulated::ptx::address_at_peer(::emulated::shared_address(mine), rank);
    return reinterpret_cast<T*>(::emulated::shared_pointer(at, sizeof(T), alignof(T)));
  }
};
inline cluster_group this_cluster() { return {}; }

}  // namespace cooperative_groups
