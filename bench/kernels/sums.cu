// SPDX-License-Identifier: Apache-2.0
// sums: what it costs that the blocks of a kernel add their parts of a row to sums in the device's memory, instead of
// each block writing whole values of it (Hopper GPUs).
//
// A graph of 1,000 kernels, each a programmatic dependent of the one before, two kinds in turn. The first has 144
// blocks of 256 threads, some of them in clusters. Each block adds its share of a row of 2,048 values to the row's
// sums: if blocks have 1/n of the row each, every sum gets 144 / n additions. The second kind, 132 blocks of 512
// threads, reads a row of fp32 and the sums, and writes a row of fp32, 16 values a block, which the next kernel reads.
// Without sums both kinds read and write such a row. Forms of a sum:
//   u64    fixed point with a unit of 2^-32: exact, so that the order of the additions does not matter
//   u32    the same with 32 bits
//   f32    four floats an instruction; or ("bulk") each warp's by one reduction of the copy engine from shared memory.
//          The order matters, but not for the small integers added here
// A warp adds 32 integers that follow each other by one instruction, in the order in which the matrix instructions
// leave results. "Adding alone", the second kind reads no sums; "copies" are rows of sums, one for each addition to a
// sum; "turned", each block begins at another place of its share; "logits", 256 more sums.
//
// There are three rows of sums in turn. The second kernel that reads one clears the next one.
//
// Each form is also measured beside a load: every block requests so many bytes of a large buffer with the copy engine
// before it waits for the kernel before, and has them before it puts its values.
//
// Printed: microseconds a kernel, the median of the graphs; and how many values were read wrong (0).
//
//   nvcc -std=c++20 -O3 -gencode arch=compute_90a,code=sm_90a -o sums bench/kernels/sums.cu
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr uint32_t kValues = 2048, kLogits = 256, kRow = kValues + kLogits;
constexpr uint32_t kWriters = 128, kWritten = kValues / kWriters;  // blocks that write fp32 values, and how many each
constexpr uint32_t kStage = 16 * 1024;                             // bytes of a request
constexpr uint64_t kData = uint64_t{4} << 30;
constexpr float kUnit = 4294967296.0f;  // of fixed point: 2^32

void check(cudaError_t e, const char* what) {
  if (e == cudaSuccess) return;
  std::fprintf(stderr, "sums: %s: %s\n", what, cudaGetErrorString(e));
  std::exit(1);
}

// kBulk, kBulkFloat: by the copy engine. kStores: as kWide, but stored.
enum class Sum { kNone, kWide, kNarrow, kFloat, kBulk, kBulkFloat, kStores };
__host__ __device__ constexpr uint32_t bytes_of(Sum s) {
  return s == Sum::kWide || s == Sum::kBulk || s == Sum::kStores ? 8 : 4;
}

// What a kernel reads and puts. Null: nothing.
struct Round {
  const float* row_in;
  const char* sums_in;
  float* row_out;
  char *sums_out, *clear;
  uint32_t row_round, sums_round, round;  // numbers of what is read and put; 0 is not checked
  uint32_t shares;                        // blocks of a row of sums
  uint32_t turned;                        // each block begins at another place of its share
  uint32_t adders, logit_adders, copies;  // `copies` rows of sums lie after each other; a block adds to one of them
  const char* data;
  uint32_t load;  // bytes a block
  uint64_t part;  // the kernel's place in the chain, for other bytes in each
  uint32_t* wrong;
};

// ---- the load

__device__ uint32_t shared_at(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ void request(const Round& a, char* to, uint64_t* barrier) {
  const uint64_t at = (a.part * gridDim.x + blockIdx.x) * a.load % (kData - a.load) / 128 * 128;
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_at(barrier)), "r"(a.load) : "memory");
  for (uint32_t i = 0; i < a.load; i += kStage) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_at(to + i)),
                 "l"(a.data + at + i), "r"(kStage), "r"(shared_at(barrier))
                 : "memory");
  }
}
__device__ void arrived(uint64_t* barrier) {
  uint32_t there = 0;
  while (there == 0) {
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}"
                 : "=r"(there)
                 : "r"(shared_at(barrier))
                 : "memory");
  }
}

// ---- values: known functions of place and round

