// SPDX-License-Identifier: Apache-2.0
// exchange [ROUNDS]: how long values take to cross between the multiprocessors of a Hopper GPU. Whether a whole step
// can be one kernel depends on this: it would exchange a row of activations about 240 times a token.
//
// One block on every multiprocessor. In a round 128 of them write their share of a row of 2,048 values, and every block
// waits until it has the whole row, so that rounds follow each other in step. A value crosses as part of a word that
// carries the number of the round: the reader reads the word until that number is there, without a fence or a
// barrier between blocks. Forms of a word:
//   fp32 + epoch        8 bytes, read two at a time: 16 KB a row
//   2 bf16 + epoch      8 bytes, read two at a time:  8 KB
//   6 bf16 + epoch     16 bytes, written and read as one (ld.b128, st.b128): 6 KB
// Each is measured by itself and beside a warp of each block that streams a large buffer through shared memory with the
// copy engine, as weights would come, with 16 to 128 KB of a block on the way at any time. For comparison: the same row
// with a cooperative grid barrier in place of the words, and with one kernel a round, launched as a programmatic
// dependent of the one before.
//
// A round ends when all threads of a block have met (__syncthreads). Printed: microseconds from one round's end to the
// next on a block, over all blocks and rounds; what the meeting alone takes; and the words that arrived wrong (0).
//
//   nvcc -std=c++20 -O3 -gencode arch=compute_90a,code=sm_90a -o exchange bench/kernels/exchange.cu
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

namespace cg = cooperative_groups;

constexpr uint32_t kValues = 2048, kWriters = 128, kThreads = 512, kWarmUp = 200;
constexpr uint32_t kStage = 16 * 1024, kMostStages = 8;  // of the streamed buffer, on the way

void check(cudaError_t e, const char* what) {
  if (e == cudaSuccess) return;
  std::fprintf(stderr, "exchange: %s: %s\n", what, cudaGetErrorString(e));
  std::exit(1);
}

// ---- words

struct FloatWord {
  static constexpr const char* kName = "fp32 + epoch, 8 bytes";
  static constexpr uint32_t kEach = 1, kBytes = 8;
};
struct PairWord {
  static constexpr const char* kName = "2 bf16 + epoch, 8 bytes";
  static constexpr uint32_t kEach = 2, kBytes = 8;
};
struct WideWord {
  static constexpr const char* kName = "6 bf16 + epoch, 16 bytes";
  static constexpr uint32_t kEach = 6, kBytes = 16;
};
template <class Word>
constexpr uint32_t kShare = (kValues / kWriters + Word::kEach - 1) / Word::kEach;  // words of a writer
template <class Word>
constexpr uint32_t kRowBytes = kShare<Word>* kWriters* Word::kBytes;

// The content of a word: a known function of its place and round, so that the reader can tell a wrong one.
__device__ uint32_t content(uint32_t place, uint32_t round) { return place * 2654435761u ^ round * 40503u; }

__device__ void put_pair(char* at, uint32_t a, uint32_t b) {
  asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(at), "l"(uint64_t{b} << 32 | a) : "memory");
}
__device__ uint4 get_two(const char* at) {
  uint64_t a, b;
  asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(at) : "memory");
  return make_uint4(static_cast<uint32_t>(a), static_cast<uint32_t>(a >> 32), static_cast<uint32_t>(b),
                    static_cast<uint32_t>(b >> 32));
}
__device__ void put_wide(char* at, uint4 v) {
  const uint64_t low = uint64_t{v.y} << 32 | v.x, high = uint64_t{v.w} << 32 | v.z;
  asm volatile("{.reg .b128 w; mov.b128 w, {%1, %2}; st.relaxed.gpu.global.b128 [%0], w;}" ::"l"(at), "l"(low),
               "l"(high)
               : "memory");
}
__device__ uint4 get_wide(const char* at) {
  uint64_t a, b;
  asm volatile("{.reg .b128 w; ld.relaxed.gpu.global.b128 w, [%2]; mov.b128 {%0, %1}, w;}"
               : "=l"(a), "=l"(b)
               : "l"(at)
               : "memory");
  return make_uint4(static_cast<uint32_t>(a), static_cast<uint32_t>(a >> 32), static_cast<uint32_t>(b),
                    static_cast<uint32_t>(b >> 32));
}

