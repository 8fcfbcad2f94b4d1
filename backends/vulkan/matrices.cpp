// SPDX-License-Identifier: Apache-2.0
// Numbers of SPIR-V are from its registry: SPV_NV_cooperative_matrix and SPV_KHR_cooperative_matrix.
#include "matrices.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace gpu {
namespace {

// Calls an instance's function that lists properties of a device; none if it has no such function.
template <typename Properties, typename List>
std::vector<Properties> listed(List list, VkPhysicalDevice d, VkStructureType type) {
  uint32_t n = 0;
  if (list == nullptr || list(d, &n, nullptr) != VK_SUCCESS) return {};
  Properties one{};
  one.sType = type;
  std::vector<Properties> all(n, one);
  if (list(d, &n, all.data()) != VK_SUCCESS) return {};
  all.resize(n);
  return all;
}

enum Opcode : uint32_t {
  kExtension = 10,
  kCapability = 17,
  kTypeInt = 21,
  kTypeFloat = 22,
  kConstantTrue = 41,
  kConstantFalse = 42,
  kConstant = 43,
  kSpecConstant = 50,
  kTypeMatrixKhr = 4456,
  kLoadKhr = 4457,
  kStoreKhr = 4458,
  kMulAddKhr = 4459,
  kLengthKhr = 4460,
  kTypeMatrixNv = 5358,
  kLoadNv = 5359,
  kStoreNv = 5360,
  kMulAddNv = 5361,
  kLengthNv = 5362,
};
constexpr uint32_t kMatricesNv = 5357, kMatricesKhr = 6022;  // capabilities
constexpr std::string_view kExtensionNv = "SPV_NV_cooperative_matrix", kExtensionKhr = "SPV_KHR_cooperative_matrix";
constexpr size_t kHeader = 5, kBound = 3;  // words of a module before its instructions; which of them bounds its ids

using Words = std::span<const uint32_t>;

// Calls visit(opcode, operands) for each instruction; false if they do not end where the module does.
template <typename Visit>
bool for_each_instruction(Words spirv, Visit visit) {
  if (spirv.size() < kHeader) return false;
  for (size_t i = kHeader; i < spirv.size();) {
    const uint32_t words = spirv[i] >> 16;
    if (words == 0 || words > spirv.size() - i) return false;
    visit(spirv[i] & 0xffffu, spirv.subspan(i + 1, words - 1));
    i += words;
  }
  return true;
}

bool is_text(Words operands, std::string_view text) {
  return operands.size() == text.size() / 4 + 1 && std::memcmp(operands.data(), text.data(), text.size()) == 0;
}

class Translation {
 public:
  explicit Translation(Words from) : from_(from), bound_(from.size() > kBound ? from[kBound] : 0), kinds_(bound_) {}

  std::vector<uint32_t> run() {
    if (!for_each_instruction(from_, [&](uint32_t op, Words a) { note(op, a); }) || uint_type_ == 0) return {};
    out_.assign(from_.begin(), from_.begin() + kHeader);
    out_[kBound] = bound_ + kConstants;
    for_each_instruction(from_, [&](uint32_t op, Words a) { translate(op, a); });
    return whole_ ? std::move(out_) : std::vector<uint32_t>();
  }

 private:
  enum Kind : uint8_t { kOther, kFloat32, kSpecialized, kTrue, kFalse };
  enum Use : uint32_t { kFirstFactor, kSecondFactor, kSums };
  static constexpr uint32_t kConstants = 3;  // 0, 1 and 2, which are the uses, and the layouts: by rows, by columns

  // What each id stands for.
  void note(uint32_t op, Words a) {
    if (a.size() >= 2 && op == kTypeFloat && a[1] == 32) set(a[0], kFloat32);
    if (a.size() >= 3 && op == kTypeInt && a[1] == 32 && a[2] == 0) uint_type_ = a[0];
    if (a.size() < 2) return;
    if (op == kConstantTrue) set(a[1], kTrue);
    if (op == kConstantFalse) set(a[1], kFalse);
    if (op == kSpecConstant) set(a[1], kSpecialized);
  }
  void set(uint32_t id, Kind kind) {
    if (id < kinds_.size()) kinds_[id] = kind;
  }
  Kind kind(uint32_t id) const { return id < kinds_.size() ? kinds_[id] : kOther; }

  uint32_t use_of(uint32_t element, uint32_t columns) const {
    if (kind(element) == kFloat32) return bound_ + kSums;
    return bound_ + (kind(columns) == kSpecialized ? kSecondFactor : kFirstFactor);
  }
  // Row or column order; with NV a constant with a type of its own.
  uint32_t layout_of(uint32_t by_columns) {
    whole_ = whole_ && (kind(by_columns) == kTrue || kind(by_columns) == kFalse);
    return bound_ + (kind(by_columns) == kTrue ? 1 : 0);
  }

