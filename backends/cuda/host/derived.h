// SPDX-License-Identifier: Apache-2.0
// Weights that the backend computes from others of a model: each once, for all lists, and again when one of those is
// written.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "switchyard/plugin.h"

namespace gpu {

class DerivedWeight {
 public:
  // Computes it into this memory of the device's, on the device's stream.
  using Make = std::function<swy_status(swy_device& device, char* memory, swy_error* error)>;

  DerivedWeight(swy_device& device, Make make) : device_(device), make_(std::move(make)) {}
  DerivedWeight(const DerivedWeight&) = delete;
  DerivedWeight& operator=(const DerivedWeight&) = delete;
  ~DerivedWeight();

  swy_status allocate(uint64_t bytes, swy_error* error);
  // Before a list that reads it is started: computes it where that was not done since its sources were written. That
  // may need memory; without it the list is not started.
  swy_status renew(swy_error* error);
  void outdate() { outdated_ = true; }
  char* memory() const { return memory_; }

 private:
  swy_device& device_;
  Make make_;
  char* memory_ = nullptr;
  std::atomic<bool> outdated_ = true;
};

class DerivedWeights {
 public:
  struct Source {
    const void* data;
    uint64_t bytes;
    auto operator<=>(const Source&) const = default;
  };
  // What it is computed from, and a number that it depends on.
  struct Key {
    std::array<Source, 4> from;
    float number;
    auto operator<=>(const Key&) const = default;
  };
  // The weight of a key, which `make` computes if there is none.
  swy_status get(swy_device& device, const Key& key, uint64_t bytes, DerivedWeight::Make make,
                 std::shared_ptr<DerivedWeight>* out, swy_error* error);
  // This memory is written; or freed, and its addresses may come again. Lists keep what they have.
  void written(const char* memory, uint64_t bytes);
  void freed(const char* memory, uint64_t bytes);
  void forget_all();

 private:
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<DerivedWeight>> made_;
};

}  // namespace gpu
