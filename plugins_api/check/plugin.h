// SPDX-License-Identifier: Apache-2.0
// A plugin and one of its devices as a host sees them: only through the ABI.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "plugins_api/check/failure.h"
#include "switchyard/plugin.h"

namespace switchyard::check {

struct Setting {
  std::string name, value;
};

// A plugin's file, opened and negotiated with. It stays loaded until the process ends.
class Library {
 public:
  // Throws Failure with the plugin's own reason.
  explicit Library(const std::string& path);
  const swy_plugin& api() const { return *out_.plugin; }
  std::string id() const { return out_.id; }
  std::string version() const { return out_.version == nullptr ? "" : out_.version; }
  uint32_t abi() const { return out_.abi; }
  // Made from headers of a later minor version: it may have flags that this kit does not know.
  bool is_newer() const { return out_.abi_minor > SWY_ABI_MINOR; }

 private:
  swy_negotiate_out out_{};
};

// Opens a plugin's file without a call of the plugin: its exported function. Throws Failure.
swy_negotiate_fn open_library(const std::string& path);

// Device 0 of a plugin. Not thread-safe.
class Plugin {
 public:
  // Throws Failure with the plugin's own reason; WrongMachine if there is no device, or not one that the settings need.
  Plugin(const Library& library, const std::vector<Setting>& settings);
  ~Plugin();
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  const swy_plugin& api() const { return library_.api(); }
  swy_device* device() const { return device_; }
  std::string id() const { return library_.id(); }
  bool is_newer() const { return library_.is_newer(); }
  const swy_device_info& info() const { return info_; }
  const std::vector<const swy_kernel*>& kernels() const { return kernels_; }
  // Of offsets that are bound to operands, in bytes.
  uint64_t alignment() const { return info_.buffer_alignment < 64 ? 64 : info_.buffer_alignment; }
  // NULL: it has none of that name.
  const void* extension(const char* name) const;

 private:
  Library library_;
  swy_device* device_ = nullptr;
  swy_device_info info_{};
  std::vector<const swy_kernel*> kernels_;
};

// A call of the plugin gave another status than SWY_OK.
class Refused : public Failure {
 public:
  Refused(swy_status s, bool line, const std::string& what) : Failure(what), status(s), has_line(line) {}
  swy_status status;
  bool has_line;  // the plugin gave a reason
};

// Room for a plugin's error line.
class PluginError {
 public:
  PluginError() : error_{sizeof(swy_error), sizeof text_, text_, SWY_REASON_NONE, 0} {}
  PluginError(const PluginError&) = delete;
  PluginError& operator=(const PluginError&) = delete;
  swy_error* get() { return &error_; }
  std::string line() const { return text_[0] == '\0' ? "no reason given" : text_; }
  bool has_line() const { return text_[0] != '\0'; }
  // Throws Refused, "WHAT: the plugin's line (status N)", unless the status is SWY_OK.
  void expect_ok(swy_status status, const std::string& what) const {
    if (status != SWY_OK) throw Refused(status, has_line(), text(what, ": ", line(), " (status ", status, ")"));
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
  void poison() const;                  // everything, guards included
  const unsigned char* mapped() const;  // NULL: not visible to the host
  void write(const void* from, uint64_t bytes) const;
  void read(void* to, uint64_t bytes) const;
  // Whether it begins with these bytes.
  bool holds(const void* wanted, uint64_t bytes) const;
  // Throws if a byte of the guards changed since `poison`.
  void expect_guards() const;

 private:
  // Reads [at, at + bytes) of the buffer in pieces, each to be looked at before the next comes: (its begin, its bytes).
  void look(uint64_t at, uint64_t bytes,
            const std::function<void(uint64_t, std::span<const unsigned char>)>& see) const;

  const Plugin* plugin_;
  swy_buffer* buffer_ = nullptr;
  std::string what_;
  uint64_t offset_, bytes_, total_;
};

}  // namespace switchyard::check