// This block's words of a round.
template <class Word>
__device__ void put_row(char* row, uint32_t round) {
  if (blockIdx.x >= kWriters || threadIdx.x >= kShare<Word>) return;
  const uint32_t place = blockIdx.x * kShare<Word> + threadIdx.x, c = content(place, round);
  if constexpr (Word::kBytes == 8) {
    put_pair(row + place * 8, c, round);
  } else {
    put_wide(row + place * 16, make_uint4(c, ~c, c + 1, round));
  }
}
// All words of a round, each thread its part of them. Returns how many have arrived wrong.
template <class Word>
__device__ uint32_t get_row(const char* row, uint32_t round) {
  uint32_t wrong = 0;
  for (uint32_t at = threadIdx.x; at < kRowBytes<Word> / 16; at += kThreads) {
    uint4 v;
    if constexpr (Word::kBytes == 8) {
      do v = get_two(row + at * 16);
      while (v.y != round || v.w != round);
      wrong += (v.x != content(2 * at, round)) + (v.z != content(2 * at + 1, round));
    } else {
      do v = get_wide(row + at * 16);
      while (v.w != round);
      const uint32_t c = content(at, round);
      wrong += v.x != c || v.y != ~c || v.z != c + 1;
    }
  }
  return wrong;
}
// The same row after a barrier: plain stores, and loads past the first-level cache.
__device__ void put_plain(float* row, uint32_t round) {
  const uint32_t share = kValues / kWriters, place = blockIdx.x * share + threadIdx.x;
  if (blockIdx.x < kWriters && threadIdx.x < share) row[place] = static_cast<float>(place + round);
}
__device__ uint32_t get_plain(const float* row, uint32_t round) {
  const float4 v = __ldcg(reinterpret_cast<const float4*>(row) + threadIdx.x);
  return v.x != static_cast<float>(4 * threadIdx.x + round) || v.w != static_cast<float>(4 * threadIdx.x + 3 + round);
}
static_assert(kValues == 4 * kThreads);

// ---- the load: one warp streams its block's part of a buffer through shared memory

struct Load {
  const char* data;
  uint64_t bytes;
  uint32_t stages;  // 0: no load
};
__device__ uint32_t shared_at(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ void ask(char* to, const char* from, uint64_t* barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_at(barrier)), "r"(kStage) : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_at(to)),
      "l"(from), "r"(kStage), "r"(shared_at(barrier))
      : "memory");
}
// By one thread, until the block's other warps are done. Leaves with nothing on its way; counts the bytes.
__device__ void stream(const Load& load, char* stages, uint64_t* barriers, const volatile uint32_t* done,
                       unsigned long long* moved) {
  const uint64_t part = load.bytes / gridDim.x / kStage * kStage;
  const char* from = load.data + blockIdx.x * part;
  uint64_t at = 0, count = 0;
  const auto next = [&](uint32_t i) {
    ask(stages + i * kStage, from + at, barriers + i);
    at = at + kStage == part ? 0 : at + kStage;
  };
  const auto wait = [&](uint32_t i, uint32_t parity) {
    uint32_t there = 0;
    while (there == 0) {
      asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                   : "=r"(there)
                   : "r"(shared_at(barriers + i)), "r"(parity)
                   : "memory");
    }
  };
  for (uint32_t i = 0; i < load.stages; ++i) next(i);
  for (uint32_t parity = 0;; parity ^= 1) {
    const bool last = *done != 0;
    for (uint32_t i = 0; i < load.stages; ++i) {
      wait(i, parity), ++count;
      if (!last) next(i);
    }
    if (last) break;
  }
  atomicAdd(moved, count * kStage);
}

// ---- kernels

enum class Way { kWords, kGridBarrier, kMeeting };

struct Run {
  char* rows;  // two, in turn: a block that writes round r + 2 has read all of r + 1, written by blocks that had read
               // all of r
  uint32_t rounds;
  Load load;
  long long* ends;  // [blocks][rounds + 1]: the multiprocessor's clock
  unsigned long long *nanoseconds, *moved;
  uint32_t* wrong;
};

