// SPDX-License-Identifier: Apache-2.0
// A layer between the loader and the driver that makes Vulkan fail as told, for tests of what the backend then says.
//
// SWITCHYARD_VULKAN_FAULT is one of
//   no-instance, no-devices, old, no-compute, no-addresses, no-timelines, no-int64, little-shared, no-device
//   lost=N      the device is lost in its N-th submission
//   memory=N    the device has N MiB of memory, and imports none of the host's
//   no-calibration  the driver does not read its clock and the host's at one instant
//   no-import   the driver refuses memory of the host's when it is to be imported
//   ticks=N     timestamps have N bits and wrap around
//   inexact     the first launch of a device, which checks the sampler's arithmetic, leaves nothing
//   discrete    nothing fails; the device's memory is not the host's, as on a card
//   invalid     a semaphore with flags that there are not: the validation layers must object
//   hazard      every copy twice without a barrier: synchronization validation must object
//   count       nothing fails; on standard error, how many bytes of compiled pipelines came with each cache of them;
//               at the end, how many submissions, allocations and command pools there were
#include <vulkan/vk_layer.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace {

// Of the next layer, or the driver. One instance at a time, and devices of one driver, whose functions are the same.
PFN_vkGetInstanceProcAddr next_instance = nullptr;
PFN_vkGetDeviceProcAddr next_device = nullptr;
PFN_vkEnumeratePhysicalDevices next_enumerate = nullptr;
PFN_vkEnumerateDeviceExtensionProperties next_extensions = nullptr;
PFN_vkGetPhysicalDeviceFeatures2 next_features = nullptr;
PFN_vkGetPhysicalDeviceMemoryProperties2 next_memory_properties = nullptr;
PFN_vkGetPhysicalDeviceProperties2 next_properties = nullptr;
PFN_vkGetPhysicalDeviceQueueFamilyProperties next_queue_families = nullptr;
VkInstance instance = VK_NULL_HANDLE;
std::atomic<uint64_t> submissions{0}, made{0};  // made: allocations and command pools
std::mutex mutex;                               // over what follows
std::map<VkDeviceMemory, uint64_t> allocated;
uint64_t allocated_bytes = 0;

std::string_view fault() {
  const char* text = std::getenv("SWITCHYARD_VULKAN_FAULT");
  return text == nullptr ? "" : text;
}

// N of "NAME=N"; 0: another fault is active.
uint64_t number_of(std::string_view name) {
  const std::string text(fault());
  if (text.compare(0, name.size(), name) != 0 || text.size() <= name.size() || text[name.size()] != '=') return 0;
  return std::strtoull(text.c_str() + name.size() + 1, nullptr, 10);
}

bool is_lost() {
  const uint64_t n = number_of("lost");
  return n != 0 && submissions >= n;
}

template <class F>
void load(F& f, const char* name) {
  f = reinterpret_cast<F>(next_instance(instance, name));
}
template <class F>
F device_function(VkDevice device, const char* name) {
  return reinterpret_cast<F>(next_device(device, name));
}

// The loader's link to the next layer in a chain of create infos.
template <class Info>
Info* link_of(const void* next, VkStructureType type) {
  for (auto* info = static_cast<const Info*>(next); info != nullptr; info = static_cast<const Info*>(info->pNext)) {
    if (info->sType == type && info->function == VK_LAYER_LINK_INFO) return const_cast<Info*>(info);
  }
  return nullptr;
}

// ---- instances and physical devices

VkResult create_instance(const VkInstanceCreateInfo* info, const VkAllocationCallbacks* memory, VkInstance* out) {
  auto* link = link_of<VkLayerInstanceCreateInfo>(info->pNext, VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO);
  if (link == nullptr || fault() == "no-instance") return VK_ERROR_INITIALIZATION_FAILED;
  next_instance = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
  link->u.pLayerInfo = link->u.pLayerInfo->pNext;
  const auto create = reinterpret_cast<PFN_vkCreateInstance>(next_instance(nullptr, "vkCreateInstance"));
  const VkResult r = create(info, memory, out);
  if (r != VK_SUCCESS) return r;
  instance = *out;
  load(next_enumerate, "vkEnumeratePhysicalDevices");
  load(next_extensions, "vkEnumerateDeviceExtensionProperties");
  load(next_features, "vkGetPhysicalDeviceFeatures2");
  load(next_memory_properties, "vkGetPhysicalDeviceMemoryProperties2");
  load(next_properties, "vkGetPhysicalDeviceProperties2");
  load(next_queue_families, "vkGetPhysicalDeviceQueueFamilyProperties");
  return VK_SUCCESS;
}

