// A plugin and one of its devices, as a host sees them: through the ABI and nothing else.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "plugins_api/check/failure.h"
#include "switchyard/plugin.h"

namespace switchyard::check {

struct Setting {
  std::string name, value;
};

// Opened plugins stay loaded until the process ends. Not thread-safe.
class Plugin {
 public:
  // Opens device 0. Throws Failure with the plugin's own reason.
  Plugin(const std::string& path, const std::vector<Setting>& settings);
  ~Plugin();
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  const swy_plugin& api() const { return *api_; }
  swy_device* device() const { return device_; }
  const std::string& id() const { return id_; }
  const std::vector<const swy_kernel*>& kernels() const { return kernels_; }
  // Of offsets that are bound to operands, in bytes.
  uint64_t alignment() const { return alignment_; }
  // SWY_SAMPLES_*: which parts of the chain SAMPLE covers.
  uint32_t sampling_steps() const { return sampling_steps_; }

 private:
  std::string id_;
  const swy_plugin* api_ = nullptr;
  swy_device* device_ = nullptr;
  std::vector<const swy_kernel*> kernels_;
  uint64_t alignment_ = 64;
  uint32_t sampling_steps_ = 0;
};

// Room for a plugin's error line.
class PluginError {
 public:
  PluginError() : error_{sizeof(swy_error), sizeof text_, text_, SWY_REASON_NONE, 0} {}
  PluginError(const PluginError&) = delete;
  PluginError& operator=(const PluginError&) = delete;
  swy_error* get() { return &error_; }
  std::string line() const { return text_[0] == '\0' ? "no reason given" : text_; }
  // Throws "WHAT: the plugin's line (status N)" unless the status is SWY_OK.
  void expect_ok(swy_status status, const std::string& what) const {
    if (status != SWY_OK) throw Failure(text(what, ": ", line(), " (status ", status, ")"));
  }

 private:
  char text_[512] = {};
  swy_error error_;
};

// Device memory of a plugin, given back at the end. Bound [offset, offset + bytes), between guards of poison: 0xff in
// every byte, which is a NaN in fp32 and bf16 and -1 as an integer.
class Memory {
 public:
  Memory(const Plugin& plugin, swy_memory_type type, uint64_t bytes, const std::string& what);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&&) = delete;

  uint64_t bytes() const { return bytes_; }
  swy_binding binding() const { return {buffer_, offset_, bytes_}; }
  swy_binding part(uint64_t at, uint64_t bytes) const { return {buffer_, offset_ + at, bytes}; }
  void poison() const;  // everything, guards included
  void write(const void* from, uint64_t bytes) const;
  void read(void* to, uint64_t bytes) const;
  // Throws if a byte of the guards changed since `poison`.
  void expect_guards() const;

 private:
  const Plugin* plugin_;
  swy_buffer* buffer_ = nullptr;
  std::string what_;
  uint64_t offset_, bytes_, total_;
};

}  // namespace switchyard::check