__device__ unsigned long long nanoseconds() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}
// The threads that exchange meet; the warp that streams does not.
__device__ void meet() { asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory"); }

template <class Word, Way kWay>
__device__ void rounds(const Run& run) {
  uint32_t wrong = 0;
  if (threadIdx.x == 0) run.ends[uint64_t{blockIdx.x} * (run.rounds + 1)] = clock64();
  const unsigned long long begin = nanoseconds();
  for (uint32_t round = 1; round <= run.rounds; ++round) {
    char* row = run.rows + round % 2 * kRowBytes<FloatWord>;
    if constexpr (kWay == Way::kWords) {
      put_row<Word>(row, round);
      wrong += get_row<Word>(row, round);
    } else if constexpr (kWay == Way::kGridBarrier) {
      put_plain(reinterpret_cast<float*>(row), round);
      cg::this_grid().sync();
      wrong += get_plain(reinterpret_cast<const float*>(row), round);
    }
    meet();
    if (threadIdx.x == 0) run.ends[uint64_t{blockIdx.x} * (run.rounds + 1) + round] = clock64();
  }
  if (threadIdx.x == 0) run.nanoseconds[blockIdx.x] = nanoseconds() - begin;
  if (wrong != 0) atomicAdd(run.wrong, wrong);
}

template <class Word, Way kWay>
__global__ void __launch_bounds__(kThreads + 32, 1) exchange(Run run) {
  extern __shared__ __align__(128) char stages[];
  __shared__ uint64_t barriers[kMostStages];
  __shared__ volatile uint32_t done;
  if (threadIdx.x == 0) {
    for (uint64_t& b : barriers) asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_at(&b)));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    done = 0;
  }
  cg::this_grid().sync();
  if (threadIdx.x < kThreads) {
    rounds<Word, kWay>(run);
    meet();
    if (threadIdx.x == 0) done = 1;
  } else if (threadIdx.x == kThreads && run.load.stages != 0) {
    stream(run.load, stages, barriers, &done, run.moved);
  }
}

// One round as a kernel of its own.
__global__ void __launch_bounds__(kThreads, 1) dependent(Run run, uint32_t round) {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
  auto* rows = reinterpret_cast<float*>(run.rows);
  const uint32_t wrong = round == 1 ? 0 : get_plain(rows + round % 2 * kValues, round - 1);
  __syncthreads();
  put_plain(rows + (round + 1) % 2 * kValues, round);
  if (wrong != 0) atomicAdd(run.wrong, wrong);
}

// ---- the host's side

struct Device {
  uint32_t blocks;
  Run run{};
  Load load{};
};

void report(const char* name, std::vector<double>& us, uint32_t wrong, double rate) {
  std::sort(us.begin(), us.end());
  const auto at = [&](double q) { return us[std::min(us.size() - 1, static_cast<size_t>(q * us.size()))]; };
  double sum = 0;
  for (const double t : us) sum += t;
  std::printf("%-44s %7.3f %7.3f %7.3f %7.3f %7.3f %8.3f %6u %9.2f\n", name, sum / us.size(), at(0.5), at(0.9),
              at(0.99), at(0.999), us.back(), wrong, rate);
}

template <class Word, Way kWay>
void measure(const char* name, Device& d, uint32_t stages) {
  Run run = d.run;
  run.load = {d.load.data, d.load.bytes, stages};
  const uint64_t ends = uint64_t{d.blocks} * (run.rounds + 1);
  check(cudaMemset(run.rows, 0, 2 * kRowBytes<FloatWord>), "clearing");
  check(cudaMemset(run.wrong, 0, sizeof(uint32_t)), "clearing");
  check(cudaMemset(run.moved, 0, sizeof(unsigned long long)), "clearing");
  const auto kernel = exchange<Word, kWay>;
  constexpr int kShared = kMostStages * kStage;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared), "reserving shared memory");
  void* arguments[] = {&run};
  const uint32_t threads = kThreads + (stages != 0 ? 32 : 0);  // a grid barrier takes all threads of a block
  check(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(kernel), d.blocks, threads, arguments, kShared),
        "launching");
  check(cudaDeviceSynchronize(), name);
  std::vector<long long> clocks(ends);
  std::vector<unsigned long long> ns(d.blocks);
  uint32_t wrong = 0;
  unsigned long long moved = 0;
  check(cudaMemcpy(clocks.data(), run.ends, ends * sizeof(long long), cudaMemcpyDeviceToHost), "reading");
  check(cudaMemcpy(ns.data(), run.nanoseconds, d.blocks * sizeof(ns[0]), cudaMemcpyDeviceToHost), "reading");
  check(cudaMemcpy(&wrong, run.wrong, sizeof wrong, cudaMemcpyDeviceToHost), "reading");
  check(cudaMemcpy(&moved, run.moved, sizeof moved, cudaMemcpyDeviceToHost), "reading");
  std::vector<double> us;
  for (uint32_t b = 0; b < d.blocks; ++b) {
    const long long* c = clocks.data() + uint64_t{b} * (run.rounds + 1);
    const double per_cycle = ns[b] * 1e-3 / static_cast<double>(c[run.rounds] - c[0]);
    for (uint32_t r = kWarmUp + 1; r <= run.rounds; ++r) us.push_back((c[r] - c[r - 1]) * per_cycle);
  }
  char line[96];
  std::snprintf(line, sizeof line, stages == 0 ? "%s" : "%s, %u KB under way", name, stages * kStage / 1024);
  report(line, us, wrong, moved / 1e3 / ns[0]);
}

