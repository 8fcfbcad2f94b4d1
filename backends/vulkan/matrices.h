// SPDX-License-Identifier: Apache-2.0
// Cooperative matrices: which a device offers, and shaders that use them.
//
// Shaders are written with the NV extension, which every packaged compiler supports. For devices with the KHR extension
// the same shaders are translated: drivers compile that form into faster code, and other vendors have it.
#pragma once

#include <span>

#include "api.h"

// Of headers before 1.3.255 (specification of VK_KHR_cooperative_matrix).
#ifndef VK_KHR_cooperative_matrix
#define VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME "VK_KHR_cooperative_matrix"
constexpr auto VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR =
    static_cast<VkStructureType>(1000506000);
constexpr auto VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR = static_cast<VkStructureType>(1000506001);
constexpr auto VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_PROPERTIES_KHR =
    static_cast<VkStructureType>(1000506002);
constexpr uint32_t VK_COMPONENT_TYPE_FLOAT16_KHR = 0, VK_COMPONENT_TYPE_FLOAT32_KHR = 1, VK_SCOPE_SUBGROUP_KHR = 3;
struct VkPhysicalDeviceCooperativeMatrixFeaturesKHR {
  VkStructureType sType;
  void* pNext;
  VkBool32 cooperativeMatrix, cooperativeMatrixRobustBufferAccess;
};
struct VkPhysicalDeviceCooperativeMatrixPropertiesKHR {
  VkStructureType sType;
  void* pNext;
  VkShaderStageFlags cooperativeMatrixSupportedStages;
};
struct VkCooperativeMatrixPropertiesKHR {
  VkStructureType sType;
  void* pNext;
  uint32_t MSize, NSize, KSize, AType, BType, CType, ResultType;
  VkBool32 saturatingAccumulation;
  uint32_t scope;
};
using PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR = VkResult(VKAPI_PTR*)(VkPhysicalDevice, uint32_t*,
                                                                                   VkCooperativeMatrixPropertiesKHR*);
#endif

namespace gpu {

// 16x16x16 with fp16 factors and fp32 sums, for a subgroup, in compute shaders. The device must have the extension.
bool has_nv_matrices(const Instance& instance, PFN_vkGetInstanceProcAddr get, VkPhysicalDevice device);
bool has_khr_matrices(const Instance& instance, PFN_vkGetInstanceProcAddr get, VkPhysicalDevice device);

// Whether a shader declares the NV extension's matrices.
bool uses_nv_matrices(std::span<const uint32_t> spirv);

// The shader translated to the KHR extension. There a type says what a matrix is in a product: sums are fp32, second
// factors are those whose number of columns is a specialization constant. Empty if `spirv` does not use NV's matrices.
std::vector<uint32_t> with_khr_matrices(std::span<const uint32_t> spirv);

}  // namespace gpu
