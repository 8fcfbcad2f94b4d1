// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/plugin.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "core/plugin/buffer.h"
#include "core/plugin/validate.h"
#include "core/program/op_names.h"

namespace switchyard {
namespace {

constexpr uint32_t kMaxTable = 65536;
constexpr size_t kMaxId = sizeof(swy_note::id) - 1;

// The first mandatory entry that is missing; "" when all are there.
const char* missing_entry(const swy_plugin& p) {
  const struct {
    const char* name;
    bool there;
  } entries[] = {{"device_count", p.device_count != nullptr},
                 {"device_info", p.device_info != nullptr},
                 {"device_open", p.device_open != nullptr},
                 {"device_close", p.device_close != nullptr},
                 {"kernel_count", p.kernel_count != nullptr},
                 {"kernel_at", p.kernel_at != nullptr},
                 {"buffer_alloc", p.buffer_alloc != nullptr},
                 {"buffer_free", p.buffer_free != nullptr},
                 {"buffer_map", p.buffer_map != nullptr},
                 {"write", p.write != nullptr},
                 {"read", p.read != nullptr},
                 {"fill_zero", p.fill_zero != nullptr},
                 {"state_layout", p.state_layout != nullptr},
                 {"list_begin", p.list_begin != nullptr},
                 {"list_finalize", p.list_finalize != nullptr},
                 {"list_submit", p.list_submit != nullptr},
                 {"list_free", p.list_free != nullptr}};
  for (const auto& e : entries) {
    if (!e.there) return e.name;
  }
  return "";
}

bool parses_as(swy_option_type type, const std::string& value) {
  const char* end = value.data() + value.size();
  if (type == SWY_OPTION_BOOL) return value == "0" || value == "1" || value == "true" || value == "false";
  if (type == SWY_OPTION_INT) {
    int64_t v = 0;
    const auto r = std::from_chars(value.data(), end, v);
    return r.ec == std::errc() && r.ptr == end;
  }
  if (type == SWY_OPTION_FLOAT) {
    double v = 0;
    const auto r = std::from_chars(value.data(), end, v);
    return r.ec == std::errc() && r.ptr == end;
  }
  return true;
}

}  // namespace

const swy_range* PlanDevice::range() const {
  if (api->get_extension == nullptr) return nullptr;
  const auto* range = static_cast<const swy_range*>(api->get_extension(handle, SWY_EXT_RANGE));
  return range != nullptr && range->claim != nullptr && range->prepare != nullptr && range->record != nullptr ? range
                                                                                                              : nullptr;
}

Plugin::~Plugin() = default;

std::string Plugin::violation() const { return validator_ == nullptr ? "" : validator_->violation(); }

Result<std::unique_ptr<Plugin>> Plugin::open(Os& os, const std::string& path, const PluginNote& note,
                                             const swy_host* host, bool validate) {
  std::unique_ptr<Validator> validator;
  if (validate) {
    SWY_LET(validator, Validator::create(note.id, host));
    host = validator->host();
  }
  SWY_LET(void* library, os.open_library(path));
  SWY_LET(void* symbol, os.symbol(library, SWY_NEGOTIATE_SYMBOL));
  const auto negotiate = reinterpret_cast<swy_negotiate_fn>(symbol);
  PluginError e;
  const swy_negotiate_in in{sizeof in, SWY_ABI_VERSION, SWY_ABI_VERSION, 0, SWY_NEGOTIATE_MAGIC, host};
  swy_negotiate_out out{};
  out.struct_size = sizeof out;
  out.error = e.get();
  if (const swy_status status = negotiate(&in, &out); status != SWY_OK) {
    return error(Code::unsupported, "refused: {}", e.status(status, note.id).message());
  }
  if (out.abi != SWY_ABI_VERSION) {
    return error(Code::unsupported, "answered ABI {}, this runtime speaks {}", out.abi, SWY_ABI_VERSION);
  }
  if (out.id == nullptr || out.plugin == nullptr || out.plugin->struct_size < sizeof(uint32_t)) {
    return error(Code::invalid_data, "gave no id or no table");
  }
  if (out.plugin->struct_size > kMaxTable) {
    return error(Code::invalid_data, "says that its table has {} bytes", out.plugin->struct_size);
  }
  std::unique_ptr<Plugin> p(new Plugin);
  p->id_ = std::string(out.id, ::strnlen(out.id, kMaxId + 1));
  p->version_ = out.version != nullptr ? out.version : "";
  p->path_ = path;
  if (p->id_ != note.id) {
    return error(Code::invalid_data, "calls itself '{}', and its note says '{}'", p->id_, note.id);
  }
  std::memcpy(&p->table_, out.plugin, std::min<size_t>(out.plugin->struct_size, sizeof p->table_));
  if (const char* name = missing_entry(p->table_); *name != '\0') {
    return error(Code::invalid_data, "lacks the mandatory entry {}", name);
  }
  if (validator != nullptr) p->table_ = validator->wrap(p->table_);
  p->validator_ = std::move(validator);
  return p;
}

Status Plugin::check(const std::vector<Setting>& settings) const {
  for (const Setting& s : settings) {
    const swy_option* found = nullptr;
    std::string known;
    for (uint32_t i = 0; i < table_.option_count; ++i) {
      const swy_option* o = table_.options[i];
      known += fmt::format("{}{}", known.empty() ? "" : ", ", o->name);
      if (s.name == o->name) found = o;
    }
    if (found == nullptr) {
      return error(Code::usage, "backend {} has no option '{}'; it has {}", id_, s.name,
                   known.empty() ? "none" : known);
    }
    if (!parses_as(found->type, s.value)) {
      static constexpr const char* types[] = {"?", "0 or 1", "a whole number", "a number", "a string"};
      return error(Code::usage, "option {}.{} takes {}, not '{}'", id_, s.name,
                   types[found->type <= SWY_OPTION_STRING ? found->type : 0], s.value);
    }
  }
  return {};
}

Result<std::shared_ptr<Device>> Device::open(const Plugin& plugin, uint32_t index,
                                             const std::vector<Setting>& settings) {
  SWY_TRY(plugin.check(settings));
  const swy_plugin* api = plugin.table();
  PluginError e;
  uint32_t count = 0;
  SWY_TRY(e.status(api->device_count(&count, e.get()), plugin.id()));
  if (index >= count) {
    const std::string reason = e.get()->message[0] != '\0' ? std::string(": ") + e.get()->message : "";
    return error(Code::not_found, "backend {} has {} devices, there is no {}:{}{}", plugin.id(), count, plugin.id(),
                 index, reason);
  }
  std::shared_ptr<Device> d(new Device);
  d->plan_.backend = plugin.id();
  d->plan_.version = plugin.version();
  d->plan_.name = fmt::format("{}:{}", plugin.id(), index);
  std::vector<swy_setting> raw;
  for (const Setting& s : settings) raw.push_back({s.name.c_str(), s.value.c_str()});
  swy_device* handle = nullptr;
  SWY_TRY(e.status(api->device_open(index, raw.data(), static_cast<uint32_t>(raw.size()), &handle, e.get()),
                   d->plan_.name));
  d->plan_.api = api;
  d->plan_.handle = handle;
  // Only now: a device may find out what it can sample while it is opened.
  d->plan_.info.struct_size = sizeof d->plan_.info;
  SWY_TRY(e.status(api->device_info(index, &d->plan_.info, e.get()), d->plan_.name));
  return d;
}

Device::~Device() {
  if (plan_.handle != nullptr) plan_.api->device_close(plan_.handle);
}

std::vector<const swy_kernel*> Device::kernels() const {
  std::vector<const swy_kernel*> out;
  for (uint32_t i = 0; i < plan_.api->kernel_count(plan_.handle); ++i) {
    if (const swy_kernel* k = plan_.api->kernel_at(plan_.handle, i)) out.push_back(k);
  }
  return out;
}

}  // namespace switchyard