__device__ float written(uint32_t place, uint32_t round) { return static_cast<float>(place + round); }
__device__ float added(uint32_t place, uint32_t adder, uint32_t round) {
  return static_cast<float>(place % 64 + adder + round);
}
__device__ float expected(uint32_t place, uint32_t adders, uint32_t round) {
  return static_cast<float>(adders * (place % 64 + round) + adders * (adders - 1) / 2);
}

// Places a thread reads follow each other by four.
template <Sum kIn, uint32_t kThreads>
__device__ uint32_t get(const Round& a) {
  constexpr uint32_t kEach = kValues / 4 / kThreads;
  uint32_t wrong = 0;
  float4 row[kEach];  // requested before the sums are used
#pragma unroll
  for (uint32_t n = 0; n < kEach; ++n) {
    row[n] = __ldcg(reinterpret_cast<const float4*>(a.row_in) + n * kThreads + threadIdx.x);
  }
  if constexpr (kIn != Sum::kNone) {
    const uint32_t all = a.logit_adders != 0 ? kRow : kValues;
    for (uint32_t i = threadIdx.x * 4; i < all; i += kThreads * 4) {
      float r[4];
      const char* at = a.sums_in + i * bytes_of(kIn);
      if constexpr (bytes_of(kIn) == 8) {
        const longlong2 v = __ldcg(reinterpret_cast<const longlong2*>(at));
        const longlong2 w = __ldcg(reinterpret_cast<const longlong2*>(at) + 1);
        r[0] = __ll2float_rn(v.x) / kUnit, r[1] = __ll2float_rn(v.y) / kUnit;
        r[2] = __ll2float_rn(w.x) / kUnit, r[3] = __ll2float_rn(w.y) / kUnit;
      } else if constexpr (kIn == Sum::kNarrow) {
        const int4 v = __ldcg(reinterpret_cast<const int4*>(at));
        r[0] = v.x, r[1] = v.y, r[2] = v.z, r[3] = v.w;
      } else {
        const float4 v = __ldcg(reinterpret_cast<const float4*>(at));
        r[0] = v.x, r[1] = v.y, r[2] = v.z, r[3] = v.w;
      }
      for (uint32_t k = 0; k < 4; ++k) {
        const float sum = expected(i + k, i < kValues ? a.adders : a.logit_adders, a.sums_round);
        wrong += a.sums_round != 0 && r[k] != sum;
      }
    }
  }
#pragma unroll
  for (uint32_t n = 0; n < kEach; ++n) {
    const float r[4] = {row[n].x, row[n].y, row[n].z, row[n].w};
    const uint32_t i = (n * kThreads + threadIdx.x) * 4;
    for (uint32_t k = 0; k < 4; ++k) wrong += a.row_round != 0 && r[k] != written(i + k, a.row_round);
  }
  return wrong;
}

__device__ void add_wide(char* at, float v) {
  asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(at), "l"(__float2ll_rn(v * kUnit)) : "memory");
}

