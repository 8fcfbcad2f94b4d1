// SPDX-License-Identifier: Apache-2.0
// A case with pending rows, and the same without any: what both must agree on.
#pragma once

#include "plugins_api/check/outcome.h"

namespace switchyard::check {

bool has_pending_rows(const Case& c);

// The case's operation at revision 1. Rows that stand are applied by a step of their own; the rows of each step,
// whether they stand or not, are computed by another one, from what the pending form has in its read slot. Every step
// writes slots that no other has written.
class PlainForm {
 public:
  explicit PlainForm(const Case& c);
  const Case& plain() const { return plain_; }
  // "" or where the bits of the pending form's results differ from those of the plain form.
  std::string differing(const Case& c, const Outcome& pending, const Outcome& plain) const;

 private:
  // The rows of a step, and those of the plain form that compute the same.
  struct Computed {
    size_t step;
    uint32_t row, rows;
    size_t plain_step;
  };
  // What a slot of the pending form has.
  struct Slot {
    bool written = false;
    bool zeros = false;  // its states are zeros; otherwise they are those of a slot of the plain form
    uint32_t same = 0;
    size_t step = 0;  // whose rows are pending, from this one on
    uint32_t row = 0;
  };
  void add(const Case& c, size_t step, const Sequence& q, uint32_t row);
  uint32_t append(const Case& c, size_t step, uint32_t row, Sequence q);

  Case plain_;
  std::vector<Computed> computed_;
  std::vector<Slot> slots_;
  uint32_t plain_slots_ = 0;
};

}  // namespace switchyard::check
