// SPDX-License-Identifier: Apache-2.0
#include "core/plan/series.h"

#include "core/plugin/call.h"
#include "switchyard/extensions_ahead.h"

namespace switchyard {

namespace {

const swy_ahead* ahead_of(const PlanDevice& device) {
  if (device.api->get_extension == nullptr) return nullptr;
  const auto* ahead = static_cast<const swy_ahead*>(device.api->get_extension(device.handle, SWY_EXT_AHEAD));
  return ahead != nullptr && SWY_HAS(swy_ahead, ahead, next_step) ? ahead : nullptr;
}

}  // namespace

bool Series::possible(const PlanDevice& device) { return ahead_of(device) != nullptr; }

Result<std::unique_ptr<Series>> Series::record(const PlanDevice& device, const Parts& parts) {
  const swy_ahead* const ahead = ahead_of(device);
  std::unique_ptr<Series> series;
  if (ahead == nullptr) return series;
  for (const Part& p : parts) {
    if (p.run != nullptr && p.run->only_list(p.head) == nullptr) return series;
  }
  series.reset(new Series(device));
  for (const Part& p : parts) {
    if (p.run == nullptr) break;
    const PlanSegment& segment = *p.run->only_list(p.head);
    const swy_list_info info = p.run->list_info(segment);
    const bool first = series->list_ == nullptr;
    PluginError e;
    const auto begin = [&](swy_error* x) {
      return first ? device.api->list_begin(device.handle, &info, &series->list_, x)
                   : ahead->next_step(series->list_, &info, x);
    };
    SWY_TRY(e.status(call_plugin(device, first ? "list_begin" : "next_step", e.get(), begin),
                     device.name + ": beginning a step of a list"));
    SWY_TRY(p.run->record_nodes(segment, series->list_));
  }
  PluginError e;
  const auto finalize = [&](swy_error* x) { return device.api->list_finalize(series->list_, x); };
  SWY_TRY(e.status(call_plugin(device, "list_finalize", e.get(), finalize), device.name + ": finalizing a list"));
  return series;
}

Series::~Series() {
  if (list_ != nullptr) device_.api->list_free(list_);
}

Status Series::submit(SubmitCounts* counts) {
  if (counts != nullptr) ++counts->lists;
  const PluginTime inside(counts, false);
  PluginError e;
  const auto start = [&](swy_error* x) { return device_.api->list_submit(list_, nullptr, x); };
  return e.status(call_plugin(device_, "list_submit, of several steps", e.get(), start), device_.name,
                  "running several steps");
}

}  // namespace switchyard
