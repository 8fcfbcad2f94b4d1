// SPDX-License-Identifier: Apache-2.0
// RangeBackend: the ranges of a device, by whichever revision of the extension it offers. What the revisions share is
// the same for the planner; `compiles` tells them apart where it matters.
#pragma once

#include <memory>
#include <span>

#include "core/plan/range_codes.h"
#include "core/plan/range_view.h"

namespace switchyard {

class RangeBackend {
 public:
  explicit RangeBackend(const PlanDevice& device);

  explicit operator bool() const { return name_ != nullptr; }
  const char* name() const { return name_; }  // "swy.range/2"; NULL: it offers none
  // swy.range/2: ranges may contain the head, do not overlap, and only kept values have memory.
  bool compiles() const { return second_.struct_size != 0; }

  // As the extension has them. A device that does not ask about values accepts where the last operation alone makes
  // kept ones.
  swy_status claim(std::span<const swy_op* const> offered, const swy_bucket& bucket, uint32_t* accepted,
                   double* microseconds, swy_error* error) const;
  swy_status accept(const RangeView& range, const swy_bucket& bucket, uint32_t* offer, swy_error* error) const;
  // Whether it keeps the states of an operation without a kernel for it.
  bool keeps(const swy_op& op, const swy_bucket& bucket, double* microseconds) const;
  // `layouts`: of the weights of all operations, in order; the caller has given it its size. `code` stays NULL for
  // swy.range/1.
  swy_status prepare(const RangeView& range, const swy_bucket& bucket, RangeCodes& codes,
                     std::shared_ptr<RangeCode>* code, std::span<uint32_t> layouts, uint64_t* workspace_bytes,
                     swy_error* error) const;
  swy_status record(swy_list* list, const RangeCode* code, const swy_range_operands& operands,
                    const swy_binding& workspace, swy_error* error) const;

 private:
  const PlanDevice& device_;
  const char* name_ = nullptr;
  swy_range first_{};
  swy_range_2 second_{};
};

}  // namespace switchyard
