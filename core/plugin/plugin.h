// SPDX-License-Identifier: Apache-2.0
// Plugin: a backend's shared object, opened and negotiated with.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/os.h"
#include "core/base/status.h"
#include "core/plugin/device.h"
#include "core/plugin/elf_note.h"
#include "switchyard/plugin.h"

namespace switchyard {

// "NAME=VALUE" for one option of one plugin, from `--set ID.NAME=VALUE`.
struct Setting {
  std::string name;
  std::string value;
};

class Validator;

class Plugin {
 public:
  // Runs the plugin's code for the first time. Errors: unsupported (another ABI, or the plugin refused, with its
  // reason); invalid_data (no negotiate symbol, a broken answer). The library stays loaded for ever. With `validate`
  // every call is checked against the rules of plugin.h (validate.h).
  static Result<std::unique_ptr<Plugin>> open(Os& os, const std::string& path, const PluginNote& note,
                                              const swy_host* host, bool validate = false);
  ~Plugin();

  const std::string& id() const { return id_; }
  const std::string& version() const { return version_; }
  uint32_t abi_minor() const { return abi_minor_; }  // SWY_ABI_MINOR of its headers
  const std::string& path() const { return path_; }
  // Complete: entries beyond the end of the plugin's struct are NULL.
  const swy_plugin* table() const { return &table_; }

  // The first rule of plugin.h that it broke; "" when none, or when nothing is validated.
  std::string violation() const;

  // Makes `open` keep this plugin's host, since a device keeps the host that negotiated last: other engines of the
  // process negotiate with the same library. Errors: those of `open`, of the plugin.
  Status while_last(const std::function<Status()>& open) const;

  // Errors: usage, for an option that the plugin lacks or a value of the wrong type, listing what there is.
  Status check(const std::vector<Setting>& settings) const;

 private:
  Plugin() = default;

  std::string id_, version_, path_;
  uint32_t abi_minor_ = 0;
  swy_plugin table_{};
  swy_negotiate_fn negotiate_ = nullptr;
  const swy_host* host_ = nullptr;
  std::unique_ptr<Validator> validator_;  // NULL when nothing is validated
};

// An open device of a plugin; closed with its last owner.
class Device {
 public:
  // Errors: not_found, if there is no such device; the plugin's own.
  static Result<std::shared_ptr<Device>> open(const Plugin& plugin, uint32_t index,
                                              const std::vector<Setting>& settings);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const PlanDevice& plan() const { return plan_; }
  std::vector<const swy_kernel*> kernels() const;

 private:
  Device() = default;
  PlanDevice plan_;
};

}  // namespace switchyard
