// SPDX-License-Identifier: Apache-2.0
// Vulkan's functions, obtained from the loader at run time. Nothing links against it.
#pragma once

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include <cstdint>
#include <string>
#include <vector>

namespace gpu {

#define SWY_VK_INSTANCE_FUNCTIONS(F)    \
  F(CreateDevice)                       \
  F(EnumerateDeviceExtensionProperties) \
  F(EnumeratePhysicalDevices)           \
  F(GetDeviceProcAddr)                  \
  F(GetPhysicalDeviceFeatures2)         \
  F(GetPhysicalDeviceMemoryProperties2) \
  F(GetPhysicalDeviceProperties2)       \
  F(GetPhysicalDeviceQueueFamilyProperties)

#define SWY_VK_DEVICE_FUNCTIONS(F) \
  F(AllocateCommandBuffers)        \
  F(AllocateMemory)                \
  F(BeginCommandBuffer)            \
  F(BindBufferMemory)              \
  F(CmdBindPipeline)               \
  F(CmdCopyBuffer)                 \
  F(CmdDispatch)                   \
  F(CmdFillBuffer)                 \
  F(CmdPipelineBarrier)            \
  F(CmdPushConstants)              \
  F(CmdResetQueryPool)             \
  F(CmdWriteTimestamp)             \
  F(CreateBuffer)                  \
  F(CreateCommandPool)             \
  F(CreateComputePipelines)        \
  F(CreatePipelineCache)           \
  F(CreatePipelineLayout)          \
  F(CreateQueryPool)               \
  F(CreateSemaphore)               \
  F(CreateShaderModule)            \
  F(DestroyBuffer)                 \
  F(DestroyCommandPool)            \
  F(DestroyDevice)                 \
  F(DestroyPipeline)               \
  F(DestroyPipelineCache)          \
  F(DestroyPipelineLayout)         \
  F(DestroyQueryPool)              \
  F(DestroySemaphore)              \
  F(DestroyShaderModule)           \
  F(DeviceWaitIdle)                \
  F(EndCommandBuffer)              \
  F(FreeMemory)                    \
  F(GetBufferDeviceAddress)        \
  F(GetBufferMemoryRequirements)   \
  F(GetDeviceQueue)                \
  F(GetPipelineCacheData)          \
  F(GetQueryPoolResults)           \
  F(GetSemaphoreCounterValue)      \
  F(MapMemory)                     \
  F(QueueSubmit)                   \
  F(ResetCommandPool)              \
  F(WaitSemaphores)

#define SWY_VK_MEMBER(name) PFN_vk##name name = nullptr;

// Functions of one VkDevice.
struct DeviceApi {
  SWY_VK_DEVICE_FUNCTIONS(SWY_VK_MEMBER)
  SWY_VK_MEMBER(GetCalibratedTimestampsEXT)         // null unless Features.calibrated
  SWY_VK_MEMBER(GetMemoryHostPointerPropertiesEXT)  // null unless Features.imports
};

// The features of a physical device that kernels need.
struct Features {
  uint32_t subgroup = 32;           // lanes
  bool whole_subgroups = false;     // pipelines can require subgroups of this size, with all lanes running
  uint32_t shared_bytes = 32768;    // of a workgroup
  uint32_t most_threads = 256;      // likewise
  uint32_t push_bytes = 128;        // of push constants
  uint64_t largest_allocation = 0;  // bytes
  bool fp16 = false;                // arithmetic, and storage in buffers and shared memory
  bool dot8 = false;                // products of four signed bytes, by the device itself
  bool cooperative = false;         // 16x16x16 matrices of fp16 with fp32 sums
  bool khr_matrices = false;        // by the KHR extension, otherwise by NV's
  bool memory_budget = false;
  bool unified = false;  // the device's memory is the host's
  bool imports = false;  // its buffers can lie over the host's memory, at multiples of import_alignment
  uint64_t import_alignment = 4096;
  bool cpu = false;   // a driver that computes on the processor
  float tick_ns = 1;  // of timestamps
  uint32_t timestamp_bits = 0;
  bool calibrated = false;  // the driver reads timestamps and CLOCK_MONOTONIC at one instant
  uint32_t queue_family = 0;
  uint32_t processors = 0;  // that run workgroups side by side; 0: not known
};

// The device and driver that made a pipeline. No padding: it is compared and stored as bytes.
struct DriverIdentity {
  uint8_t device[VK_UUID_SIZE], driver[VK_UUID_SIZE], pipelines[VK_UUID_SIZE];
  uint32_t version;
};

struct PhysicalDevice {
  VkPhysicalDevice handle = VK_NULL_HANDLE;
  std::string name, arch;  // arch: "10de-2335", vendor and device
  Features features;
  DriverIdentity driver{};
  bool nv_matrices = false;              // NVIDIA's extension offers cooperative matrices, whatever KHR's does
  bool subgroups_are_extension = false;  // their size control: of Vulkan 1.2, as dot8
  bool dot8_is_extension = false;        // of Vulkan 1.2; later versions have it
};

// The loader, an instance, and the devices that can run the kernels: made once, never freed.
struct Instance {
  SWY_VK_INSTANCE_FUNCTIONS(SWY_VK_MEMBER)
  VkInstance handle = VK_NULL_HANDLE;
  std::vector<PhysicalDevice> devices;  // GPUs before drivers that compute on the processor
  std::string refusal;                  // why there are no devices, in one line
};
const Instance& instance();

// The name of a Vulkan result: "VK_ERROR_DEVICE_LOST".
const char* result_name(VkResult result);

}  // namespace gpu