  void put(uint32_t op, Words a, Words rest = {}) {
    out_.push_back(static_cast<uint32_t>(1 + a.size() + rest.size()) << 16 | op);
    out_.insert(out_.end(), a.begin(), a.end());
    out_.insert(out_.end(), rest.begin(), rest.end());
  }
  void put_extension() {
    uint32_t text[kExtensionKhr.size() / 4 + 1] = {};
    std::memcpy(text, kExtensionKhr.data(), kExtensionKhr.size());
    put(kExtension, text);
  }
  void put_constants() {
    for (uint32_t v = 0; v < kConstants; ++v)
      put(kConstant, std::initializer_list<uint32_t>{uint_type_, bound_ + v, v});
  }

  void translate(uint32_t op, Words a) {
    const auto has = [&](size_t least) { return whole_ = whole_ && a.size() >= least; };
    if (op == kCapability && has(1) && a[0] == kMatricesNv) {
      put(op, {&kMatricesKhr, 1});
    } else if (op == kExtension && is_text(a, kExtensionNv)) {
      put_extension();
    } else if (op == kTypeMatrixNv && has(5)) {  // result, element, scope, rows, columns
      const uint32_t use = use_of(a[1], a[4]);
      put(kTypeMatrixKhr, a.first(5), {&use, 1});
    } else if (op == kLoadNv && has(5)) {  // type, result, pointer, stride, by columns, and how memory is accessed
      const uint32_t b[] = {a[0], a[1], a[2], layout_of(a[4]), a[3]};
      put(kLoadKhr, b, a.subspan(5));
    } else if (op == kStoreNv && has(4)) {  // pointer, object, stride, by columns, and how memory is accessed
      const uint32_t b[] = {a[0], a[1], layout_of(a[3]), a[2]};
      put(kStoreKhr, b, a.subspan(4));
    } else if (op == kMulAddNv || op == kLengthNv) {
      put(op == kMulAddNv ? kMulAddKhr : kLengthKhr, a);
    } else {
      put(op, a);
      if (op == kTypeInt && a[0] == uint_type_) put_constants();
    }
  }

  Words from_;
  uint32_t bound_, uint_type_ = 0;
  bool whole_ = true;
  std::vector<Kind> kinds_;
  std::vector<uint32_t> out_;
};

}  // namespace

bool has_nv_matrices(const Instance& i, PFN_vkGetInstanceProcAddr get, VkPhysicalDevice d) {
  const auto list = reinterpret_cast<PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesNV>(
      get(i.handle, "vkGetPhysicalDeviceCooperativeMatrixPropertiesNV"));
  const auto all = listed<VkCooperativeMatrixPropertiesNV>(list, d, VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_NV);
  return std::any_of(all.begin(), all.end(), [](const VkCooperativeMatrixPropertiesNV& p) {
    return p.MSize == 16 && p.NSize == 16 && p.KSize == 16 && p.AType == VK_COMPONENT_TYPE_FLOAT16_NV &&
           p.BType == VK_COMPONENT_TYPE_FLOAT16_NV && p.CType == VK_COMPONENT_TYPE_FLOAT32_NV &&
           p.DType == VK_COMPONENT_TYPE_FLOAT32_NV && p.scope == VK_SCOPE_SUBGROUP_NV;
  });
}

bool has_khr_matrices(const Instance& i, PFN_vkGetInstanceProcAddr get, VkPhysicalDevice d) {
  VkPhysicalDeviceCooperativeMatrixFeaturesKHR may{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR};
  VkPhysicalDeviceFeatures2 features{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &may};
  i.GetPhysicalDeviceFeatures2(d, &features);
  VkPhysicalDeviceCooperativeMatrixPropertiesKHR where{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_PROPERTIES_KHR};
  VkPhysicalDeviceProperties2 properties{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &where};
  i.GetPhysicalDeviceProperties2(d, &properties);
  if (!may.cooperativeMatrix || (where.cooperativeMatrixSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT) == 0)
    return false;
  const auto list = reinterpret_cast<PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR>(
      get(i.handle, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
  const auto all =
      listed<VkCooperativeMatrixPropertiesKHR>(list, d, VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR);
  return std::any_of(all.begin(), all.end(), [](const VkCooperativeMatrixPropertiesKHR& p) {
    return p.MSize == 16 && p.NSize == 16 && p.KSize == 16 && p.AType == VK_COMPONENT_TYPE_FLOAT16_KHR &&
           p.BType == VK_COMPONENT_TYPE_FLOAT16_KHR && p.CType == VK_COMPONENT_TYPE_FLOAT32_KHR &&
           p.ResultType == VK_COMPONENT_TYPE_FLOAT32_KHR && !p.saturatingAccumulation &&
           p.scope == VK_SCOPE_SUBGROUP_KHR;
  });
}

bool uses_nv_matrices(Words spirv) {
  bool found = false;
  for_each_instruction(
      spirv, [&](uint32_t op, Words a) { found = found || (op == kCapability && !a.empty() && a[0] == kMatricesNv); });
  return found;
}

std::vector<uint32_t> with_khr_matrices(Words spirv) {
  return uses_nv_matrices(spirv) ? Translation(spirv).run() : std::vector<uint32_t>();
}

}  // namespace gpu
