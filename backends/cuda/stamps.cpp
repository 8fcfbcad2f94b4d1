#include "stamps.cuh"

#ifdef SWITCHYARD_STAMPS

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace gpu {
namespace {

constexpr uint32_t kRecords = 1u << 20;  // some thirty steps of the 35B's shape

std::vector<int (*)(StampRing*)>& files() {
  static std::vector<int (*)(StampRing*)> all;
  return all;
}
StampRing* ring = nullptr;

}  // namespace

StampFile::StampFile(int (*set)(StampRing* ring)) { files().push_back(set); }

void open_stamps() {
  if (ring != nullptr) return;
  StampRing host{kRecords, 0, nullptr};
  cudaError_t e = cudaMalloc(reinterpret_cast<void**>(&host.records), kRecords * sizeof(StampRecord));
  if (e == cudaSuccess) e = cudaMemset(host.records, 0, kRecords * sizeof(StampRecord));
  if (e == cudaSuccess) e = cudaMalloc(reinterpret_cast<void**>(&ring), sizeof host);
  if (e == cudaSuccess) e = cudaMemcpy(ring, &host, sizeof host, cudaMemcpyHostToDevice);
  int set = 0;
  for (const auto f : files()) set += f(ring) == 0 ? 1 : 0;
  std::fprintf(stderr, "stamps: %s, %d of %zu files\n", cudaGetErrorString(e), set, files().size());
}

void save_stamps() {
  if (ring == nullptr) return;
  StampRing host{};
  std::vector<StampRecord> records(kRecords);
  cudaError_t e = cudaDeviceSynchronize();
  if (e == cudaSuccess) e = cudaMemcpy(&host, ring, sizeof host, cudaMemcpyDeviceToHost);
  if (e == cudaSuccess) {
    e = cudaMemcpy(records.data(), host.records, kRecords * sizeof(StampRecord), cudaMemcpyDeviceToHost);
  }
  const char* to = std::getenv("SWITCHYARD_STAMPS_FILE");
  std::FILE* file = host.next == 0 ? nullptr : std::fopen(to == nullptr ? "/tmp/stamps.bin" : to, "wb");
  if (file != nullptr) {
    std::fwrite(records.data(), sizeof(StampRecord), host.next < kRecords ? host.next : kRecords, file);
    std::fclose(file);
  }
  std::fprintf(stderr, "stamps: %s, %u blocks noted\n", cudaGetErrorString(e), host.next);
}

}  // namespace gpu

#endif
