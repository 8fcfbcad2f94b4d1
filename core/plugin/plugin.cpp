// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/plugin.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <mutex>

#include "core/plugin/buffer.h"
#include "core/plugin/call.h"
#include "core/plugin/cancel.h"
#include "core/plugin/validate.h"
#include "core/program/op_names.h"

namespace switchyard {
namespace {

constexpr uint32_t kMaxTable = 65536;
constexpr size_t kMaxId = sizeof(swy_note::id) - 1;

// The first mandatory entry that is missing; "" when all are there.
const char* missing_entry(const swy_plugin& p) {
#define SWY_CHECK_ENTRY(name) \
  if (p.name == nullptr) return #name;
  SWY_MANDATORY_ENTRIES(SWY_CHECK_ENTRY)
#undef SWY_CHECK_ENTRY
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

namespace {

// Of this process. One takes place at a time.
struct Negotiations {
  std::mutex mutex;
  std::map<swy_negotiate_fn, const swy_host*> last;  // the host that each library knows
};
Negotiations& negotiations() {
  static auto* const all = new Negotiations;
  return *all;
}

// With the lock of `negotiations`.
Status ask(swy_negotiate_fn negotiate, const swy_host* host, const std::string& id, swy_negotiate_out& out) {
  PluginError e;
  const swy_negotiate_in in{sizeof in, SWY_ABI_VERSION, SWY_ABI_VERSION, SWY_ABI_MINOR, SWY_NEGOTIATE_MAGIC, host};
  out = {};
  out.struct_size = sizeof out;
  out.error = e.get();
  const PlanDevice unopened{.name = id, .label = lasting(id)};
  negotiations().last[negotiate] = host;
  const auto call = [&](swy_error*) { return negotiate(&in, &out); };
  const swy_status status = call_plugin(unopened, "negotiate", e.get(), call);
  out.error = nullptr;
  return status == SWY_OK ? Status() : error(Code::unsupported, "refused: {}", e.status(status, id).message());
}

}  // namespace

Plugin::~Plugin() = default;

Status Plugin::while_last(const std::function<Status()>& open) const {
  const std::lock_guard lock(negotiations().mutex);
  if (negotiations().last[negotiate_] != host_) {
    swy_negotiate_out out{};
    SWY_TRY(ask(negotiate_, host_, id_, out));
  }
  return open();
}

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
  swy_negotiate_out out{};
  const std::lock_guard lock(negotiations().mutex);
  SWY_TRY(ask(negotiate, host, note.id, out));
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
  p->abi_minor_ = out.abi_minor;
  p->path_ = path;
  p->negotiate_ = negotiate;
  p->host_ = host;
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
  const PlanDevice device{.name = fmt::format("{}:{}", plugin.id(), index),
                          .label = lasting(fmt::format("{}:{}", plugin.id(), index))};
  PluginError e;
  const auto call = [&](const char* entry, auto body) { return call_plugin(device, entry, e.get(), body); };
  uint32_t count = 0;
  SWY_TRY(e.status(call("device_count", [&](swy_error* x) { return api->device_count(&count, x); }), plugin.id()));
  if (index >= count) {
    const std::string reason = e.get()->message[0] != '\0' ? std::string(": ") + e.get()->message : "";
    return error(Code::not_found, "backend {} has {} devices, there is no {}:{}{}", plugin.id(), count, plugin.id(),
                 index, reason);
  }
  std::shared_ptr<Device> d(new Device);
  d->plan_.backend = plugin.id();
  d->plan_.version = plugin.version();
  d->plan_.name = device.name;
  d->plan_.label = device.label;
  std::vector<swy_setting> raw;
  for (const Setting& s : settings) raw.push_back({s.name.c_str(), s.value.c_str()});
  swy_device* handle = nullptr;
  const auto n = static_cast<uint32_t>(raw.size());
  const auto open = [&](swy_error* x) { return api->device_open(index, raw.data(), n, &handle, x); };
  SWY_TRY(plugin.while_last([&] { return e.status(call("device_open", open), d->plan_.name); }));
  d->plan_.api = api;
  d->plan_.handle = handle;
  // Only now: a device may find out what it can sample while it is opened.
  d->plan_.info.struct_size = sizeof d->plan_.info;
  const auto describe = [&](swy_error* x) { return api->device_info(index, &d->plan_.info, x); };
  SWY_TRY(e.status(call("device_info", describe), d->plan_.name));
  keep_cancel(d->plan_);
  return d;
}

Device::~Device() {
  if (plan_.handle == nullptr) return;
  forget_cancel(plan_);
  const PluginCall now(plan_.label, "device_close");
  plan_.api->device_close(plan_.handle);
}

std::vector<const swy_kernel*> Device::kernels() const {
  std::vector<const swy_kernel*> out;
  for (uint32_t i = 0; i < plan_.api->kernel_count(plan_.handle); ++i) {
    if (const swy_kernel* k = plan_.api->kernel_at(plan_.handle, i)) out.push_back(k);
  }
  return out;
}

}  // namespace switchyard
