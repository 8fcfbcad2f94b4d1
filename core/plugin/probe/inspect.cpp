// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/probe/inspect.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <unistd.h>

#include <cstring>
#include <exception>

#include "core/plugin/call.h"
#include "core/plugin/host.h"
#include "core/plugin/plugin.h"
#include "core/plugin/probe/surroundings.h"
#include "switchyard/extensions_ahead.h"

namespace switchyard {
namespace {

constexpr uint32_t kMaxOptions = 256;
constexpr uint32_t kMaxDevices = 1024;
constexpr size_t kMaxText = 4096;
constexpr uint32_t kMaxExtension = 65536;
constexpr useconds_t kLinger = 200'000;  // for what threads of the plugin may still do

// A text of the plugin: present, ending, and nothing but text.
Status check_text(const char* text, const std::string& what) {
  if (text == nullptr) return error(Code::invalid_data, "{} is NULL", what);
  const size_t length = ::strnlen(text, kMaxText);
  if (length == kMaxText) return error(Code::invalid_data, "{} does not end within {} bytes", what, kMaxText);
  for (size_t i = 0; i < length; ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c < 0x20 || c == 0x7f) return error(Code::invalid_data, "{} holds the control character {}", what, c);
  }
  return {};
}

Status check_symbol(void* library) {
  void* symbol = ::dlsym(library, SWY_NEGOTIATE_SYMBOL);
  Dl_info info{};
  void* found = nullptr;
  if (symbol == nullptr) return error(Code::invalid_data, "no symbol {}", SWY_NEGOTIATE_SYMBOL);
  if (::dladdr1(symbol, &info, &found, RTLD_DL_SYMENT) == 0 || found == nullptr) return {};
  if (info.dli_saddr == symbol && ELF64_ST_TYPE(static_cast<const ElfW(Sym)*>(found)->st_info) == STT_OBJECT) {
    return error(Code::invalid_data, "{} is data, not a function", SWY_NEGOTIATE_SYMBOL);
  }
  return {};
}

Status check_options(const swy_plugin& p) {
  if (p.option_count > kMaxOptions) return error(Code::invalid_data, "has {} options", p.option_count);
  if (p.option_count > 0 && p.options == nullptr) {
    return error(Code::invalid_data, "has {} options and no list of them", p.option_count);
  }
  for (uint32_t i = 0; i < p.option_count; ++i) {
    const swy_option* o = p.options[i];
    if (o == nullptr) return error(Code::invalid_data, "option {} is NULL", i);
    if (!SWY_HAS(swy_option, o, help)) {
      return error(Code::invalid_data, "option {} has a struct_size of {}", i, o->struct_size);
    }
    SWY_TRY(check_text(o->name, fmt::format("the name of option {}", i)));
    SWY_TRY(check_text(o->default_value, fmt::format("the default of option {}", o->name)));
    SWY_TRY(check_text(o->help, fmt::format("the help of option {}", o->name)));
    if (*o->name == '\0') return error(Code::invalid_data, "option {} has no name", i);
    if (o->type < SWY_OPTION_BOOL || o->type > SWY_OPTION_STRING) {
      return error(Code::invalid_data, "option {} is of the unknown type {}", o->name, o->type);
    }
  }
  return {};
}

// What the host may ask for by name, and a name that no plugin has.
Status check_extensions(const swy_plugin& p, swy_device* device, const std::function<void(const char*)>& stage) {
  if (p.get_extension == nullptr) return {};
  stage("in get_extension");
  for (const char* name :
       {SWY_EXT_RANGE, SWY_EXT_RANGE_2, SWY_EXT_SAMPLING, SWY_EXT_PROFILE, SWY_EXT_CANCEL, SWY_EXT_AHEAD, SWY_EXT_GROUP,
        SWY_EXT_LOOP, SWY_EXT_PEER, SWY_EXT_PROFILE_PARTS, SWY_EXT_DERIVED}) {
    const void* extension = p.get_extension(device, name);
    if (extension == nullptr) continue;
    uint32_t size = 0;
    std::memcpy(&size, extension, sizeof size);
    if (size < 2 * sizeof(uint32_t) || size > kMaxExtension) {
      return error(Code::invalid_data, "the extension {} has a struct_size of {}", name, size);
    }
  }
  constexpr char kUnknown[] = "swy.none/1";
  if (p.get_extension(device, kUnknown) == nullptr) return {};
  return error(Code::invalid_data, "get_extension gives something for {}, which does not exist", kUnknown);
}

Status check_devices(const Plugin& plugin, const std::function<void(const char*)>& stage) {
  const swy_plugin& p = *plugin.table();
  char text[512] = {};
  swy_error e{sizeof e, sizeof text, text, SWY_REASON_NONE, 0};
  uint32_t count = 0;
  stage("in device_count");
  if (p.device_count(&count, &e) != SWY_OK) return {};
  if (count > kMaxDevices) return error(Code::invalid_data, "has {} devices", count);
  stage("in device_info");
  for (uint32_t i = 0; i < count; ++i) {
    swy_device_info info{};
    info.struct_size = sizeof info;
    if (p.device_info(i, &info, &e) != SWY_OK) continue;
    SWY_TRY(check_text(info.name, fmt::format("the name of device {}", i)));
    SWY_TRY(check_text(info.arch, fmt::format("the arch of device {}", i)));
  }
  if (count == 0) return {};
  stage("in device_open or its list of kernels");
  auto device = Device::open(plugin, 0, {});
  if (!device.ok()) return {};
  for (const swy_kernel* k : (*device)->kernels()) SWY_TRY(check_text(k->name, "the name of a kernel"));
  SWY_TRY(check_extensions(p, (*device)->plan().handle, stage));
  stage("in device_close");
  device->reset();
  return {};
}

Status inspect(const std::string& path, const std::function<void(const char*)>& stage) {
  Os& os = Os::real();
  SWY_LET(const auto file, os.map(path));
  SWY_LET(const PluginNote note, read_plugin_note(file->bytes()));
  const Host host(1);
  const Surroundings before = Surroundings::now();
  stage("while it is loaded");
  SWY_LET(void* library, os.open_library(path));
  SWY_TRY(check_symbol(library));
  stage("in negotiate");
  SWY_LET(const auto plugin, Plugin::open(os, path, note, host.table(), true));
  if (has_started_processes()) {
    return error(Code::invalid_data, "starts a process while it is loaded or negotiates (fork)");
  }
  SWY_TRY(check_text(plugin->version().c_str(), "its version"));
  stage("in its options");
  SWY_TRY(check_options(*plugin->table()));
  SWY_TRY(check_devices(*plugin, stage));
  if (!plugin->violation().empty()) return error(Code::invalid_data, "breaks a rule: {}", plugin->violation());
  stage("after it was asked everything");
  const Surroundings after = Surroundings::now();
  if (after.threads > before.threads) ::usleep(kLinger);
  const std::string broken = before.broken_by(after);
  return broken.empty() ? Status() : error(Code::invalid_data, "{}", broken);
}

}  // namespace

Status inspect_plugin(const std::string& path, const std::function<void(const char*)>& stage) {
  std::string where;
  const auto noted = [&](const char* now) { stage((where = now).c_str()); };
  try {
    const Status status = inspect(path, noted);
    const std::string thrown = first_exception();  // which the host takes for a failed call
    return thrown.empty() ? status : error(Code::invalid_data, "throws an exception in {}", thrown);
  } catch (const std::exception& e) {
    return error(Code::invalid_data, "throws an exception {}: {}", where, e.what());
  } catch (...) {
    return error(Code::invalid_data, "throws an exception {}", where);
  }
}

}  // namespace switchyard
