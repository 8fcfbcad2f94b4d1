// SPDX-License-Identifier: Apache-2.0
// RangeCodes: compiled ranges (swy.range/2), each compiled once per device and key, or taken from a store of files.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "core/plan/code_store.h"
#include "core/plugin/device.h"

namespace switchyard {

// Freed by its last owner, before its device is closed.
class RangeCode {
 public:
  RangeCode(swy_device* device, void (*free)(swy_device*, swy_range_code*), swy_range_code* code)
      : device_(device), free_(free), code_(code) {}
  ~RangeCode() { free_(device_, code_); }
  RangeCode(const RangeCode&) = delete;
  RangeCode& operator=(const RangeCode&) = delete;

  swy_range_code* get() const { return code_; }

 private:
  swy_device* device_;
  void (*free_)(swy_device*, swy_range_code*);
  swy_range_code* code_;
};

// [thread-safe]
class RangeCodes {
 public:
  RangeCodes() = default;
  explicit RangeCodes(CodeStore store) : store_(std::move(store)) {}

  // The compiled form of a range. The status is the plugin's, with its text in `error`; *out is set with SWY_OK.
  swy_status get(const PlanDevice& device, const swy_range_2& table, const swy_range_ops& range,
                 std::shared_ptr<RangeCode>* out, swy_error* error);

 private:
  std::shared_ptr<RangeCode> stored(const PlanDevice& device, const swy_range_2& table, const swy_range_ops& range,
                                    const std::string& identity) const;
  void store(const PlanDevice& device, const swy_range_2& table, const RangeCode& code,
             const std::string& identity) const;

  CodeStore store_;
  std::mutex mutex_;
  std::map<std::pair<const swy_device*, std::string>, std::shared_ptr<RangeCode>> codes_;  // by device and key
};

}  // namespace switchyard
