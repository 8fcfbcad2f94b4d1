// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/plugin.h"

#include <dlfcn.h>

#include <algorithm>
#include <utility>

#include "plugins_api/check/host.h"

namespace switchyard::check {

swy_negotiate_fn open_library(const std::string& path) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) throw Failure(text("cannot open ", path, ": ", ::dlerror()));
  const auto negotiate = reinterpret_cast<swy_negotiate_fn>(::dlsym(library, SWY_NEGOTIATE_SYMBOL));
  if (negotiate == nullptr) throw Failure(text(path, " exports no " SWY_NEGOTIATE_SYMBOL));
  return negotiate;
}

Library::Library(const std::string& path) {
  const swy_negotiate_fn negotiate = open_library(path);
  PluginError e;
  const swy_negotiate_in in{sizeof in, SWY_ABI_VERSION, SWY_ABI_VERSION, 0, SWY_NEGOTIATE_MAGIC, the_host()};
  out_.struct_size = sizeof out_;
  out_.error = e.get();
  e.expect_ok(negotiate(&in, &out_), path + " refused");
  out_.error = nullptr;
  if (out_.id == nullptr || out_.plugin == nullptr) throw Failure(path + " negotiated without an id or a table");
}

Plugin::Plugin(const Library& library, const std::vector<Setting>& settings) : library_(library) {
  uint32_t count = 0;
  PluginError e;
  e.expect_ok(api().device_count(&count, e.get()), id() + ": device_count");
  if (count == 0) throw WrongMachine(text(id(), " has no device: ", e.line()));
  std::vector<swy_setting> raw;
  for (const Setting& s : settings) {
    bool known = false;
    for (uint32_t i = 0; i < api().option_count; ++i) known = known || s.name == api().options[i]->name;
    if (!known) throw Failure(text(id(), " has no option '", s.name, "'"));
    raw.push_back({s.name.c_str(), s.value.c_str()});
  }
  const swy_status opened = api().device_open(0, raw.data(), static_cast<uint32_t>(raw.size()), &device_, e.get());
  if (opened == SWY_UNSUPPORTED && e.get()->reason == SWY_REASON_ARCH) throw WrongMachine(id() + ": " + e.line());
  e.expect_ok(opened, id() + ": device_open");
  info_.struct_size = sizeof info_;
  e.expect_ok(api().device_info(0, &info_, e.get()), id() + ": device_info");
  for (uint32_t i = 0; i < api().kernel_count(device_); ++i) kernels_.push_back(api().kernel_at(device_, i));
}

const void* Plugin::extension(const char* name) const {
  return api().get_extension == nullptr ? nullptr : api().get_extension(device_, name);
}

Plugin::~Plugin() {
  if (device_ != nullptr) api().device_close(device_);
}

Memory::Memory(const Plugin& plugin, swy_memory_type type, uint64_t bytes, const std::string& what)
    : plugin_(&plugin), what_(what), offset_((256 + plugin.alignment() - 1) / plugin.alignment() * plugin.alignment()) {
  bytes_ = bytes;
  total_ = offset_ + bytes + (guard_pages() ? 0 : 256);  // guard pages follow at once
  PluginError e;
  name_blocks(what);
  e.expect_ok(plugin.api().buffer_alloc(plugin.device(), type, total_, &buffer_, e.get()),
              text("allocating ", total_, " bytes for ", what));
  poison();
}

Memory::Memory(Memory&& other) noexcept
    : plugin_(other.plugin_),
      buffer_(std::exchange(other.buffer_, nullptr)),
      what_(std::move(other.what_)),
      offset_(other.offset_),
      bytes_(other.bytes_),
      total_(other.total_) {}

Memory::~Memory() {
  if (buffer_ != nullptr) plugin_->api().buffer_free(plugin_->device(), buffer_);
}

const unsigned char* Memory::mapped() const {
  const auto map = plugin_->api().buffer_map;
  const auto* memory = map == nullptr ? nullptr : static_cast<const unsigned char*>(map(plugin_->device(), buffer_));
  return memory == nullptr ? nullptr : memory + offset_;
}

void Memory::poison() const {
  const std::vector<unsigned char> ones(total_, 0xff);
  PluginError e;
  e.expect_ok(plugin_->api().write(plugin_->device(), buffer_, 0, ones.data(), total_, nullptr, e.get()),
              "writing " + what_);
}

void Memory::write(const void* from, uint64_t bytes) const {
  if (bytes == 0) return;
  if (bytes > bytes_) throw Failure(text("the kit writes ", bytes, " bytes to ", what_, " of ", bytes_));
  PluginError e;
  e.expect_ok(plugin_->api().write(plugin_->device(), buffer_, offset_, from, bytes, nullptr, e.get()),
              "writing " + what_);
}

void Memory::read(void* to, uint64_t bytes) const {
  if (bytes == 0) return;
  PluginError e;
  e.expect_ok(plugin_->api().read(plugin_->device(), to, buffer_, offset_, bytes, nullptr, e.get()),
              "reading " + what_);
}

void Memory::expect_guards() const {
  std::vector<unsigned char> all(total_);
  PluginError e;
  e.expect_ok(plugin_->api().read(plugin_->device(), all.data(), buffer_, 0, total_, nullptr, e.get()),
              "reading " + what_);
  for (uint64_t i = 0; i < total_; ++i) {
    if ((i >= offset_ && i < offset_ + bytes_) || all[i] == 0xff) continue;
    const bool before = i < offset_;
    throw Failure(text("wrote outside ", what_, ": byte ", before ? offset_ - i : i - offset_ - bytes_ + 1,
                       before ? " before its begin" : " beyond its end"));
  }
}

}  // namespace switchyard::check
