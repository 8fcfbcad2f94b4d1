// SPDX-License-Identifier: Apache-2.0
// Comparing a device's results with the expected ones, and parts of a case with the whole.
#pragma once

#include "plugins_api/check/budgets.h"
#include "plugins_api/check/outcome.h"

namespace switchyard::check {

// The largest errors seen, for people who set budgets.
struct Errors {
  double worst = 0, mean = 0;
  void add(const Errors& e) {
    worst = e.worst > worst ? e.worst : worst;
    mean = e.mean > mean ? e.mean : mean;
  }
};

// Half a step of integers with a scale, in this row of a state of which the device keeps a unit (a slot or page) in
// `unit_bytes`. 0 if an element then has 32 bits or more, of pages 16.
double half_step(const State& s, uint64_t row, uint64_t unit_bytes);

// The first difference, in one line; "" if there is none. Rows of inactive sequences are not compared. States that the
// steps do not write must have `before`'s bits. `activations` as in budget().
std::string compare(const Case& c, const Outcome& wanted, const Outcome& got, swy_dtype activations, Errors* errors);

// One sequence of a case alone, and where its rows come from.
struct Part {
  Case c;
  struct StepRows {
    uint32_t step = 0;              // of the whole
    std::vector<uint32_t> rows[3];  // by swy_rows: the whole's row for each of the part's
  };
  std::vector<StepRows> from;
};
Part alone(const Case& c, uint32_t sequence_id);

// The part's share of an outcome of the whole.
Outcome select(const Outcome& whole, const Part& part);

// A case with one sequence and one step, cut at the multiples of `tokens` of its positions; and its outcome joined.
Case in_chunks(const Case& c, uint32_t tokens);
Outcome joined(const Outcome& chunks);

// Where two outcomes of one case differ in any bit that matters; "" when nowhere.
std::string differing_bits(const Case& c, const Outcome& a, const Outcome& b);

}  // namespace switchyard::check