VkResult enumerate_devices(VkInstance i, uint32_t* count, VkPhysicalDevice* devices) {
  if (fault() == "no-devices") {
    *count = 0;
    return VK_SUCCESS;
  }
  return next_enumerate(i, count, devices);
}

void device_properties(VkPhysicalDevice d, VkPhysicalDeviceProperties2* p) {
  next_properties(d, p);
  if (fault() == "old") p->properties.apiVersion = VK_API_VERSION_1_1;
  if (fault() == "little-shared") p->properties.limits.maxComputeSharedMemorySize = 16384;
}

void device_features(VkPhysicalDevice d, VkPhysicalDeviceFeatures2* f) {
  next_features(d, f);
  if (fault() == "no-int64") f->features.shaderInt64 = VK_FALSE;
  for (auto* next = static_cast<VkBaseOutStructure*>(f->pNext); next != nullptr; next = next->pNext) {
    if (next->sType != VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES) continue;
    auto* v12 = reinterpret_cast<VkPhysicalDeviceVulkan12Features*>(next);
    if (fault() == "no-addresses") v12->bufferDeviceAddress = VK_FALSE;
    if (fault() == "no-timelines") v12->timelineSemaphore = VK_FALSE;
  }
}

void queue_families(VkPhysicalDevice d, uint32_t* count, VkQueueFamilyProperties* families) {
  next_queue_families(d, count, families);
  for (uint32_t i = 0; families != nullptr && number_of("ticks") != 0 && i < *count; ++i) {
    families[i].timestampValidBits = static_cast<uint32_t>(number_of("ticks"));
  }
  if (fault() != "no-compute" || families == nullptr) return;
  for (uint32_t i = 0; i < *count; ++i) families[i].queueFlags = VK_QUEUE_TRANSFER_BIT;
}

VkResult extensions(VkPhysicalDevice d, const char* layer, uint32_t* count, VkExtensionProperties* all) {
  const VkResult r = next_extensions(d, layer, count, all);
  for (uint32_t i = 0; all != nullptr && fault() == "no-calibration" && i < *count; ++i) {
    if (std::string_view(all[i].extensionName) == VK_EXT_CALIBRATED_TIMESTAMPS_EXTENSION_NAME) {
      all[i].extensionName[0] = '-';
    }
  }
  return r;
}

void memory_properties(VkPhysicalDevice d, VkPhysicalDeviceMemoryProperties2* m) {
  next_memory_properties(d, m);
  VkPhysicalDeviceMemoryProperties& p = m->memoryProperties;
  if (number_of("memory") != 0) p.memoryHeaps[0].size = number_of("memory") << 20;
  if (fault() != "discrete") return;
  p.memoryHeapCount = p.memoryTypeCount = 2;
  p.memoryHeaps[1] = {p.memoryHeaps[0].size, 0};
  p.memoryTypes[0] = {VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0};
  p.memoryTypes[1] = {
      VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT | VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
      1};
}

VkResult create_device(VkPhysicalDevice d, const VkDeviceCreateInfo* info, const VkAllocationCallbacks* memory,
                       VkDevice* out) {
  auto* link = link_of<VkLayerDeviceCreateInfo>(info->pNext, VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO);
  if (link == nullptr || fault() == "no-device") return VK_ERROR_INITIALIZATION_FAILED;
  const auto get = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
  next_device = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
  link->u.pLayerInfo = link->u.pLayerInfo->pNext;
  return reinterpret_cast<PFN_vkCreateDevice>(get(instance, "vkCreateDevice"))(d, info, memory, out);
}

// ---- devices

VkDevice made_device = VK_NULL_HANDLE;  // for functions that are given a queue or a command buffer

void get_queue(VkDevice d, uint32_t family, uint32_t index, VkQueue* out) {
  made_device = d;
  device_function<PFN_vkGetDeviceQueue>(d, "vkGetDeviceQueue")(d, family, index, out);
}

VkResult submit(VkQueue queue, uint32_t count, const VkSubmitInfo* infos, VkFence fence) {
  ++submissions;
  if (is_lost()) return VK_ERROR_DEVICE_LOST;
  return device_function<PFN_vkQueueSubmit>(made_device, "vkQueueSubmit")(queue, count, infos, fence);
}

VkResult wait_semaphores(VkDevice d, const VkSemaphoreWaitInfo* info, uint64_t timeout) {
  if (is_lost()) return VK_ERROR_DEVICE_LOST;
  return device_function<PFN_vkWaitSemaphores>(d, "vkWaitSemaphores")(d, info, timeout);
}

