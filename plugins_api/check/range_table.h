// SPDX-License-Identifier: Apache-2.0
// RangeTable: the ranges of a plugin, by the newest revision of the extension that it offers. Compiles as a host does:
// once for each key.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plugins_api/check/plugin.h"
#include "switchyard/extensions.h"

namespace switchyard::check {

// What recording a range needs.
struct RangeNeeds {
  swy_range_code* code = nullptr;  // of swy.range/2
  uint64_t workspace_bytes = 0;
  std::vector<uint32_t> layouts;
};

class RangeTable {
 public:
  explicit RangeTable(const Plugin& plugin);
  ~RangeTable();
  RangeTable(const RangeTable&) = delete;
  RangeTable& operator=(const RangeTable&) = delete;

  explicit operator bool() const { return name_ != nullptr; }
  const char* name() const { return name_; }
  // swy.range/2: only kept values have memory, and compiled forms are stored.
  bool compiles() const { return second_.struct_size != 0; }
  bool stores() const { return compiles() && second_.store != nullptr; }
  bool asks() const { return compiles() || first_.accept != nullptr; }

  swy_status claim(const swy_range_ops& offered, uint32_t* accepted, double* microseconds, swy_error* error) const;
  swy_status accept(const swy_range_ops& range, swy_error* error) const;
  // With `weights` weights in all. With `stored`, swy.range/2 compiles from what it stored of this range. Throws
  // Failure.
  RangeNeeds prepare(const swy_range_ops& range, size_t weights, bool stored);
  swy_status record(swy_list* list, const RangeNeeds& needs, const swy_range_operands& operands,
                    const swy_binding& workspace, swy_error* error) const;

 private:
  std::string key_of(const swy_range_ops& range) const;
  swy_range_code* compile(const swy_range_ops& range, const std::vector<char>* stored) const;
  std::vector<char> stored_form(swy_range_code* code) const;

  const Plugin& plugin_;
  const char* name_ = nullptr;
  swy_range first_{};
  swy_range_2 second_{};
  std::map<std::string, swy_range_code*> codes_;  // by key
};

}  // namespace switchyard::check
