// SPDX-License-Identifier: Apache-2.0
// Devices: listing, opening and closing.
#include "device.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "kernels.h"
#include "matrices.h"
#include "options.h"
#include "pipelines.h"
#include "profile.h"
#include "switchyard/sdk/error.hpp"

namespace gpu {
namespace {

swy_status find_device(uint32_t index, const PhysicalDevice** out, swy_error* error) {
  const Instance& all = instance();
  if (index >= all.devices.size()) {
    return swy::fail(error, SWY_INVALID_ARGUMENT, SWY_REASON_NONE, "there is no device %u; this machine has %zu", index,
                     all.devices.size());
  }
  *out = &all.devices[index];
  return SWY_OK;
}

void apply(swy_device& d, const swy_setting* settings, uint32_t count) {
  const auto on = [&](const swy_option& option) { return swy::is_on(option, settings, count); };
  d.kv_bf16 = on(swy::kKvBf16);
  d.features.imports = d.features.imports && on(kImport);
  d.pipeline_cache = on(kPipelineCache);
  d.reversed = on(kReversed);
  d.resident_groups = d.features.processors;
  for (uint32_t i = 0; i < count; ++i) {
    if (std::string_view(settings[i].name) != kResident.name) continue;
    const long groups = std::strtol(settings[i].value, nullptr, 10);
    if (groups >= 0) d.resident_groups = static_cast<uint32_t>(std::min(groups, 65535L));
  }
  d.features.khr_matrices = d.features.khr_matrices && on(kKhrMatrices);
  d.features.cooperative =
      d.features.cooperative && on(kCooperative) && (d.features.khr_matrices || d.physical->nv_matrices);
  d.features.dot8 = d.features.dot8 && on(kDot8);
}

// Creates the logical device, with the features that kernels use enabled.
VkResult create_device(const PhysicalDevice& p, const Features& use, VkDevice* out) {
  const float priority = 1;
  VkDeviceQueueCreateInfo queue{VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO};
  queue.queueFamilyIndex = p.features.queue_family;
  queue.queueCount = 1;
  queue.pQueuePriorities = &priority;
  VkPhysicalDeviceVulkan11Features v11{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES};
  v11.storageBuffer16BitAccess = use.fp16;
  VkPhysicalDeviceVulkan12Features v12{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, &v11};
  v12.bufferDeviceAddress = VK_TRUE;
  v12.timelineSemaphore = VK_TRUE;
  v12.shaderFloat16 = use.fp16;
  v12.vulkanMemoryModel = use.cooperative;
  VkPhysicalDeviceFeatures2 features{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &v12};
  features.features.shaderInt64 = VK_TRUE;
  const char* names[6];
  VkDeviceCreateInfo info{VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, &features};
#ifndef SWITCHYARD_VULKAN_EMULATE
  VkPhysicalDeviceCooperativeMatrixFeaturesNV nv{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_NV,
                                                 nullptr, VK_TRUE, VK_FALSE};
  VkPhysicalDeviceCooperativeMatrixFeaturesKHR khr{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR,
                                                   nullptr, VK_TRUE, VK_FALSE};
  if (use.cooperative) {
    v11.pNext = use.khr_matrices ? static_cast<void*>(&khr) : &nv;
    names[info.enabledExtensionCount++] =
        use.khr_matrices ? VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME : VK_NV_COOPERATIVE_MATRIX_EXTENSION_NAME;
  }
#endif
  VkPhysicalDeviceShaderIntegerDotProductFeatures dot{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES, nullptr, VK_TRUE};
  if (use.dot8) {
    dot.pNext = v11.pNext;
    v11.pNext = &dot;
    if (p.dot8_is_extension) names[info.enabledExtensionCount++] = VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME;
  }
  VkPhysicalDeviceSubgroupSizeControlFeatures subgroups{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES, nullptr, VK_TRUE, VK_TRUE};
  if (use.whole_subgroups) {
    subgroups.pNext = v11.pNext;
    v11.pNext = &subgroups;
    if (p.subgroups_are_extension) names[info.enabledExtensionCount++] = VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME;
  }
  if (use.calibrated) names[info.enabledExtensionCount++] = VK_EXT_CALIBRATED_TIMESTAMPS_EXTENSION_NAME;
  if (use.imports) names[info.enabledExtensionCount++] = VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME;
  info.queueCreateInfoCount = 1;
  info.pQueueCreateInfos = &queue;
  info.ppEnabledExtensionNames = names;
  return instance().CreateDevice(p.handle, &info, nullptr, out);
}

swy_status load_functions(swy_device& d, swy_error* error) {
  bool complete = true;
#define SWY_VK_LOAD(name)                                                                         \
  d.vk.name = reinterpret_cast<PFN_vk##name>(instance().GetDeviceProcAddr(d.handle, "vk" #name)); \
  complete = complete && d.vk.name != nullptr;
  SWY_VK_DEVICE_FUNCTIONS(SWY_VK_LOAD)
#undef SWY_VK_LOAD
  if (d.features.calibrated) {
    d.vk.GetCalibratedTimestampsEXT = reinterpret_cast<PFN_vkGetCalibratedTimestampsEXT>(
        instance().GetDeviceProcAddr(d.handle, "vkGetCalibratedTimestampsEXT"));
  }
  if (d.features.imports) {
    d.vk.GetMemoryHostPointerPropertiesEXT = reinterpret_cast<PFN_vkGetMemoryHostPointerPropertiesEXT>(
        instance().GetDeviceProcAddr(d.handle, "vkGetMemoryHostPointerPropertiesEXT"));
    d.features.imports = d.vk.GetMemoryHostPointerPropertiesEXT != nullptr;
  }
  if (complete) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "%s lacks functions of Vulkan 1.2",
                   d.physical->name.c_str());
}

swy_status open(uint32_t index, const swy_setting* settings, uint32_t count, swy_device& d, swy_error* error) {
  SWY_VK_TRY(find_device(index, &d.physical, error));
  d.features = d.physical->features;
  apply(d, settings, count);
  SWY_VK_TRY(check(d, create_device(*d.physical, d.features, &d.handle), "opening the device", error));
  SWY_VK_TRY(load_functions(d, error));
  d.vk.GetDeviceQueue(d.handle, d.features.queue_family, 0, &d.queue);
  VkSemaphoreTypeCreateInfo type{VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO, nullptr, VK_SEMAPHORE_TYPE_TIMELINE, 0};
  const VkSemaphoreCreateInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type, 0};
  SWY_VK_TRY(check(d, d.vk.CreateSemaphore(d.handle, &info, nullptr, &d.progress), "creating a semaphore", error));
  SWY_VK_TRY(make_staging(d, error));
  d.profile = std::make_unique<Profile>(d.features);
  d.pipelines = std::make_unique<Pipelines>(d);
  SWY_VK_TRY(d.pipelines->open(error));
  SWY_VK_TRY(check_sampling(d, error));
  d.kernels = make_kernels();
  return SWY_OK;
}