// Kernels of one round each, as a graph: the whole divided by their number.
void measure_dependent(Device& d) {
  constexpr uint32_t kKernels = 1000, kTimes = 30;
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaMemset(d.run.wrong, 0, sizeof(uint32_t)), "clearing");
  check(cudaStreamCreate(&stream), "a stream");
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "a graph");
  for (uint32_t i = 1; i <= kKernels; ++i) {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = d.blocks, config.blockDim = kThreads, config.stream = stream;
    config.attrs = &attribute, config.numAttrs = i == 1 ? 0 : 1;
    check(cudaLaunchKernelEx(&config, dependent, d.run, i), "recording");
  }
  check(cudaStreamEndCapture(stream, &graph), "a graph");
  check(cudaGraphInstantiate(&executable, graph, 0), "a graph");
  check(cudaEventCreate(&begin), "an event");
  check(cudaEventCreate(&end), "an event");
  std::vector<double> us;
  for (uint32_t i = 0; i < kTimes; ++i) {
    check(cudaEventRecord(begin, stream), "an event");
    check(cudaGraphLaunch(executable, stream), "launching");
    check(cudaEventRecord(end, stream), "an event");
    check(cudaStreamSynchronize(stream), "dependent launches");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "an event");
    if (i >= 3) us.push_back(ms * 1e3 / kKernels);
  }
  uint32_t wrong = 0;
  check(cudaMemcpy(&wrong, d.run.wrong, sizeof wrong, cudaMemcpyDeviceToHost), "reading");
  report("a dependent launch (means of 1,000)", us, wrong, 0);
}

}  // namespace

int main(int count, char** arguments) {
  Device d{};
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "no device");
  d.blocks = static_cast<uint32_t>(properties.multiProcessorCount);
  if (properties.major != 9 || d.blocks < kWriters) {
    std::fprintf(stderr, "exchange: needs a Hopper GPU of %u multiprocessors or more\n", kWriters);
    return 1;
  }
  d.run.rounds = kWarmUp + (count > 1 ? static_cast<uint32_t>(std::max(1, std::atoi(arguments[1]))) : 20000);
  char* data = nullptr;
  d.load.bytes = uint64_t{4} << 30;
  check(cudaMalloc(&data, d.load.bytes), "4 GiB to stream");
  check(cudaMemset(data, 1, d.load.bytes), "filling");
  d.load.data = data;
  check(cudaMalloc(&d.run.rows, 2 * kRowBytes<FloatWord>), "memory");
  check(cudaMalloc(&d.run.ends, uint64_t{d.blocks} * (d.run.rounds + 1) * sizeof(long long)), "memory");
  check(cudaMalloc(&d.run.nanoseconds, d.blocks * sizeof(unsigned long long)), "memory");
  check(cudaMalloc(&d.run.moved, sizeof(unsigned long long)), "memory");
  check(cudaMalloc(&d.run.wrong, sizeof(uint32_t)), "memory");
  std::printf("%s, %u blocks, %u rounds\n", properties.name, d.blocks, d.run.rounds - kWarmUp);
  std::printf("%-44s %7s %7s %7s %7s %7s %8s %6s %9s\n", "us a round", "mean", "median", "90%", "99%", "99.9%", "most",
              "wrong", "load TB/s");
  for (const uint32_t stages : {0, 1, 2, 4, 8}) {
    measure<FloatWord, Way::kMeeting>("the meeting of a block alone", d, stages);
    measure<FloatWord, Way::kWords>(FloatWord::kName, d, stages);
    measure<PairWord, Way::kWords>(PairWord::kName, d, stages);
    measure<WideWord, Way::kWords>(WideWord::kName, d, stages);
  }
  measure<FloatWord, Way::kGridBarrier>("a grid barrier, fp32", d, 0);
  measure_dependent(d);
  return 0;
}
