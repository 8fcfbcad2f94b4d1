// SPDX-License-Identifier: Apache-2.0
#include "pipelines.h"

#include <algorithm>
#include <cstdlib>
#include <system_error>

#include "matrices.h"
#include "switchyard/sdk/error.hpp"

namespace gpu {
namespace {

constexpr size_t kMostThreads = 12;

}  // namespace

Pipelines::~Pipelines() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  came_.notify_all();
  for (std::thread& t : threads_) t.join();
  keep();
  const DeviceApi& vk = device_.vk;
  for (const auto& [key, p] : all_) vk.DestroyPipeline(device_.handle, p->handle, nullptr);
  if (cache_ != VK_NULL_HANDLE) vk.DestroyPipelineCache(device_.handle, cache_, nullptr);
  if (layout_ != VK_NULL_HANDLE) vk.DestroyPipelineLayout(device_.handle, layout_, nullptr);
}

swy_status Pipelines::open(swy_error* error) {
  const VkPushConstantRange push{VK_SHADER_STAGE_COMPUTE_BIT, 0, kPushBytes};
  VkPipelineLayoutCreateInfo info{VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO};
  info.pushConstantRangeCount = 1;
  info.pPushConstantRanges = &push;
  SWY_VK_TRY(check(device_, device_.vk.CreatePipelineLayout(device_.handle, &info, nullptr, &layout_),
                   "making a pipeline layout", error));
  if (device_.pipeline_cache) stored_.open(*device_.physical, kVersion);
  const std::vector<char> before = stored_.load();
  VkPipelineCacheCreateInfo cache{VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
  cache.initialDataSize = before.size();
  cache.pInitialData = before.data();
  VkResult made = device_.vk.CreatePipelineCache(device_.handle, &cache, nullptr, &cache_);
  if (made != VK_SUCCESS && cache.initialDataSize != 0) {  // a bad stored cache must not cause a failure
    cache.initialDataSize = 0;
    made = device_.vk.CreatePipelineCache(device_.handle, &cache, nullptr, &cache_);
  }
  return check(device_, made, "making a pipeline cache", error);
}

// Stores the pipelines that this process compiled. It may run when memory is short, so it must not throw.
void Pipelines::keep() noexcept {
  constexpr size_t kFew = 1;  // the sampler's check, of a process that only looked at the device
  if (cache_ == VK_NULL_HANDLE || all_.size() <= kFew || !device_.pipeline_cache || is_lost(device_)) return;
  size_t bytes = 0;
  if (device_.vk.GetPipelineCacheData(device_.handle, cache_, &bytes, nullptr) != VK_SUCCESS || bytes == 0) return;
  const std::unique_ptr<void, void (*)(void*)> data(std::malloc(bytes), std::free);
  if (data == nullptr) return;
  if (device_.vk.GetPipelineCacheData(device_.handle, cache_, &bytes, data.get()) != VK_SUCCESS) return;
  stored_.store(data.get(), bytes);
}

Pipeline* Pipelines::get(const Shader& shader, std::span<const uint32_t> constants) {
  Key key(shader.words, {constants.begin(), constants.end()});
  const std::lock_guard lock(mutex_);
  if (const auto found = all_.find(key); found != all_.end()) return found->second.get();
  auto made = std::make_unique<Pipeline>();
  made->shader = &shader;
  made->constants = key.second;
  queue_.push_back(made.get());
  Pipeline* p = made.get();
  try {
    all_.emplace(std::move(key), std::move(made));
  } catch (...) {
    queue_.pop_back();
    throw;
  }
  start_thread();
  came_.notify_one();
  return p;
}

// Starts another thread while work waits and processors are free. Without threads `wait` does the work.
void Pipelines::start_thread() {
  const size_t most = std::min<size_t>(kMostThreads, std::max(1u, std::thread::hardware_concurrency()));
  if (threads_.size() >= most || threads_.size() >= queue_.size()) return;
  try {
    threads_.reserve(most);
    threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {
  } catch (const std::bad_alloc&) {
  }
}

void Pipelines::work() {
  std::unique_lock lock(mutex_);
  while (!closing_) {
    if (queue_.empty()) {
      came_.wait(lock);
    } else {
      build_next(lock);
    }
  }
}

void Pipelines::build_next(std::unique_lock<std::mutex>& lock) {
  Pipeline& p = *queue_.front();
  queue_.pop_front();
  p.state = Pipeline::kBuilding;
  lock.unlock();
  VkResult result = VK_ERROR_OUT_OF_HOST_MEMORY;
  try {
    result = build(p);
  } catch (const std::bad_alloc&) {
  }
  lock.lock();
  p.result = result;
  p.state = Pipeline::kReady;
  done_.notify_all();
}

VkResult Pipelines::build(Pipeline& p) const {
  const DeviceApi& vk = device_.vk;
  VkShaderModuleCreateInfo code{VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO};
  code.codeSize = p.shader->bytes;
  code.pCode = p.shader->words;
  const std::span<const uint32_t> words(p.shader->words, p.shader->bytes / 4);
  std::vector<uint32_t> khr;
  if (device_.features.khr_matrices && uses_nv_matrices(words)) {
    khr = with_khr_matrices(words);
    if (khr.empty()) return VK_ERROR_INVALID_SHADER_NV;
    code.codeSize = khr.size() * 4;
    code.pCode = khr.data();
  }
  VkShaderModule module = VK_NULL_HANDLE;
  if (const VkResult r = vk.CreateShaderModule(device_.handle, &code, nullptr, &module); r != VK_SUCCESS) return r;
  std::vector<VkSpecializationMapEntry> entries(p.constants.size());
  for (uint32_t i = 0; i < entries.size(); ++i) entries[i] = {i, i * 4, 4};
  const VkSpecializationInfo constants{static_cast<uint32_t>(entries.size()), entries.data(), entries.size() * 4,
                                       p.constants.data()};
  VkComputePipelineCreateInfo info{VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO};
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = module;
  info.stage.pName = "main";
  info.stage.pSpecializationInfo = &constants;
  const VkPipelineShaderStageRequiredSubgroupSizeCreateInfo lanes{
      VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO, nullptr, device_.features.subgroup};
  if (device_.features.whole_subgroups) {
    info.stage.pNext = &lanes;
    info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
  }
  info.layout = layout_;
  const VkResult r = vk.CreateComputePipelines(device_.handle, cache_, 1, &info, nullptr, &p.handle);
  vk.DestroyShaderModule(device_.handle, module, nullptr);
  return r;
}

swy_status Pipelines::wait(Pipeline& p, swy_error* error) {
  std::unique_lock lock(mutex_);
  while (p.state != Pipeline::kReady) {
    if (p.state == Pipeline::kQueued) {
      build_next(lock);
    } else {
      done_.wait(lock);
    }
  }
  if (p.result == VK_SUCCESS) return SWY_OK;
  char what[96];
  std::snprintf(what, sizeof what, "making the pipeline %s", p.shader->name);
  const swy_status s = check(device_, p.result, what, error);
  if (p.result == VK_ERROR_OUT_OF_HOST_MEMORY || p.result == VK_ERROR_OUT_OF_DEVICE_MEMORY) {
    // Memory may become free again: the next list that needs the pipeline tries again.
    try {
      queue_.push_back(&p);
      p.state = Pipeline::kQueued;
    } catch (const std::bad_alloc&) {
    }
  }
  return s;
}

}  // namespace gpu
