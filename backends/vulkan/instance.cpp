// SPDX-License-Identifier: Apache-2.0
// The loader, the instance, and the features of each physical device.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "matrices.h"

namespace gpu {
namespace {

constexpr uint32_t kLeastVersion = VK_API_VERSION_1_2;
constexpr const char* kNoDevice = "no Vulkan driver on this machine has a device";
constexpr uint32_t kLeastShared = 32768, kLeastThreads = 256;

std::string version_text(uint32_t v) {
  return std::to_string(VK_API_VERSION_MAJOR(v)) + "." + std::to_string(VK_API_VERSION_MINOR(v));
}

std::vector<VkExtensionProperties> extensions_of(const Instance& i, VkPhysicalDevice d) {
  uint32_t n = 0;
  std::vector<VkExtensionProperties> all;
  if (i.EnumerateDeviceExtensionProperties(d, nullptr, &n, nullptr) != VK_SUCCESS) return all;
  all.resize(n);
  i.EnumerateDeviceExtensionProperties(d, nullptr, &n, all.data());
  return all;
}
bool has(const std::vector<VkExtensionProperties>& all, std::string_view name) {
  return std::any_of(all.begin(), all.end(), [&](const auto& e) { return name == e.extensionName; });
}

DriverIdentity identity_of(const Instance& i, VkPhysicalDevice d) {
  VkPhysicalDeviceIDProperties ids{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES};
  VkPhysicalDeviceProperties2 p{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &ids};
  i.GetPhysicalDeviceProperties2(d, &p);
  DriverIdentity out{};
  std::copy_n(ids.deviceUUID, VK_UUID_SIZE, out.device);
  std::copy_n(ids.driverUUID, VK_UUID_SIZE, out.driver);
  std::copy_n(p.properties.pipelineCacheUUID, VK_UUID_SIZE, out.pipelines);
  out.version = p.properties.driverVersion;
  return out;
}

// Whether the driver reads the device's clock and CLOCK_MONOTONIC at one instant.
bool has_calibration(VkInstance instance, PFN_vkGetInstanceProcAddr get, VkPhysicalDevice d) {
  const auto list = reinterpret_cast<PFN_vkGetPhysicalDeviceCalibrateableTimeDomainsEXT>(
      get(instance, "vkGetPhysicalDeviceCalibrateableTimeDomainsEXT"));
  uint32_t n = 0;
  if (list == nullptr || list(d, &n, nullptr) != VK_SUCCESS) return false;
  std::vector<VkTimeDomainEXT> all(n);
  if (list(d, &n, all.data()) != VK_SUCCESS) return false;
  const auto offers = [&](VkTimeDomainEXT one) { return std::find(all.begin(), all.end(), one) != all.end(); };
  return offers(VK_TIME_DOMAIN_DEVICE_EXT) && offers(VK_TIME_DOMAIN_CLOCK_MONOTONIC_EXT);
}

bool find_queue(const Instance& i, VkPhysicalDevice d, Features& f) {
  uint32_t n = 0;
  i.GetPhysicalDeviceQueueFamilyProperties(d, &n, nullptr);
  std::vector<VkQueueFamilyProperties> all(n);
  i.GetPhysicalDeviceQueueFamilyProperties(d, &n, all.data());
  for (uint32_t q = 0; q < n; ++q) {
    if ((all[q].queueFlags & VK_QUEUE_COMPUTE_BIT) == 0) continue;
    f.queue_family = q;
    f.timestamp_bits = all[q].timestampValidBits;
    return true;
  }
  return false;
}

bool unified_memory(const Instance& i, VkPhysicalDevice d) {
  VkPhysicalDeviceMemoryProperties2 m{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
  i.GetPhysicalDeviceMemoryProperties2(d, &m);
  for (uint32_t h = 0; h < m.memoryProperties.memoryHeapCount; ++h) {
    if ((m.memoryProperties.memoryHeaps[h].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) == 0) return false;
  }
  return true;
}

// Whether pipelines must require subgroups of f.subgroup lanes that all run, and can: drivers with several sizes choose
// among them. (A driver on the processor requires it, too, so that this is tested.)
bool can_ask_for_subgroups(const Instance& i, VkPhysicalDevice d, const Features& f) {
  VkPhysicalDeviceSubgroupSizeControlFeatures may{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES};
  VkPhysicalDeviceSubgroupSizeControlProperties sizes{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES};
  VkPhysicalDeviceFeatures2 features{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &may};
  VkPhysicalDeviceProperties2 properties{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &sizes};
  i.GetPhysicalDeviceFeatures2(d, &features);
  i.GetPhysicalDeviceProperties2(d, &properties);
  if (sizes.minSubgroupSize == sizes.maxSubgroupSize && !f.cpu) return false;
  return may.subgroupSizeControl && may.computeFullSubgroups &&
         (sizes.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0 && sizes.minSubgroupSize <= f.subgroup &&
         f.subgroup <= sizes.maxSubgroupSize && sizes.maxComputeWorkgroupSubgroups >= kLeastThreads / f.subgroup;
}

// Fills `out`. Returns an empty string, or why the device cannot run the kernels.
std::string examine(const Instance& i, PFN_vkGetInstanceProcAddr get, VkPhysicalDevice d, PhysicalDevice& out) {
  VkPhysicalDeviceSubgroupProperties subgroup{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES};
  VkPhysicalDeviceMaintenance3Properties sizes{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES, &subgroup};
  VkPhysicalDeviceProperties2 p{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &sizes};
  i.GetPhysicalDeviceProperties2(d, &p);
  const VkPhysicalDeviceLimits& limits = p.properties.limits;
  char arch[16];
  std::snprintf(arch, sizeof arch, "%04x-%04x", p.properties.vendorID & 0xffffu, p.properties.deviceID & 0xffffu);
  out.handle = d;
  out.name = p.properties.deviceName;
  out.arch = arch;
  if (p.properties.apiVersion < kLeastVersion) {
    return out.name + " has Vulkan " + version_text(p.properties.apiVersion) + "; 1.2 is needed";
  }
  VkPhysicalDeviceVulkan12Features v12{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
  VkPhysicalDeviceVulkan11Features v11{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, &v12};
  VkPhysicalDeviceFeatures2 features{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &v11};
  i.GetPhysicalDeviceFeatures2(d, &features);
  constexpr uint32_t kOperations = VK_SUBGROUP_FEATURE_BASIC_BIT | VK_SUBGROUP_FEATURE_ARITHMETIC_BIT |
                                   VK_SUBGROUP_FEATURE_SHUFFLE_BIT | VK_SUBGROUP_FEATURE_BALLOT_BIT;
  Features& f = out.features;
  if (!find_queue(i, d, f)) return out.name + " has no queue for compute";
  if (!v12.bufferDeviceAddress) return out.name + " has no buffer device addresses";
  if (!v12.timelineSemaphore) return out.name + " has no timeline semaphores";
  if (!features.features.shaderInt64) return out.name + " has no 64-bit integers in shaders";
  if ((subgroup.supportedOperations & kOperations) != kOperations ||
      (subgroup.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT) == 0 || subgroup.subgroupSize < 8 ||
      subgroup.subgroupSize > 128) {
    return out.name + " has no subgroup sums and shuffles in compute shaders, of 8 to 128 lanes";
  }
  if (limits.maxComputeSharedMemorySize < kLeastShared || limits.maxComputeWorkGroupInvocations < kLeastThreads) {
    return out.name + " has " + std::to_string(limits.maxComputeSharedMemorySize) + " bytes of shared memory and " +
           std::to_string(limits.maxComputeWorkGroupInvocations) + " threads in a workgroup; 32768 and 256 are needed";
  }
  out.driver = identity_of(i, d);
  const auto extensions = extensions_of(i, d);
  VkPhysicalDeviceShaderSMBuiltinsPropertiesNV processors{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV};
  if (has(extensions, VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME)) {
    p.pNext = &processors;
    i.GetPhysicalDeviceProperties2(d, &p);
    f.processors = processors.shaderSMCount;
  }
  f.subgroup = subgroup.subgroupSize;
  f.shared_bytes = limits.maxComputeSharedMemorySize;
  f.most_threads = std::min(limits.maxComputeWorkGroupInvocations, limits.maxComputeWorkGroupSize[0]);
  f.push_bytes = limits.maxPushConstantsSize;
  f.largest_allocation = sizes.maxMemoryAllocationSize;
  f.fp16 = v12.shaderFloat16 && v11.storageBuffer16BitAccess;
  f.memory_budget = has(extensions, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  f.unified = unified_memory(i, d);
  if (f.unified && has(extensions, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME)) {
    VkPhysicalDeviceExternalMemoryHostPropertiesEXT host{
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT};
    p.pNext = &host;
    i.GetPhysicalDeviceProperties2(d, &p);
    // If addresses are rounded to more than the host's pages, a weight could begin or end outside its mapping.
    f.imports = host.minImportedHostPointerAlignment != 0 &&
                host.minImportedHostPointerAlignment <= static_cast<VkDeviceSize>(sysconf(_SC_PAGESIZE));
    f.import_alignment = host.minImportedHostPointerAlignment;
  }
  f.cpu = p.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
  f.tick_ns = limits.timestampPeriod;
  f.calibrated = has(extensions, VK_EXT_CALIBRATED_TIMESTAMPS_EXTENSION_NAME) && has_calibration(i.handle, get, d);
  if (f.fp16 && f.subgroup == 32 && v12.vulkanMemoryModel) {
    out.nv_matrices = has(extensions, VK_NV_COOPERATIVE_MATRIX_EXTENSION_NAME) && has_nv_matrices(i, get, d);
    f.khr_matrices = has(extensions, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME) && has_khr_matrices(i, get, d);
  }
  f.cooperative = out.nv_matrices || f.khr_matrices;
#ifdef SWITCHYARD_VULKAN_EMULATE
  f.cooperative = out.nv_matrices = f.fp16;
  f.khr_matrices = false;
#endif
  out.subgroups_are_extension = has(extensions, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
  if (out.subgroups_are_extension || p.properties.apiVersion >= VK_API_VERSION_1_3) {
    f.whole_subgroups = can_ask_for_subgroups(i, d, f);
  }
  out.dot8_is_extension = has(extensions, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME);
  if (out.dot8_is_extension || p.properties.apiVersion >= VK_API_VERSION_1_3) {
    VkPhysicalDeviceShaderIntegerDotProductFeatures dot{
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES};
    VkPhysicalDeviceShaderIntegerDotProductProperties fast{
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_PROPERTIES};
    features.pNext = &dot;
    p.pNext = &fast;
    i.GetPhysicalDeviceFeatures2(d, &features);
    i.GetPhysicalDeviceProperties2(d, &p);
    // A driver on the processor is for tests.
    f.dot8 = dot.shaderIntegerDotProduct && (fast.integerDotProduct4x8BitPackedSignedAccelerated || f.cpu);
  }
  return {};
}

std::string list_devices(Instance& i, PFN_vkGetInstanceProcAddr get) {
  uint32_t n = 0;
  VkResult r = i.EnumeratePhysicalDevices(i.handle, &n, nullptr);
  if (r == VK_ERROR_INITIALIZATION_FAILED) return kNoDevice;  // the loader's answer if no driver found a device
  std::vector<VkPhysicalDevice> all(n);
  if (r == VK_SUCCESS && n != 0) r = i.EnumeratePhysicalDevices(i.handle, &n, all.data());
  if (r != VK_SUCCESS && r != VK_INCOMPLETE) return std::string("listing Vulkan devices: ") + result_name(r);
  if (n == 0) return kNoDevice;
  std::string reason;
  for (VkPhysicalDevice d : all) {
    PhysicalDevice one;
    const std::string why = examine(i, get, d, one);
    if (why.empty()) {
      i.devices.push_back(std::move(one));
    } else if (reason.empty()) {
      reason = why;
    }
  }
  std::stable_partition(i.devices.begin(), i.devices.end(), [](const auto& d) { return !d.features.cpu; });
  return i.devices.empty() ? reason : std::string();
}

std::string start(Instance& i) {
  void* loader = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
  if (loader == nullptr) return "there is no Vulkan loader (libvulkan.so.1) on this machine";
  const auto get = reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(loader, "vkGetInstanceProcAddr"));
  if (get == nullptr) return "libvulkan.so.1 has no vkGetInstanceProcAddr";
  const auto version = reinterpret_cast<PFN_vkEnumerateInstanceVersion>(get(nullptr, "vkEnumerateInstanceVersion"));
  uint32_t offered = VK_API_VERSION_1_0;
  if (version != nullptr) version(&offered);
  if (offered < kLeastVersion) return "the Vulkan loader speaks " + version_text(offered) + "; 1.2 is needed";
  const auto create = reinterpret_cast<PFN_vkCreateInstance>(get(nullptr, "vkCreateInstance"));
  if (create == nullptr) return "libvulkan.so.1 has no vkCreateInstance";
  VkApplicationInfo app{VK_STRUCTURE_TYPE_APPLICATION_INFO};
  app.pApplicationName = "switchyard";
  app.apiVersion = std::min<uint32_t>(offered, VK_API_VERSION_1_3);
  VkInstanceCreateInfo info{VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
  info.pApplicationInfo = &app;
  const VkResult r = create(&info, nullptr, &i.handle);
  if (r == VK_ERROR_INCOMPATIBLE_DRIVER) return "there is no Vulkan driver on this machine";
  if (r != VK_SUCCESS) return std::string("creating a Vulkan instance: ") + result_name(r);
  bool complete = true;
#define SWY_VK_LOAD(name)                                             \
  i.name = reinterpret_cast<PFN_vk##name>(get(i.handle, "vk" #name)); \
  complete = complete && i.name != nullptr;
  SWY_VK_INSTANCE_FUNCTIONS(SWY_VK_LOAD)
#undef SWY_VK_LOAD
  if (!complete) return "the Vulkan loader lacks functions of Vulkan 1.1";
  return list_devices(i, get);
}

}  // namespace

const Instance& instance() {
  static const Instance one = [] {
    Instance i;
    i.refusal = start(i);
    return i;
  }();
  return one;
}

const char* result_name(VkResult result) {
  switch (result) {
    case VK_ERROR_OUT_OF_HOST_MEMORY:
      return "VK_ERROR_OUT_OF_HOST_MEMORY";
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
      return "VK_ERROR_OUT_OF_DEVICE_MEMORY";
    case VK_ERROR_INITIALIZATION_FAILED:
      return "VK_ERROR_INITIALIZATION_FAILED";
    case VK_ERROR_DEVICE_LOST:
      return "VK_ERROR_DEVICE_LOST";
    case VK_ERROR_MEMORY_MAP_FAILED:
      return "VK_ERROR_MEMORY_MAP_FAILED";
    case VK_ERROR_LAYER_NOT_PRESENT:
      return "VK_ERROR_LAYER_NOT_PRESENT";
    case VK_ERROR_EXTENSION_NOT_PRESENT:
      return "VK_ERROR_EXTENSION_NOT_PRESENT";
    case VK_ERROR_FEATURE_NOT_PRESENT:
      return "VK_ERROR_FEATURE_NOT_PRESENT";
    case VK_ERROR_TOO_MANY_OBJECTS:
      return "VK_ERROR_TOO_MANY_OBJECTS";
    case VK_ERROR_UNKNOWN:
      return "VK_ERROR_UNKNOWN";
    case VK_ERROR_INVALID_EXTERNAL_HANDLE:
      return "VK_ERROR_INVALID_EXTERNAL_HANDLE";
    case VK_ERROR_INVALID_SHADER_NV:
      return "VK_ERROR_INVALID_SHADER_NV";
    default:
      return "an error of Vulkan";
  }
}

}  // namespace gpu