void close(swy_device& d) {
  if (d.handle == VK_NULL_HANDLE || d.vk.DestroyDevice == nullptr) return;
  if (d.vk.DeviceWaitIdle != nullptr) d.vk.DeviceWaitIdle(d.handle);
  if (d.profile != nullptr) free_clock(d);
  free_staging(d);
  d.blocks.clear();
  d.pipelines.reset();
  if (d.progress != VK_NULL_HANDLE) d.vk.DestroySemaphore(d.handle, d.progress, nullptr);
  d.vk.DestroyDevice(d.handle, nullptr);
}

}  // namespace

swy_status check(swy_device& device, VkResult result, const char* what, swy_error* error) {
  if (result == VK_SUCCESS || result == VK_TIMEOUT || result == VK_NOT_READY) return SWY_OK;
  swy_status status = SWY_INTERNAL;
  if (result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_TOO_MANY_OBJECTS) status = SWY_OUT_OF_DEVICE_MEMORY;
  if (result == VK_ERROR_OUT_OF_HOST_MEMORY) status = SWY_OUT_OF_HOST_MEMORY;
  if (result == VK_ERROR_DEVICE_LOST) {
    status = SWY_DEVICE_LOST;
    lose(device, result);
  }
  return swy::fail(error, status, SWY_REASON_NONE, "%s: %s", what, result_name(result));
}

void lose(swy_device& device, VkResult result) {
  VkResult none = VK_SUCCESS;
  device.loss.compare_exchange_strong(none, result, std::memory_order_acq_rel);
}

bool is_lost(const swy_device& device) { return device.loss.load(std::memory_order_acquire) != VK_SUCCESS; }

swy_status lost_earlier(const swy_device& device, swy_error* error) {
  return swy::fail(error, SWY_DEVICE_LOST, SWY_REASON_NONE, "the device was lost earlier: %s",
                   result_name(device.loss.load(std::memory_order_acquire)));
}

swy_status device_count(uint32_t* count, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    const Instance& all = instance();
    *count = static_cast<uint32_t>(all.devices.size());
    if (*count == 0) swy::fail(error, SWY_OK, SWY_REASON_ARCH, "%s", all.refusal.c_str());
    return SWY_OK;
  });
}

swy_status device_info(uint32_t index, swy_device_info* out, swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    const PhysicalDevice* p = nullptr;
    SWY_VK_TRY(find_device(index, &p, error));
    swy_device_info info{};
    info.type = p->features.cpu ? SWY_DEVICE_CPU : SWY_DEVICE_GPU;
    info.name = p->name.c_str();
    info.arch = p->arch.c_str();
    memory_of(*p, info.memory_free_bytes, info.memory_bytes);
    info.max_buffer_bytes = p->features.largest_allocation;
    info.buffer_alignment = 256;
    info.flags = SWY_DEVICE_NATIVE_REPLAY;
    const bool exact = samples(*p);
    info.sampling = SWY_SAMPLING_LOGITS;
    if (exact) info.sampling |= SWY_SAMPLING_TOKEN | SWY_SAMPLING_TOPK_CANDIDATES;
    info.sampling_steps = exact ? swy::kSamplesEverything : 0;
    swy::give_info(info, out);
    return SWY_OK;
  });
}

swy_status device_open(uint32_t index, const swy_setting* settings, uint32_t count, swy_device** out,
                       swy_error* error) {
  return swy::guard(error, [&]() -> swy_status {
    struct Close {
      void operator()(swy_device* d) const {
        close(*d);
        delete d;
      }
    };
    std::unique_ptr<swy_device, Close> device(new swy_device);
    SWY_VK_TRY(open(index, settings, count, *device, error));
    *out = device.release();
    return SWY_OK;
  });
}

void device_close(swy_device* device) {
  close(*device);
  delete device;
}

}  // namespace gpu