VkResult semaphore_value(VkDevice d, VkSemaphore semaphore, uint64_t* value) {
  if (is_lost()) return VK_ERROR_DEVICE_LOST;
  return device_function<PFN_vkGetSemaphoreCounterValue>(d, "vkGetSemaphoreCounterValue")(d, semaphore, value);
}

// Cuts ticks off as if they had few bits.
void cut(uint64_t& ticks) {
  if (const uint64_t bits = number_of("ticks"); bits != 0) ticks &= (uint64_t{1} << bits) - 1;
}

VkResult query_results(VkDevice d, VkQueryPool pool, uint32_t first, uint32_t count, size_t bytes, void* data,
                       VkDeviceSize stride, VkQueryResultFlags flags) {
  const auto next = device_function<PFN_vkGetQueryPoolResults>(d, "vkGetQueryPoolResults");
  const VkResult r = next(d, pool, first, count, bytes, data, stride, flags);
  for (uint32_t i = 0; i < count; ++i) cut(*reinterpret_cast<uint64_t*>(static_cast<char*>(data) + i * stride));
  return r;
}

VkResult calibrated_timestamps(VkDevice d, uint32_t count, const VkCalibratedTimestampInfoEXT* which, uint64_t* out,
                               uint64_t* deviation) {
  const auto next = device_function<PFN_vkGetCalibratedTimestampsEXT>(d, "vkGetCalibratedTimestampsEXT");
  const VkResult r = next(d, count, which, out, deviation);
  for (uint32_t i = 0; i < count; ++i) {
    if (which[i].timeDomain == VK_TIME_DOMAIN_DEVICE_EXT) cut(out[i]);
  }
  return r;
}

VkResult create_semaphore(VkDevice d, const VkSemaphoreCreateInfo* info, const VkAllocationCallbacks* memory,
                          VkSemaphore* out) {
  VkSemaphoreCreateInfo changed = *info;
  if (fault() == "invalid") changed.flags = 1;
  return device_function<PFN_vkCreateSemaphore>(d, "vkCreateSemaphore")(d, &changed, memory, out);
}

void copy_buffer(VkCommandBuffer commands, VkBuffer from, VkBuffer to, uint32_t count, const VkBufferCopy* regions) {
  const auto copy = device_function<PFN_vkCmdCopyBuffer>(made_device, "vkCmdCopyBuffer");
  copy(commands, from, to, count, regions);
  if (fault() == "hazard") copy(commands, from, to, count, regions);
}

void buffer_needs(VkDevice d, VkBuffer buffer, VkMemoryRequirements* out) {
  device_function<PFN_vkGetBufferMemoryRequirements>(d, "vkGetBufferMemoryRequirements")(d, buffer, out);
  if (fault() == "discrete") out->memoryTypeBits = 3;
}

std::atomic<uint64_t> launches{0};
void dispatch(VkCommandBuffer commands, uint32_t x, uint32_t y, uint32_t z) {
  if (launches++ == 0 && fault() == "inexact") return;
  device_function<PFN_vkCmdDispatch>(made_device, "vkCmdDispatch")(commands, x, y, z);
}

VkResult create_pipeline_cache(VkDevice d, const VkPipelineCacheCreateInfo* info, const VkAllocationCallbacks* memory,
                               VkPipelineCache* out) {
  if (fault() == "count") std::fprintf(stderr, "pipelines: %zu\n", info->initialDataSize);
  return device_function<PFN_vkCreatePipelineCache>(d, "vkCreatePipelineCache")(d, info, memory, out);
}

VkResult create_command_pool(VkDevice d, const VkCommandPoolCreateInfo* info, const VkAllocationCallbacks* memory,
                             VkCommandPool* out) {
  ++made;
  return device_function<PFN_vkCreateCommandPool>(d, "vkCreateCommandPool")(d, info, memory, out);
}

VkResult allocate(VkDevice d, const VkMemoryAllocateInfo* info, const VkAllocationCallbacks* memory,
                  VkDeviceMemory* out) {
  ++made;
  for (auto* next = static_cast<const VkBaseInStructure*>(info->pNext); next != nullptr; next = next->pNext) {
    if (next->sType != VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT) continue;
    if (fault() == "no-import") return VK_ERROR_INVALID_EXTERNAL_HANDLE;
    if (number_of("memory") != 0) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    return device_function<PFN_vkAllocateMemory>(d, "vkAllocateMemory")(d, info, memory, out);  // none of the device's
  }
  const std::lock_guard lock(mutex);
  const uint64_t limit = number_of("memory") << 20;
  if (limit != 0 && allocated_bytes + info->allocationSize > limit) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
  VkMemoryAllocateInfo changed = *info;
  if (fault() == "discrete") changed.memoryTypeIndex = 0;
  const VkResult r = device_function<PFN_vkAllocateMemory>(d, "vkAllocateMemory")(d, &changed, memory, out);
  if (r == VK_SUCCESS) allocated_bytes += allocated[*out] = info->allocationSize;
  return r;
}