// A block's share of the sums, and of the logits' if there are any.
template <Sum kOut, uint32_t kThreads>
__device__ void put(const Round& a, char* staged) {
  const uint32_t share = kValues / a.shares, rank = blockIdx.x % a.shares, adder = blockIdx.x / a.shares;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t copy = adder % a.copies * kRow;
  if constexpr (kOut == Sum::kFloat) {
    for (uint32_t i = threadIdx.x * 4; i < share; i += kThreads * 4) {
      const uint32_t place = rank * share + (a.turned != 0 ? (i + adder * 32) % share : i);
      asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(a.sums_out + (copy + place) * 4),
                   "f"(added(place, adder, a.round)), "f"(added(place + 1, adder, a.round)),
                   "f"(added(place + 2, adder, a.round)), "f"(added(place + 3, adder, a.round))
                   : "memory");
    }
  } else {
    const uint32_t each = share / (kThreads / 32) < 32 ? 32 : share / (kThreads / 32);  // values of a warp
    for (uint32_t i = 0; i < each && warp * each < share; i += 32) {
      uint32_t mine = warp * each + i + lane % 4 * 8 + lane / 4;
      if (a.turned != 0) mine = (mine + adder * 32) % share;
      const uint32_t place = rank * share + mine;
      const float v = added(place, adder, a.round);
      if constexpr (kOut == Sum::kWide) {
        add_wide(a.sums_out + (copy + place) * 8, v);
      } else if constexpr (kOut == Sum::kNarrow) {
        asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(a.sums_out + (copy + place) * 4),
                     "r"(__float2int_rn(v))
                     : "memory");
      } else if constexpr (kOut == Sum::kStores) {
        reinterpret_cast<long long*>(a.sums_out)[copy + place] = __float2ll_rn(v * kUnit);
      } else if constexpr (kOut == Sum::kBulkFloat) {
        reinterpret_cast<float*>(staged)[mine] = v;
      } else {
        reinterpret_cast<long long*>(staged)[mine] = __float2ll_rn(v * kUnit);
      }
    }
    if constexpr (kOut == Sum::kBulk || kOut == Sum::kBulkFloat) {
      constexpr uint32_t kBytes = bytes_of(kOut);
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      __syncwarp();
      if (lane == 0 && warp * each < share) {
        char* to = a.sums_out + (copy + rank * share + warp * each) * kBytes;
        const uint32_t from = shared_at(staged + warp * each * kBytes);
        if constexpr (kOut == Sum::kBulk) {
          asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u64 [%0], [%1], %2;" ::"l"(to),
                       "r"(from), "r"(each * kBytes)
                       : "memory");
        } else {
          asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
                       "r"(from), "r"(each * kBytes)
                       : "memory");
        }
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
      }
    }
  }
  if (kOut == Sum::kWide && a.logit_adders != 0 && threadIdx.x < kLogits / a.shares) {
    const uint32_t place = kValues + rank * (kLogits / a.shares) + threadIdx.x;
    add_wide(a.sums_out + (copy + place) * 8, added(place, adder, a.round));
  }
}

template <Sum kIn, Sum kOut, uint32_t kThreads>
__global__ void __launch_bounds__(kThreads, 1) round(Round a) {
  extern __shared__ __align__(128) char memory[];
  __shared__ uint64_t barrier;
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_at(&barrier)));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    if (a.load != 0) request(a, memory, &barrier);
  }
  asm volatile("griddepcontrol.wait;" ::: "memory");
  const uint32_t wrong = get<kIn, kThreads>(a);
  if (wrong != 0) atomicAdd(a.wrong, wrong);
  if (a.clear != nullptr) {
    constexpr uint32_t kWords = kRow / 2;  // of 16 bytes
    const uint32_t at = blockIdx.x * kThreads + threadIdx.x;
    if (at < kWords) reinterpret_cast<uint4*>(a.clear)[at] = make_uint4(0, 0, 0, 0);
  }
  __syncthreads();
  if (a.load != 0) arrived(&barrier);
  if (a.row_out != nullptr && blockIdx.x < kWriters && threadIdx.x < kWritten) {
    const uint32_t place = blockIdx.x * kWritten + threadIdx.x;
    a.row_out[place] = written(place, a.round);
  }
  if constexpr (kOut != Sum::kNone) put<kOut, kThreads>(a, memory + a.load);
}

// ---- the host's side

using Kernel = void (*)(Round);
struct Shape {
  Kernel kernel;
  uint32_t blocks, threads, cluster;
};
struct Form {
  const char* name;
  Sum in, out;  // what the second kernel reads and the first one puts
  uint32_t shares, cluster;
  uint32_t copies = 1, turned = 0, clears = 1, logit_adders = 0, blocks = 144;
};
struct Load {
  const char* name;
  uint32_t bytes;
};
struct Device {
  float* rows;
  char *sums, *data;
  uint32_t* wrong;
  cudaStream_t stream;
  cudaEvent_t begin, end;
};

constexpr uint32_t kKernels = 1000;
constexpr uint32_t kMostCopies = 36;
constexpr uint64_t kSumsBytes = uint64_t{kMostCopies} * kRow * 8;

void launch(const Device& d, const Shape& s, const Round& round, bool first) {
  cudaLaunchAttribute attributes[2] = {};
  uint32_t count = 0;
  if (s.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim = {s.cluster, 1, 1};
    ++count;
  }
  if (!first) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count].val.programmaticStreamSerializationAllowed = 1;
    ++count;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = s.blocks, config.blockDim = s.threads, config.stream = d.stream;
  config.dynamicSmemBytes = round.load + 8 * 1024;
  config.attrs = attributes, config.numAttrs = count;
  check(cudaLaunchKernelEx(&config, s.kernel, round), "recording");
}

