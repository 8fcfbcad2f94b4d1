// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/pending.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "plugins_api/check/failure.h"

namespace switchyard::check {

bool has_pending_rows(const Case& c) {
  return std::any_of(c.steps.begin(), c.steps.end(), [](const Step& s) {
    return std::any_of(s.seqs.begin(), s.seqs.end(), [](const Sequence& q) { return q.pending; });
  });
}

PlainForm::PlainForm(const Case& c) : plain_(c), slots_(c.bucket.slots), plain_slots_(c.bucket.slots) {
  plain_.revision = 1;
  plain_.steps.clear();
  std::erase_if(plain_.states, [](const State& s) { return s.own; });
  for (uint32_t i = 0; i < slots_.size(); ++i) slots_[i].same = i;
  for (size_t i = 0; i < c.steps.size(); ++i) {
    uint32_t row = 0;
    for (const Sequence& q : c.steps[i].seqs) {
      if (q.active && q.rows > 0) add(c, i, q, row);
      row += q.rows;
    }
  }
  for (State& s : plain_.states) {
    s.units = plain_slots_;
    s.content.resize(s.units * s.unit, std::numeric_limits<float>::quiet_NaN());
  }
  plain_.bucket.slots = plain_slots_;
  fit_bucket(plain_, 0);
}

// Rows of a step of `c` from `row` on, as a step of the plain form. Returns the slot that it writes.
uint32_t PlainForm::append(const Case& c, size_t step, uint32_t row, Sequence q) {
  q.write_slot = plain_slots_++;
  q.kept = 0;
  q.pending = false;
  Step s;
  s.seqs = {q};
  s.tokens.assign(q.rows, 0);
  for (uint32_t i = 0; i < c.inputs.size(); ++i) {
    const auto begin = c.steps[step].inputs[i].floats.begin() + static_cast<ptrdiff_t>(row * c.width(i));
    s.inputs.push_back({{begin, begin + static_cast<ptrdiff_t>(q.rows * c.width(i))}, {}});
  }
  plain_.steps.push_back(std::move(s));
  return q.write_slot;
}

void PlainForm::add(const Case& c, size_t step, const Sequence& q, uint32_t row) {
  const Slot from = slots_[q.read_slot];
  uint32_t base = from.same;
  if (q.kept > 0) {
    Sequence stands = q;
    stands.rows = q.kept;
    stands.position = q.position - q.kept;
    stands.read_slot = base;
    base = append(c, from.step, from.row, stands);
  }
  Sequence own = q;
  own.read_slot = base;
  const uint32_t after = append(c, step, row, own);
  computed_.push_back({step, row, q.rows, plain_.steps.size() - 1});
  slots_[q.write_slot] = {true, q.pending && q.position == 0, q.pending ? base : after, step, row};
}

std::string PlainForm::differing(const Case& c, const Outcome& pending, const Outcome& plain) const {
  for (const Computed& x : computed_) {
    for (uint32_t r = 0; r < x.rows; ++r) {
      if (!pending.outputs[x.step][0].same_row(x.row + r, plain.outputs[x.plain_step][0], r)) {
        return text("output 0 row ", x.row + r, " of step ", x.step);
      }
    }
  }
  for (uint32_t i = 0; i < plain_.states.size(); ++i) {
    const uint64_t unit = c.states[i].unit;
    for (uint64_t slot = 0; slot < slots_.size(); ++slot) {
      for (uint64_t e = 0; slots_[slot].written && e < unit; ++e) {
        const double wanted = slots_[slot].zeros ? 0 : plain.states[i][slots_[slot].same * unit + e];
        const double got = pending.states[i][slot * unit + e];
        if (std::bit_cast<uint64_t>(wanted) == std::bit_cast<uint64_t>(got)) continue;
        return text("state ", i, " unit ", slot, " element ", e, ": ", got, " instead of ", wanted);
      }
    }
  }
  return "";
}

}  // namespace switchyard::check
