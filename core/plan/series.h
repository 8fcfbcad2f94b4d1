// SPDX-License-Identifier: Apache-2.0
// Series: the lists of several executables as one list (swy.ahead/1). The device goes from one step to the next as from
// one kernel to the next.
#pragma once

#include <array>
#include <memory>
#include <span>

#include "core/plan/executable.h"

namespace switchyard {

class Series {
 public:
  static constexpr size_t kMost = 4;

  // A part of a step: Executable::submit.
  struct Part {
    Executable* run = nullptr;
    bool head = false;

    auto operator<=>(const Part&) const = default;
  };
  using Parts = std::array<Part, kMost>;  // those behind the last one have no executable

  static bool possible(const PlanDevice& device);  // it has swy.ahead/1
  // NULL: it is not, or a part is not one list. The executables outlive it.
  static Result<std::unique_ptr<Series>> record(const PlanDevice& device, const Parts& parts);
  ~Series();
  Series(const Series&) = delete;
  Series& operator=(const Series&) = delete;

  // As if each part were submitted. [device-serial, no-alloc]
  Status submit(SubmitCounts* counts);

 private:
  explicit Series(const PlanDevice& device) : device_(device) {}

  const PlanDevice& device_;
  swy_list* list_ = nullptr;
};

}  // namespace switchyard