Shape reader_of(Sum in) {
  const Kernel kernel = in == Sum::kNone     ? round<Sum::kNone, Sum::kNone, 512>
                        : in == Sum::kWide   ? round<Sum::kWide, Sum::kNone, 512>
                        : in == Sum::kNarrow ? round<Sum::kNarrow, Sum::kNone, 512>
                                             : round<Sum::kFloat, Sum::kNone, 512>;
  return {kernel, 132, 512, 1};
}
Kernel adder_of(Sum out) {
  const Kernel all[] = {round<Sum::kNone, Sum::kNone, 256>,   round<Sum::kNone, Sum::kWide, 256>,
                        round<Sum::kNone, Sum::kNarrow, 256>, round<Sum::kNone, Sum::kFloat, 256>,
                        round<Sum::kNone, Sum::kBulk, 256>,   round<Sum::kNone, Sum::kBulkFloat, 256>,
                        round<Sum::kNone, Sum::kStores, 256>};
  return all[static_cast<uint32_t>(out)];
}

double measure(const Device& d, const Form& f, const Load& load, uint32_t* wrong) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  const Shape adds{adder_of(f.out), f.blocks, 256, f.cluster}, reads = reader_of(f.in);
  for (const Shape& s : {adds, reads}) {
    const void* kernel = reinterpret_cast<const void*>(s.kernel);
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 112 * 1024), "shared memory");
  }
  check(cudaMemset(d.wrong, 0, sizeof(uint32_t)), "clearing");
  check(cudaStreamBeginCapture(d.stream, cudaStreamCaptureModeRelaxed), "a graph");
  check(cudaMemsetAsync(d.rows, 0, 2 * kValues * sizeof(float), d.stream), "clearing");
  check(cudaMemsetAsync(d.sums, 0, 3 * kSumsBytes, d.stream), "clearing");
  Round a{};
  a.shares = f.shares, a.copies = f.copies, a.wrong = d.wrong, a.turned = f.turned;
  a.adders = f.out == Sum::kNone ? 0 : f.blocks / f.shares, a.logit_adders = f.logit_adders;
  a.data = d.data, a.load = load.bytes;
  const auto row = [&](uint32_t round) { return d.rows + round % 2 * kValues; };
  const auto sums = [&](uint32_t round) { return d.sums + round % 3 * kSumsBytes; };
  const bool with_sums = f.in != Sum::kNone || f.out != Sum::kNone;
  for (uint32_t n = 1; n <= kKernels; ++n) {
    const bool second = n % 2 == 0;
    const uint32_t r = with_sums ? (n + 1) / 2 : n;  // without sums, both kernels write the row
    Round x = a;
    x.part = n, x.round = r, x.row_in = row(r - 1), x.row_round = r - 1;
    if (!with_sums || second) x.row_out = row(r);
    if (with_sums) {
      x.sums_round = second && f.copies == 1 ? r : 0;
      x.sums_in = sums(r), x.sums_out = sums(r);
      if (second && f.clears != 0) x.clear = sums(r + 1);
    }
    launch(d, second ? reads : adds, x, n == 1);
  }
  check(cudaStreamEndCapture(d.stream, &graph), "a graph");
  check(cudaGraphInstantiate(&executable, graph, 0), "a graph");
  std::vector<double> us;
  const uint32_t times = load.bytes == 0 ? 30 : 16;
  for (uint32_t i = 0; i < times + 3; ++i) {
    check(cudaEventRecord(d.begin, d.stream), "an event");
    check(cudaGraphLaunch(executable, d.stream), "launching");
    check(cudaEventRecord(d.end, d.stream), "an event");
    check(cudaStreamSynchronize(d.stream), f.name);
    float ms = 0;
    check(cudaEventElapsedTime(&ms, d.begin, d.end), "an event");
    if (i >= 3) us.push_back(ms * 1e3 / kKernels);
  }
  check(cudaGraphExecDestroy(executable), "a graph");
  check(cudaGraphDestroy(graph), "a graph");
  uint32_t w = 0;
  check(cudaMemcpy(&w, d.wrong, sizeof w, cudaMemcpyDeviceToHost), "reading");
  *wrong += w;
  std::sort(us.begin(), us.end());
  return us[us.size() / 2];
}

}  // namespace

