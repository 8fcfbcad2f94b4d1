// What a step must move and compute, counted from the program: the bounds that a measurement is held against.
#pragma once

#include <cstdint>

#include "core/program/program.h"

namespace switchyard::bench {

// Of one step of `rows` tokens of one sequence that end at context `context`, with one row of logits.
struct Workload {
  double weight_bytes = 0;  // as the program stores them; of experts, those that are expected to be touched
  double state_bytes = 0;   // read and written
  double products = 0;      // multiply-adds of weights with activations
  double mixing = 0;        // multiply-adds of attention and of the delta rule

  double bytes() const { return weight_bytes + state_bytes; }
  double operations() const { return 2 * (products + mixing); }
};

Workload workload_of(const Program& program, uint32_t rows, uint32_t context);

}  // namespace switchyard::bench
