// SPDX-License-Identifier: Apache-2.0
// How attention.decode divides rows among clusters and blocks, by how many of them the device can run at once. Decided
// when a list is recorded.
#pragma once

#include <algorithm>
#include <mutex>
#include <vector>

#include "attention_ring.cuh"

namespace gpu {

// A kernel whose block needs a whole multiprocessor's memory: only its occupancy is queried.
static __global__ void __launch_bounds__(kThreads) alone() {}

// Clusters of 1, 2, 4, 8 and 16 blocks that a device has room for at once, when no two blocks share a multiprocessor.
constexpr uint32_t kSizes = 5, kPortableCluster = 8;  // kernels must ask for larger clusters
static_assert(1u << (kSizes - 1) == kMostBlocks);
struct Room {
  int device;
  uint32_t clusters[kSizes];
};

inline Room make_room(const swy_device& device) {
  Room room{device.ordinal, {static_cast<uint32_t>(device.processors)}};
  const auto* kernel = reinterpret_cast<const void*>(alone);
  const auto memory = static_cast<int>(device.features.block_memory);
  bool asked = use(device, nullptr) == SWY_OK &&
               cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, memory) == cudaSuccess;
  for (uint32_t i = 1; i < kSizes; ++i) {
    const uint32_t blocks = 1u << i;
    cudaLaunchAttribute cluster{};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {blocks, 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = blocks, config.blockDim = kThreads, config.dynamicSmemBytes = device.features.block_memory;
    config.attrs = &cluster, config.numAttrs = 1;
    int count = 0;
    if (blocks > kPortableCluster) {
      asked = asked && cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) == cudaSuccess;
    }
    asked = asked && cudaOccupancyMaxActiveClusters(&count, kernel, &config) == cudaSuccess;
    // If the query fails, an estimate is enough: a cluster without room begins later, with the same result. But not
    // every device runs large clusters.
    const uint32_t estimate = blocks > kPortableCluster ? 0 : static_cast<uint32_t>(device.processors) / blocks;
    room.clusters[i] = asked ? static_cast<uint32_t>(count) : estimate;
  }
  if (!asked) cudaGetLastError();
  return room;
}

// Queried once per device.
inline Room room_of(const swy_device& device) {
  static std::mutex mutex;
  static std::vector<Room> known;
  const std::lock_guard lock(mutex);
  for (const Room& room : known) {
    if (room.device == device.ordinal) return room;
  }
  return known.emplace_back(make_room(device));
}

// Among the cuts whose blocks can all run at once: the one whose blocks have the fewest positions, or one with larger
// clusters if that is nearly as good. If the rows alone fill the device, only long rows are cut, since blocks without
// work take time, too.
inline Cut cut_of(const swy_device& device, const swy_attention_attrs& a, const swy_bucket& bucket) {
  constexpr uint32_t kRound = kWorkers * 16, kMostLarge = 4096;  // positions: a tile per warp; of large clusters
  const Room room = room_of(device);
  const uint32_t units = bucket.rows * a.kv_heads * groups_of(a);
  // The only row has clusters of the most blocks, up to the context where several clusters, which exchange results
  // through memory, are as fast.
  if (bucket.rows == 1 && bucket.context <= kMostLarge && room.clusters[kSizes - 1] >= units) {
    return {kMostBlocks, 1, 8192, 8192};
  }
  Cut best{1, 2, 8192, 8192};
  uint32_t least = UINT32_MAX;
  for (uint32_t i = kSizes - 1; i-- > 0;) {
    const uint32_t blocks = 1u << i, most = std::min(room.clusters[i] / units, kMostClusters);
    if (most == 0) continue;
    // Clusters exchange results through memory, which takes as long as some more positions.
    Cut c{blocks, most, blocks * kRound * 5 / 4, blocks * kRound};
    if (most == 1) c = {blocks, 2, 8192, 8192};
    const uint32_t clusters = std::min(c.clusters(bucket.context), most);
    const uint32_t load = ceil_div(bucket.context, blocks * std::max(clusters, 1u)) + (clusters > 1 ? kRound : 0);
    if (load < least - least / 8) least = load, best = c;
  }
  best.most = std::min(best.most, std::max(best.clusters(bucket.context), 1u));
  return best;
}

}  // namespace gpu
