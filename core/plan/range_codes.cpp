// SPDX-License-Identifier: Apache-2.0
#include "core/plan/range_codes.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <array>
#include <cstring>
#include <vector>

#include "core/base/printable.h"
#include "core/plugin/call.h"

namespace switchyard {
namespace {

swy_status fail(swy_error* error, swy_status status, const std::string& text) {
  if (error->message != nullptr && error->capacity != 0) {
    const size_t n = std::min<size_t>(text.size(), error->capacity - 1);
    std::memcpy(error->message, text.data(), n);
    error->message[n] = '\0';
  }
  return status;
}

// All that the compiled form depends on, the plugin's key last.
std::string identity_of(const PlanDevice& device, std::string_view key) {
  return fmt::format("{}\n{}\n{}\n{}\n{}", device.backend, device.version,
                     device.info.name == nullptr ? "" : device.info.name,
                     device.info.arch == nullptr ? "" : device.info.arch, key);
}

}  // namespace

swy_status RangeCodes::get(const PlanDevice& device, const swy_range_2& table, const swy_range_ops& range,
                           std::shared_ptr<RangeCode>* out, swy_error* error) {
  std::array<char, SWY_RANGE_KEY_BYTES> text{};
  const auto ask = [&](swy_error* x) { return table.key(device.handle, &range, text.data(), x); };
  if (const swy_status s = call_plugin(device.label, "key", SWY_EXT_RANGE_2, error, ask); s != SWY_OK) return s;
  const std::string key(text.data(), ::strnlen(text.data(), text.size()));
  if (key.empty() || key.size() == text.size()) {
    return fail(error, SWY_INTERNAL,
                fmt::format("the key of a range has {} bytes; it may have 1 to {}", key.size(), text.size() - 1));
  }
  // Held while it compiles, so that two plans do not compile the same.
  const std::lock_guard lock(mutex_);
  std::shared_ptr<RangeCode>& known = codes_[{device.handle, key}];
  if (known == nullptr) {
    const std::string identity = identity_of(device, key);
    known = stored(device, table, range, identity);
    if (known == nullptr) {
      swy_range_code* made = nullptr;
      const auto compile = [&](swy_error* x) { return table.compile(device.handle, &range, nullptr, 0, &made, x); };
      const swy_status s = call_plugin(device.label, "compile", SWY_EXT_RANGE_2, error, compile);
      if (s != SWY_OK) return s;
      if (made == nullptr) return fail(error, SWY_INTERNAL, "compile succeeded and gave nothing");
      known = std::make_shared<RangeCode>(device.handle, table.code_free, made);
      spdlog::debug("{}: compiled a range of {} operations", device.name, range.op_count);
      store(device, table, *known, identity);
    }
  }
  *out = known;
  return SWY_OK;
}

// From a file of an earlier run; NULL: there is none that the plugin takes.
std::shared_ptr<RangeCode> RangeCodes::stored(const PlanDevice& device, const swy_range_2& table,
                                              const swy_range_ops& range, const std::string& identity) const {
  const auto kept = store_.load(identity);
  if (!kept) return nullptr;
  std::array<char, 512> text{};
  swy_error e{sizeof e, static_cast<uint32_t>(text.size()), text.data(), SWY_REASON_NONE, 0};
  swy_range_code* made = nullptr;
  const auto compile = [&](swy_error* x) {
    return table.compile(device.handle, &range, kept->data(), kept->size(), &made, x);
  };
  const swy_status s = call_plugin(device.label, "compile", SWY_EXT_RANGE_2, &e, compile);
  if (s == SWY_OK && made != nullptr) {
    spdlog::debug("{}: a range of {} operations was compiled in an earlier run", device.name, range.op_count);
    return std::make_shared<RangeCode>(device.handle, table.code_free, made);
  }
  spdlog::debug("{}: the stored form of a range is not used: {}", device.name,
                printable(std::string_view(text.data(), ::strnlen(text.data(), text.size()))));
  return nullptr;
}

void RangeCodes::store(const PlanDevice& device, const swy_range_2& table, const RangeCode& code,
                       const std::string& identity) const {
  if (!store_.keeps() || table.store == nullptr) return;
  std::array<char, 512> text{};
  swy_error e{sizeof e, static_cast<uint32_t>(text.size()), text.data(), SWY_REASON_NONE, 0};
  uint64_t bytes = 0;
  const auto write_to = [&](void* to) {
    const auto ask = [&](swy_error* x) { return table.store(device.handle, code.get(), to, &bytes, x); };
    return call_plugin(device.label, "store", SWY_EXT_RANGE_2, &e, ask) == SWY_OK;
  };
  if (!write_to(nullptr)) return;
  if (bytes == 0 || bytes > CodeStore::kMaxBytes) return;
  std::vector<std::byte> data(bytes);
  if (!write_to(data.data()) || bytes != data.size()) return;
  store_.save(identity, data);
}

}  // namespace switchyard
