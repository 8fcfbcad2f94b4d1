// SPDX-License-Identifier: Apache-2.0
// CUDA's runtime for one emulated device of the capability and the memory that SWITCHYARD_EMULATED_CAPABILITY and
// SWITCHYARD_EMULATED_MEMORY say. Streams run what they get at once.
#include <cuda.h>
#include <cuda_runtime.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <set>

#include "machine/machine.h"

struct EmulatedStream {
  bool captures = false;
  std::vector<emulated::Launch> captured;
};
struct EmulatedGraph {
  std::vector<emulated::Launch> launches;
};

namespace emulated {
namespace {

constexpr size_t kSmallMemory = 48 * 1024, kMostOfHost = size_t{16} << 30;
constexpr int kGarbage = 0xff;
constexpr uint32_t kMostThreads = 1024, kPortableCluster = 8, kMostCluster = 16;

std::recursive_mutex mutex;
std::set<const void*> large;            // kernels that may have clusters of more than kPortableCluster blocks
std::map<const void*, size_t> allowed;  // dynamic memory of kernels that may have more than kSmallMemory
std::map<void*, size_t> taken;          // of the device's memory

// Read again each time, so that a test can change it.
size_t memory_bytes() {
  const char* mib = std::getenv("SWITCHYARD_EMULATED_MEMORY");
  return (mib == nullptr ? size_t{16384} : std::strtoul(mib, nullptr, 10)) << 20;
}
size_t free_bytes() {
  const std::lock_guard lock(mutex);
  size_t used = 0;
  for (const auto& [p, bytes] : taken) used += bytes;
  return memory_bytes() - std::min(used, memory_bytes());
}

cudaError_t run_now(std::vector<Launch>& launches) {
  const DriverMemory memory;
  const std::lock_guard lock(mutex);
  return run(launches) ? cudaSuccess : cudaErrorLaunchFailure;
}
cudaError_t state() { return failed() ? cudaErrorLaunchFailure : cudaSuccess; }

cudaError_t take_of_host(void** p, size_t bytes, size_t alignment) {
  *p = nullptr;
  if (bytes > kMostOfHost || posix_memalign(p, alignment, bytes == 0 ? 1 : bytes) != 0)
    return cudaErrorMemoryAllocation;
  std::memset(*p, kGarbage, bytes);
  return cudaSuccess;
}
cudaError_t take(void** p, size_t bytes) {
  const DriverMemory memory;
  const std::lock_guard lock(mutex);
  *p = nullptr;
  if (bytes > free_bytes()) return cudaErrorMemoryAllocation;
  const cudaError_t e = take_of_host(p, bytes, 256);
  if (e == cudaSuccess) taken[*p] = bytes;
  return e;
}
cudaError_t give_back(void* p) {
  const std::lock_guard lock(mutex);
  taken.erase(p);
  std::free(p);
  return cudaSuccess;
}

}  // namespace

cudaError_t record(const cudaLaunchConfig_t& c, const void* kernel, std::function<void()> body) {
  Launch l;
  l.kernel = kernel, l.body = std::move(body), l.grid = c.gridDim, l.block = c.blockDim;
  l.dynamic_bytes = c.dynamicSmemBytes;
  for (unsigned i = 0; i < c.numAttrs; ++i) {
    const cudaLaunchAttribute& a = c.attrs[i];
    if (a.id == cudaLaunchAttributeClusterDimension) l.cluster = a.val.clusterDim.x;
    if (a.id == cudaLaunchAttributeProgrammaticStreamSerialization) {
      l.overlaps = a.val.programmaticStreamSerializationAllowed != 0;
    }
  }
  const uint64_t threads = uint64_t{c.blockDim.x} * c.blockDim.y * c.blockDim.z;
  if (threads == 0 || threads > kMostThreads || l.cluster == 0 || l.cluster > kMostCluster ||
      c.gridDim.x % l.cluster != 0 || c.gridDim.x == 0 || c.gridDim.y == 0 || c.gridDim.z == 0 || c.gridDim.y > 65535 ||
      c.gridDim.z > 65535) {
    return cudaErrorInvalidConfiguration;
  }
  const std::lock_guard lock(mutex);
  if (l.cluster > kPortableCluster && !large.contains(kernel)) return cudaErrorInvalidConfiguration;
  if (l.dynamic_bytes > kSmallMemory && l.dynamic_bytes > allowed[kernel]) return cudaErrorInvalidValue;
  if (l.dynamic_bytes > card().block_memory()) return cudaErrorInvalidValue;
  if (card().capability < 90 && (l.cluster > 1 || l.overlaps)) return cudaErrorNotSupported;
  if (c.stream != nullptr && c.stream->captures) {
    c.stream->captured.push_back(std::move(l));
    return cudaSuccess;
  }
  std::vector<Launch> one;
  one.push_back(std::move(l));
  return run_now(one);
}

}  // namespace emulated

using namespace emulated;  // NOLINT: the functions below are CUDA's, in no namespace

