// SPDX-License-Identifier: Apache-2.0
#include "core/plan/range_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/plugin/call.h"

namespace switchyard {
namespace {

// A copy of a plugin's table: entries beyond its size are NULL.
template <class Table>
Table table_of(const PlanDevice& device, const char* name) {
  Table table{};
  const void* theirs = device.api->get_extension == nullptr ? nullptr : device.api->get_extension(device.handle, name);
  if (theirs == nullptr) return table;
  uint32_t bytes = 0;
  std::memcpy(&bytes, theirs, sizeof bytes);
  std::memcpy(&table, theirs, std::min<size_t>(bytes, sizeof table));
  return table;
}

bool complete(const swy_range& t) { return t.claim != nullptr && t.prepare != nullptr && t.record != nullptr; }
bool complete(const swy_range_2& t) {
  return t.claim != nullptr && t.accept != nullptr && t.key != nullptr && t.compile != nullptr &&
         t.prepare != nullptr && t.record != nullptr && t.code_free != nullptr;
}

}  // namespace

RangeBackend::RangeBackend(const PlanDevice& device) : device_(device) {
  second_ = table_of<swy_range_2>(device, SWY_EXT_RANGE_2);
  if (complete(second_)) {
    name_ = SWY_EXT_RANGE_2;
    return;
  }
  second_ = {};
  first_ = table_of<swy_range>(device, SWY_EXT_RANGE);
  if (complete(first_)) name_ = SWY_EXT_RANGE;
}

swy_status RangeBackend::claim(std::span<const swy_op* const> offered, const swy_bucket& bucket, uint32_t* accepted,
                               double* microseconds, swy_error* error) const {
  const auto n = static_cast<uint32_t>(offered.size());
  const swy_range_ops ops{sizeof ops, n, offered.data(), &bucket, nullptr};
  return call_plugin(device_.label, "claim", name_, error, [&](swy_error* x) {
    return compiles() ? second_.claim(device_.handle, &ops, accepted, microseconds, x)
                      : first_.claim(device_.handle, offered.data(), n, &bucket, accepted, microseconds, x);
  });
}

swy_status RangeBackend::accept(const RangeView& range, const swy_bucket& bucket, uint32_t* offer,
                                swy_error* error) const {
  *offer = range.count() - 1;
  if (!compiles() && first_.accept == nullptr) {
    const std::string* inside = range.kept_inside();
    if (inside == nullptr) return SWY_OK;
    const auto end = fmt::format_to_n(error->message, error->capacity - 1,
                                      "{} is read outside, which the backend does not ask about", *inside);
    *end.out = '\0';
    return SWY_UNSUPPORTED;
  }
  const swy_range_ops ops = range.described(bucket);
  return call_plugin(device_.label, "accept", name_, error, [&](swy_error* x) {
    return compiles() ? second_.accept(device_.handle, &ops, offer, x)
                      : first_.accept(device_.handle, range.ops(), range.count(), &bucket, range.values(), x);
  });
}

bool RangeBackend::keeps(const swy_op& op, const swy_bucket& bucket, double* microseconds) const {
  if (second_.keeps == nullptr) return false;
  PluginError e;
  const auto ask = [&](swy_error* x) { return second_.keeps(device_.handle, &op, &bucket, microseconds, x); };
  return call_plugin(device_.label, "keeps", name_, e.get(), ask) == SWY_OK && std::isfinite(*microseconds) &&
         *microseconds >= 0;
}

swy_status RangeBackend::prepare(const RangeView& range, const swy_bucket& bucket, RangeCodes& codes,
                                 std::shared_ptr<RangeCode>* code, std::span<uint32_t> layouts,
                                 uint64_t* workspace_bytes, swy_error* error) const {
  const auto count = static_cast<uint32_t>(layouts.size());
  const swy_range_ops ops = range.described(bucket);
  if (compiles()) {
    if (const swy_status s = codes.get(device_, second_, ops, code, error); s != SWY_OK) return s;
  }
  swy_range_prepared prepared{sizeof prepared, count, layouts.data(), 0};
  const swy_status s = call_plugin(device_.label, "prepare", name_, error, [&](swy_error* x) {
    return compiles() ? second_.prepare(device_.handle, (*code)->get(), &ops, &prepared, x)
                      : first_.prepare(device_.handle, range.ops(), range.count(), &bucket, &prepared.workspace_bytes,
                                       layouts.data(), count, x);
  });
  *workspace_bytes = prepared.workspace_bytes;
  return s;
}

swy_status RangeBackend::record(swy_list* list, const RangeCode* code, const swy_range_operands& operands,
                                const swy_binding& workspace, swy_error* error) const {
  return call_plugin(device_.label, "record", name_, error, [&](swy_error* x) {
    return compiles() ? second_.record(list, code->get(), &operands, &workspace, x)
                      : first_.record(list, &operands, &workspace, x);
  });
}

}  // namespace switchyard
