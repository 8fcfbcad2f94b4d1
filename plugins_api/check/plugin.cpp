// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/plugin.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "plugins_api/check/host.h"

namespace switchyard::check {
namespace {

constexpr uint64_t kPiece = 1 << 20;  // bytes that are written or looked at together

}  // namespace

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
  static const std::vector<unsigned char> ones(kPiece, 0xff);
  for (uint64_t at = 0; at < total_; at += kPiece) {
    PluginError e;
    e.expect_ok(plugin_->api().write(plugin_->device(), buffer_, at, ones.data(), std::min(kPiece, total_ - at),
                                     nullptr, e.get()),
                "writing " + what_);
  }
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

void Memory::look(uint64_t at, uint64_t bytes,
                  const std::function<void(uint64_t, std::span<const unsigned char>)>& see) const {
  std::vector<unsigned char> piece(std::min(kPiece, bytes));
  for (uint64_t done = 0; done < bytes; done += kPiece) {
    const uint64_t n = std::min(kPiece, bytes - done);
    PluginError e;
    e.expect_ok(plugin_->api().read(plugin_->device(), piece.data(), buffer_, at + done, n, nullptr, e.get()),
                "reading " + what_);
    see(done, std::span(piece).first(n));
  }
}

bool Memory::holds(const void* wanted, uint64_t bytes) const {
  bool same = true;
  look(offset_, bytes, [&](uint64_t at, std::span<const unsigned char> piece) {
    same = same && std::memcmp(piece.data(), static_cast<const unsigned char*>(wanted) + at, piece.size()) == 0;
  });
  return same;
}

void Memory::expect_guards() const {
  const auto expect_ones = [&](uint64_t begin, uint64_t end, const char* where, bool before) {
    look(begin, end - begin, [&](uint64_t at, std::span<const unsigned char> piece) {
      const auto other = std::find_if(piece.begin(), piece.end(), [](unsigned char byte) { return byte != 0xff; });
      if (other == piece.end()) return;
      const uint64_t i = at + static_cast<uint64_t>(other - piece.begin());
      throw Failure(text("wrote outside ", what_, ": byte ", before ? offset_ - i : i + 1, where));
    });
  };
  expect_ones(0, offset_, " before its begin", true);
  expect_ones(offset_ + bytes_, total_, " beyond its end", false);
}

}  // namespace switchyard::check
