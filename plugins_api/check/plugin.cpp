#include "plugins_api/check/plugin.h"

#include <dlfcn.h>

#include <algorithm>
#include <utility>

#include "plugins_api/check/host.h"

namespace switchyard::check {

Plugin::Plugin(const std::string& path, const std::vector<Setting>& settings) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) throw Failure(text("cannot open ", path, ": ", ::dlerror()));
  const auto negotiate = reinterpret_cast<swy_negotiate_fn>(::dlsym(library, SWY_NEGOTIATE_SYMBOL));
  if (negotiate == nullptr) throw Failure(text(path, " exports no " SWY_NEGOTIATE_SYMBOL));
  PluginError e;
  const swy_negotiate_in in{sizeof in, SWY_ABI_VERSION, SWY_ABI_VERSION, 0, SWY_NEGOTIATE_MAGIC, the_host()};
  swy_negotiate_out out{};
  out.struct_size = sizeof out;
  out.error = e.get();
  e.expect_ok(negotiate(&in, &out), path + " refused");
  if (out.id == nullptr || out.plugin == nullptr) throw Failure(path + " negotiated without an id or a table");
  id_ = out.id;
  api_ = out.plugin;
  uint32_t count = 0;
  e.expect_ok(api_->device_count(&count, e.get()), id_ + ": device_count");
  if (count == 0) throw Failure(text(id_, " has no device: ", e.line()));
  swy_device_info info{};
  info.struct_size = sizeof info;
  e.expect_ok(api_->device_info(0, &info, e.get()), id_ + ": device_info");
  alignment_ = std::max<uint64_t>(64, info.buffer_alignment);
  sampling_steps_ = info.sampling_steps;
  std::vector<swy_setting> raw;
  for (const Setting& s : settings) {
    bool known = false;
    for (uint32_t i = 0; i < api_->option_count; ++i) known = known || s.name == api_->options[i]->name;
    if (!known) throw Failure(text(id_, " has no option '", s.name, "'"));
    raw.push_back({s.name.c_str(), s.value.c_str()});
  }
  const swy_status opened = api_->device_open(0, raw.data(), static_cast<uint32_t>(raw.size()), &device_, e.get());
  if (opened == SWY_UNSUPPORTED && e.get()->reason == SWY_REASON_ARCH) throw WrongMachine(id_ + ": " + e.line());
  e.expect_ok(opened, id_ + ": device_open");
  for (uint32_t i = 0; i < api_->kernel_count(device_); ++i) kernels_.push_back(api_->kernel_at(device_, i));
}

Plugin::~Plugin() {
  if (device_ != nullptr) api_->device_close(device_);
}

Memory::Memory(const Plugin& plugin, swy_memory_type type, uint64_t bytes, const std::string& what)
    : plugin_(&plugin), what_(what), offset_((256 + plugin.alignment() - 1) / plugin.alignment() * plugin.alignment()) {
  bytes_ = bytes;
  total_ = offset_ + bytes + 256;
  PluginError e;
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