int main() {
  Device d{};
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "no device");
  if (properties.major != 9 || properties.multiProcessorCount < 132) {
    std::fprintf(stderr, "sums: needs a Hopper GPU of 132 multiprocessors\n");
    return 1;
  }
  check(cudaMalloc(&d.data, kData), "4 GiB to load");
  check(cudaMemset(d.data, 1, kData), "filling");
  check(cudaMalloc(&d.rows, 2 * kValues * sizeof(float)), "memory");
  check(cudaMalloc(&d.sums, 3 * kSumsBytes), "memory");
  check(cudaMalloc(&d.wrong, sizeof(uint32_t)), "memory");
  check(cudaStreamCreate(&d.stream), "a stream");
  check(cudaEventCreate(&d.begin), "an event");
  check(cudaEventCreate(&d.end), "an event");

  using enum Sum;
  const Form forms[] = {
      {"no sums, 144 blocks", kNone, kNone, 1, 1},
      {"no sums, in pairs", kNone, kNone, 1, 2},
      {"no sums, in fours", kNone, kNone, 1, 4},
      {"no sums, in eights", kNone, kNone, 1, 8},
      {"reading u64 alone", kWide, kNone, 4, 4, 1, 0, 0},
      {"reading and clearing u64 alone", kWide, kNone, 4, 4},
      {"reading and clearing f32 alone", kFloat, kNone, 4, 4},
      {"u64, fours", kWide, kWide, 4, 4},
      {"u64, fours, turned", kWide, kWide, 4, 4, 1, 1},
      {"u64, fours, adding alone", kNone, kWide, 4, 4, 1, 0, 0},
      {"u64, fours, adding alone, 36 copies", kNone, kWide, 4, 4, 36, 0, 0},
      {"u64, fours, stores to 36 copies", kNone, kStores, 4, 4, 36, 0, 0},
      {"u64 bulk, fours", kWide, kBulk, 4, 4},
      {"u64, eights", kWide, kWide, 8, 8},
      {"u64, eights, turned", kWide, kWide, 8, 8, 1, 1},
      {"u64, eights, adding alone", kNone, kWide, 8, 8, 1, 0, 0},
      {"u64, 16ths, not in clusters", kWide, kWide, 16, 1},
      {"u64, 64ths, not in clusters", kWide, kWide, 64, 1, 1, 0, 1, 0, 128},
      {"u64, 128 in fours, logits", kWide, kWide, 4, 4, 1, 0, 1, 32, 128},
      {"u64, 128 in eights, logits", kWide, kWide, 8, 8, 1, 0, 1, 16, 128},
      {"u32, fours", kNarrow, kNarrow, 4, 4},
      {"u32, eights", kNarrow, kNarrow, 8, 8},
      {"f32 by four, pairs", kFloat, kFloat, 2, 2},
      {"f32 by four, fours", kFloat, kFloat, 4, 4},
      {"f32 by four, fours, turned", kFloat, kFloat, 4, 4, 1, 1},
      {"f32 by four, fours, adding alone", kNone, kFloat, 4, 4, 1, 0, 0},
      {"f32 by four, fours, adding alone, 36 copies", kNone, kFloat, 4, 4, 36, 0, 0},
      {"f32 by four, eights", kFloat, kFloat, 8, 8},
      {"f32 by four, 16ths, not in clusters", kFloat, kFloat, 16, 1},
      {"f32 bulk, pairs", kFloat, kBulkFloat, 2, 2},
      {"f32 bulk, fours", kFloat, kBulkFloat, 4, 4},
      {"f32 bulk, eights", kFloat, kBulkFloat, 8, 8},
  };
  const Load loads[] = {{"none", 0}, {"32 KB", 32768}, {"64 KB", 65536}, {"96 KB", 98304}};
  std::printf("%s, us a kernel, medians\n%-44s", properties.name, "load:");
  for (const Load& l : loads) std::printf(" %11s", l.name);
  std::printf(" %6s\n", "wrong");
  for (const Form& form : forms) {
    uint32_t wrong = 0;
    std::printf("%-44s", form.name);
    for (const Load& l : loads) std::printf(" %11.3f", measure(d, form, l, &wrong));
    std::printf(" %6u\n", wrong);
    std::fflush(stdout);
  }
  return 0;
}
