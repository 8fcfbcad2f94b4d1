// SPDX-License-Identifier: Apache-2.0
// The emulated device: threads are fibers of one thread of the host, which run in random order. What blocks of threads
// share, and how threads meet.
#pragma once

#include <boost/context/fiber.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "vectors.h"

namespace emulated {

struct Block;
struct Cluster;
struct Launch;
struct Stack;
struct Warp;

constexpr uint32_t kLanes = 32;
constexpr uint32_t kBlockMemory = 1024;  // of shared memory that each block takes beside what it asks for

// What the device's code knows of its thread.
struct Here {
  uint3 thread{}, block{}, cluster{};
  dim3 threads, blocks;
  uint32_t rank = 0;  // in the cluster
};

enum class Wait : uint8_t { nothing, meeting, barrier, cluster, phase, earlier, spin, never };

// What happens at a meeting of lanes: it gets what they bring, null for those that do not take part.
using Combine = void (*)(void* const* lanes);

// A copy of 16 bytes by cp.async that has not been made yet.
struct SmallCopy {
  char* to;
  const char* from;
  uint32_t bytes, room;
};
// Bulk copies to global memory of one group: first they read, then they write.
struct OutCopy {
  char* to;
  const char* from;
  std::vector<char> read;
  uint32_t bytes;
  bool has_read = false, done = false;
};

struct Thread {
  Here here;
  Warp* warp = nullptr;
  uint32_t lane = 0, linear = 0;
  boost::context::fiber fiber, machine;
  Stack* stack = nullptr;
  Wait wait = Wait::nothing;
  const char* what = "";       // it waits for
  const void* site = nullptr;  // in the code
  uint32_t mask = 0;           // of a meeting
  void* data = nullptr;
  Combine combine = nullptr;
  bool whole = false;
  uint64_t* word = nullptr;  // of a barrier in shared memory
  uint32_t parity = 0;
  uint32_t barrier = 0;  // of the block, by number
  int result = 0;        // of that
  uint32_t cluster_phase = 0;
  std::vector<std::vector<SmallCopy>> groups{1};  // the last one is open
  std::vector<std::shared_ptr<OutCopy>> out;
  bool started = false, ended = false;
};

// An asynchronous product of a warp (its quarter of wgmma).
using Product = std::function<void()>;

struct Warp {
  Block* block = nullptr;
  Thread* lanes[kLanes] = {};
  uint32_t there = 0, ready = 0, meets = 0;  // bits of lanes
  bool listed = false;
  std::deque<std::vector<Product>> groups{1};  // the last one is open
};

struct Named {  // a barrier of the block
  uint32_t arrived = 0, expected = 0;
  int count = 0;
  std::vector<Thread*> waiting;
};

struct Block {
  Launch* launch = nullptr;
  Cluster* cluster = nullptr;
  uint3 at{};
  uint32_t rank = 0, living = 0;
  char* window = nullptr;  // of shared memory
  char* dynamic = nullptr;
  std::map<const void*, char*> fixed;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  Named barriers[16];
  bool triggered = false;
};

struct Cluster {
  std::vector<std::unique_ptr<Block>> blocks;
  uint32_t arrived = 0, phase = 0;
  std::vector<Thread*> waiting;
  uint32_t living() const;
};

// A launch as it was recorded, and its state while it runs.
struct Launch {
  const void* kernel = nullptr;
  std::function<void()> body;
  dim3 grid, block;
  uint32_t cluster = 1;
  size_t dynamic_bytes = 0;
  bool overlaps = false;  // it may begin before the previous launch ends

  std::vector<uint32_t> to_start;  // clusters
  std::vector<std::unique_ptr<Cluster>> running;
  std::map<const void*, uint32_t> places;  // of fixed shared variables
  uint32_t fixed_end = 0;
  const Launch* before = nullptr;
  uint32_t not_triggered = 0, blocks_left = 0, resident = 0;
  bool begun = false, complete = false, breadth = false;
};

// ---- what host code calls

// Runs launches in order; false if one failed. The failure is on stderr, and every later call fails.
bool run(std::vector<Launch>& launches);
bool failed();
// Blocks of a launch that fit on the device at once.
uint32_t resident_blocks(const dim3& block, size_t shared_bytes);
uint32_t processors();
// What SWITCHYARD_EMULATED_CAPABILITY says the device is.
struct Card {
  uint32_t capability = 90;                                          // of 9.0
  uint32_t processor_memory = 228 * 1024, processor_threads = 2048;  // of a multiprocessor

  uint32_t block_memory() const { return processor_memory - kBlockMemory; }
};
const Card& card();

// ---- what the device's code calls, by the headers beside this one

extern Thread* current;

uint32_t random_below(uint32_t n);
[[noreturn]] void fault(const char* format, ...) __attribute__((format(printf, 1, 2)));
// Gives way to other threads until `wait` is over.
void pause(Wait wait, const char* what, const void* site);
void wake(Thread& thread);

// A meeting of the lanes of `mask` that have not ended; `combine` is called once when the last one has come or ended.
// `whole`: all lanes of the mask must come.
void meet(const char* what, uint32_t mask, void* data, Combine combine, bool whole, const void* site);
// A barrier of the block; threads 0: all that have not ended. Gives how many said yes.
int block_barrier(const char* what, uint32_t id, uint32_t threads, int yes, const void* site);
void cluster_arrive();
void cluster_wait(const void* site);
void spin();

// Something that happens at some later time.
void later(Block* reads_or_writes, std::function<void()> event);

char* shared_pointer(uint32_t at, uint32_t bytes, uint32_t alignment);
uint32_t shared_address(const void* p);
void* dynamic_shared(size_t alignment);
void* fixed_shared(const void* id, size_t bytes, size_t alignment);
template <class T>
T& static_shared(const void* id) {
  return *static_cast<T*>(fixed_shared(id, sizeof(T), alignof(T)));
}

// Whether the operation at this place in the code is left out, to see whether that is found.
bool dropped(const char* what, const void* site);
// "function+0x12 (file+0x1234)"
std::string place(const void* address);
std::string name_of(const void* function);

}  // namespace emulated
