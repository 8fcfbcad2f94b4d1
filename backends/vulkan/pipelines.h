// SPDX-License-Identifier: Apache-2.0
// Shaders with their constants, as pipelines. Threads create them in parallel while a list is recorded, since a driver
// takes some hundredths of a second for each.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "device.h"
#include "stored_pipelines.h"

namespace gpu {

// A compiled shader, embedded in the library.
struct Shader {
  const char* name;
  const uint32_t* words;
  size_t bytes;
};
#define SWY_SHADER(array) \
  ::gpu::Shader { #array, array, sizeof(array) }

constexpr uint32_t kPushBytes = 128;  // guaranteed on every device

struct Pipeline {
  const Shader* shader = nullptr;
  std::vector<uint32_t> constants;  // specialization constants 0, 1, 2 ...
  VkPipeline handle = VK_NULL_HANDLE;
  VkResult result = VK_SUCCESS;
  enum { kQueued, kBuilding, kReady } state = kQueued;
};

class Pipelines {
 public:
  explicit Pipelines(swy_device& device) : device_(device) {}
  Pipelines(const Pipelines&) = delete;
  Pipelines& operator=(const Pipelines&) = delete;
  ~Pipelines();

  swy_status open(swy_error* error);
  VkPipelineLayout layout() const { return layout_; }

  // [thread-safe] A pipeline that exists or will; the same one for the same constants. May throw bad_alloc.
  Pipeline* get(const Shader& shader, std::span<const uint32_t> constants);
  // [thread-safe] Waits until it exists, and helps meanwhile.
  swy_status wait(Pipeline& pipeline, swy_error* error);

 private:
  using Key = std::pair<const uint32_t*, std::vector<uint32_t>>;
  void work();
  void build_next(std::unique_lock<std::mutex>& lock);
  VkResult build(Pipeline& p) const;
  void start_thread();
  void keep() noexcept;

  swy_device& device_;
  VkPipelineLayout layout_ = VK_NULL_HANDLE;
  VkPipelineCache cache_ = VK_NULL_HANDLE;
  StoredPipelines stored_;
  std::mutex mutex_;
  std::condition_variable came_, done_;
  std::map<Key, std::unique_ptr<Pipeline>> all_;
  std::deque<Pipeline*> queue_;
  std::vector<std::thread> threads_;
  bool closing_ = false;
};

}  // namespace gpu
