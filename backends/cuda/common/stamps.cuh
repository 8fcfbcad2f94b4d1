// SPDX-License-Identifier: Apache-2.0
// Times at which blocks do what, to find where a step's time goes (tools/stamps.py prints them). Compiled in only with
// -DSWITCHYARD_STAMPS; otherwise no code is generated.
//
// Thread 0 of a block stores times in ns of %globaltimer in shared memory, and copies them to a ring in the device's
// memory when its Stamps object is destroyed. The block's place in the ring is reserved just before it waits for
// the previous kernel, so that only this copy delays a step. Blocks that return before that leave no stamps.
#pragma once

#include <cstdint>

namespace gpu {

enum Moment : uint32_t { kBegun, kAsked, kWaited, kRead, kArrived, kMultiplied, kEnded, kMoments };
// Numbers known to tools/stamps.py.
enum Stamped : uint32_t {
  kStampNormed = 10,
  kStampPlain = 11,
  kStampHeads = 12,
  kStampGates = 13,
  kStampRoute = 20,
  kStampGateUp = 21,
  kStampDown = 22,
  kStampCombine = 23,
  kStampDelta = 30,
  kStampAttention = 40,
  kStampHead = 50,
  kStampFinish = 60,
  kStampEmbedding = 70,
  kStampNorm = 80,
};

#ifdef SWITCHYARD_STAMPS

struct StampRecord {
  uint32_t kernel, block, blocks, processor;
  uint64_t at[kMoments + 1];  // the last one is padding
};
struct StampRing {
  uint32_t capacity;  // a power of two
  uint32_t next;
  StampRecord* records;
};

// Files with stamps register the address of their `stamp_ring` here.
struct StampFile {
  explicit StampFile(int (*set)(StampRing* ring));
};

#ifdef __CUDACC__
static __device__ StampRing* stamp_ring;  // of this file
[[maybe_unused]] static const StampFile stamp_file([](StampRing* ring) {
  return static_cast<int>(cudaMemcpyToSymbol(stamp_ring, &ring, sizeof ring));
});

class Stamps {
 public:
  Stamps(const Stamps&) = delete;
  __device__ explicit Stamps(uint32_t kernel) : kernel_(kernel), ring_(stamp_ring) {
    if (threadIdx.x == 0) {
#pragma unroll
      for (uint32_t i = 0; i < kMoments; ++i) at()[i] = 0;
    }
    note(kBegun);
  }
  __device__ void note(Moment m) {
    uint64_t now;
    if (threadIdx.x != 0) return;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    at()[m] = now;
  }
  __device__ void take_place() {
    if (threadIdx.x == 0 && ring_ != nullptr) place_ = atomicAdd(&ring_->next, 1u), placed_ = true;
  }
  __device__ ~Stamps() {
    if (!placed_) return;
    note(kEnded);
    uint32_t processor;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(processor));
    StampRecord& r = ring_->records[place_ & (ring_->capacity - 1)];
    *reinterpret_cast<uint4*>(&r) = make_uint4(kernel_, blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z),
                                               gridDim.x * gridDim.y * gridDim.z, processor);
#pragma unroll
    for (uint32_t i = 0; i < kMoments; ++i) r.at[i] = at()[i];
  }

 private:
  __device__ static volatile uint64_t* at() {
    __shared__ uint64_t moments[kMoments];
    return moments;
  }
  uint32_t kernel_, place_ = 0;
  bool placed_ = false;  // never of other threads
  StampRing* ring_;
};
#endif

// The ring of the process's device.
void open_stamps();
// Writes the ring to the file that SWITCHYARD_STAMPS_FILE names (/tmp/stamps.bin), and says so on stderr.
void save_stamps();
// Call after a list was submitted. Saves after 64, 128, 256 ... of them: a benchmark's worker is ended by a signal, so
// its device is never closed.
void count_list();

#elif defined(__CUDACC__)

struct Stamps {
  __device__ explicit Stamps(uint32_t) {}
  __device__ void note(Moment) {}
  __device__ void take_place() {}
};

#endif

}  // namespace gpu