cudaError_t cudaGetLastError() { return state(); }
const char* cudaGetErrorString(cudaError_t e) {
  return e == cudaSuccess              ? "no error"
         : e == cudaErrorLaunchFailure ? "a kernel failed; stderr says how"
                                       : "an emulated error";
}
const char* cudaGetErrorName(cudaError_t e) {
  switch (e) {
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    default:
      return "cudaError";
  }
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  *p = {};
  std::snprintf(p->name, sizeof p->name, "emulated device of %u multiprocessors", processors());
  p->major = static_cast<int>(card().capability / 10), p->minor = static_cast<int>(card().capability % 10);
  p->multiProcessorCount = static_cast<int>(processors()), p->memoryPoolsSupported = 0;
  p->sharedMemPerBlockOptin = card().block_memory(), p->sharedMemPerMultiprocessor = card().processor_memory;
  p->reservedSharedMemPerBlock = kBlockMemory, p->totalGlobalMem = memory_bytes();
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) {
  *value = which == cudaDevAttrMemoryClockRate ? 2619000 : which == cudaDevAttrGlobalMemoryBusWidth ? 5120 : 1980000;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return state(); }
cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }

static CUresult write_value(CUstream, CUdeviceptr at, cuuint64_t value, unsigned) {
  if (failed()) return 719;
  __atomic_store_n(reinterpret_cast<uint64_t*>(at), value, __ATOMIC_RELEASE);
  return CUDA_SUCCESS;
}
cudaError_t cudaGetDriverEntryPoint(const char* name, void** found, unsigned, cudaDriverEntryPointQueryResult* how) {
  *found = std::strcmp(name, "cuTensorMapEncodeTiled") == 0 ? reinterpret_cast<void*>(&cuTensorMapEncodeTiled)
           : std::strcmp(name, "cuStreamWriteValue64") == 0 ? reinterpret_cast<void*>(&write_value)
                                                            : nullptr;
  *how = *found == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** p, size_t bytes) { return take(p, bytes); }
cudaError_t cudaFree(void* p) { return give_back(p); }
cudaError_t cudaMallocAsync(void** p, size_t bytes, cudaStream_t) { return take(p, bytes); }
cudaError_t cudaFreeAsync(void* p, cudaStream_t) { return give_back(p); }
cudaError_t cudaHostAlloc(void** p, size_t bytes, unsigned) { return take_of_host(p, bytes, 64); }
cudaError_t cudaFreeHost(void* p) { return std::free(p), cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return *free = free_bytes(), *total = memory_bytes(), cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  const std::lock_guard lock(mutex);
  if (bytes != 0) std::memcpy(to, from, bytes);
  return state();
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpy(to, from, bytes, kind);
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  const std::lock_guard lock(mutex);
  if (bytes != 0) std::memset(to, value, bytes);
  return state();
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  if (stream != nullptr && stream->captures) return cudaErrorStreamCaptureUnsupported;
  return cudaMemset(to, value, bytes);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const DriverMemory memory;
  return *stream = new EmulatedStream, cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  const std::lock_guard lock(mutex);
  return state();
}
cudaError_t cudaStreamQuery(cudaStream_t) { return state(); }
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  return stream->captures = true, cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const DriverMemory memory;
  stream->captures = false;
  *graph = new EmulatedGraph{std::move(stream->captured)};
  stream->captured.clear();
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  const DriverMemory memory;
  return *event = new EmulatedEvent, cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return state(); }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return state(); }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) {
  const DriverMemory memory;
  *out = new EmulatedGraph;
  for (const Launch& l : graph->launches) {
    Launch& copy = (*out)->launches.emplace_back();
    copy.kernel = l.kernel, copy.body = l.body, copy.grid = l.grid, copy.block = l.block, copy.cluster = l.cluster;
    copy.dynamic_bytes = l.dynamic_bytes, copy.overlaps = l.overlaps;
  }
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t) {
  if (failed()) return cudaErrorLaunchFailure;
  return run_now(graph->launches);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return cudaGraphDestroy(graph); }

cudaError_t cudaFuncGetName(const char** name, const void* function) {
  const DriverMemory memory;
  static std::set<std::string> names;
  const std::lock_guard lock(mutex);
  *name = names.insert(name_of(function)).first->c_str();
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute which, int value) {
  const DriverMemory memory;
  const std::lock_guard lock(mutex);
  if (which == cudaFuncAttributeNonPortableClusterSizeAllowed && value != 0) large.insert(function);
  if (which != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || static_cast<size_t>(value) > card().block_memory()) return cudaErrorInvalidValue;
  allowed[function] = static_cast<size_t>(value);
  return cudaSuccess;
}
// The compiler does not say what a kernel has declared; kernels that ask have less.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void* function) {
  const DriverMemory memory;
  const std::lock_guard lock(mutex);
  const auto limit = static_cast<int>(std::max(allowed[function], kSmallMemory));
  return *out = {2048, 1024, 64, static_cast<int>(card().capability), limit}, cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void*, const cudaLaunchConfig_t* c) {
  uint32_t cluster = 1;
  for (unsigned i = 0; i < c->numAttrs; ++i) {
    if (c->attrs[i].id == cudaLaunchAttributeClusterDimension) cluster = c->attrs[i].val.clusterDim.x;
  }
  *clusters = static_cast<int>(resident_blocks(c->blockDim, c->dynamicSmemBytes) / std::max(1u, cluster));
  return cudaSuccess;
}