void free_memory(VkDevice d, VkDeviceMemory which, const VkAllocationCallbacks* memory) {
  {
    const std::lock_guard lock(mutex);
    if (const auto it = allocated.find(which); it != allocated.end()) {
      allocated_bytes -= it->second;
      allocated.erase(it);
    }
  }
  device_function<PFN_vkFreeMemory>(d, "vkFreeMemory")(d, which, memory);
}

void destroy_device(VkDevice d, const VkAllocationCallbacks* memory) {
  if (fault() == "count") {
    std::fprintf(stderr, "submissions: %llu\nmade: %llu\n", static_cast<unsigned long long>(submissions),
                 static_cast<unsigned long long>(made));
  }
  if (d != VK_NULL_HANDLE) device_function<PFN_vkDestroyDevice>(d, "vkDestroyDevice")(d, memory);
}

// ---- entry points for the loader

PFN_vkVoidFunction get_device_function(VkDevice device, const char* name);
PFN_vkVoidFunction get_instance_function(VkInstance i, const char* name);

template <class F>
PFN_vkVoidFunction function(F* f) {
  return reinterpret_cast<PFN_vkVoidFunction>(f);
}

PFN_vkVoidFunction own_device_function(std::string_view name) {
  if (name == "vkGetDeviceProcAddr") return function(get_device_function);
  if (name == "vkAllocateMemory") return function(allocate);
  if (name == "vkCmdCopyBuffer") return function(copy_buffer);
  if (name == "vkCmdDispatch") return function(dispatch);
  if (name == "vkCreateCommandPool") return function(create_command_pool);
  if (name == "vkCreatePipelineCache") return function(create_pipeline_cache);
  if (name == "vkCreateSemaphore") return function(create_semaphore);
  if (name == "vkDestroyDevice") return function(destroy_device);
  if (name == "vkFreeMemory") return function(free_memory);
  if (name == "vkGetBufferMemoryRequirements") return function(buffer_needs);
  if (name == "vkGetCalibratedTimestampsEXT") return function(calibrated_timestamps);
  if (name == "vkGetDeviceQueue") return function(get_queue);
  if (name == "vkGetQueryPoolResults") return function(query_results);
  if (name == "vkGetSemaphoreCounterValue") return function(semaphore_value);
  if (name == "vkQueueSubmit") return function(submit);
  if (name == "vkWaitSemaphores") return function(wait_semaphores);
  return nullptr;
}
PFN_vkVoidFunction own_instance_function(std::string_view name) {
  if (name == "vkGetInstanceProcAddr") return function(get_instance_function);
  if (name == "vkCreateInstance") return function(create_instance);
  if (name == "vkCreateDevice") return function(create_device);
  if (name == "vkEnumerateDeviceExtensionProperties") return function(extensions);
  if (name == "vkEnumeratePhysicalDevices") return function(enumerate_devices);
  if (name == "vkGetPhysicalDeviceFeatures2") return function(device_features);
  if (name == "vkGetPhysicalDeviceMemoryProperties2") return function(memory_properties);
  if (name == "vkGetPhysicalDeviceProperties2") return function(device_properties);
  if (name == "vkGetPhysicalDeviceQueueFamilyProperties") return function(queue_families);
  return own_device_function(name);
}

PFN_vkVoidFunction get_device_function(VkDevice device, const char* name) {
  if (const auto f = own_device_function(name); f != nullptr) return f;
  return next_device(device, name);
}
PFN_vkVoidFunction get_instance_function(VkInstance i, const char* name) {
  if (const auto f = own_instance_function(name); f != nullptr) return f;
  return i == VK_NULL_HANDLE ? nullptr : next_instance(i, name);
}

}  // namespace

extern "C" VK_LAYER_EXPORT VkResult vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface* out) {
  if (out->loaderLayerInterfaceVersion > CURRENT_LOADER_LAYER_INTERFACE_VERSION) {
    out->loaderLayerInterfaceVersion = CURRENT_LOADER_LAYER_INTERFACE_VERSION;
  }
  out->pfnGetInstanceProcAddr = get_instance_function;
  out->pfnGetDeviceProcAddr = get_device_function;
  out->pfnGetPhysicalDeviceProcAddr = nullptr;
  return VK_SUCCESS;
}
