// SPDX-License-Identifier: Apache-2.0
// The bytes and operations of a step, counted from the program: the bounds to which a measurement is compared.
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan/graph.h"
#include "core/program/program.h"

namespace switchyard::bench {

// A step of one sequence, or of several that are alike.
struct StepShape {
  uint32_t rows = 1;  // of all sequences
  uint32_t logit_rows = 1;
  uint32_t context = 1;  // tokens of a sequence when the step is done
  uint32_t sequences = 1;
  // By state of the graph: of its canonical bytes, what a device keeps; empty: 1.
  std::vector<double> state_shares = {};
};

struct Workload {
  double weight_bytes = 0;  // as the program stores them; of experts, those that uniform routing uses
  double state_bytes = 0;   // read and written
  double products = 0;      // multiply-adds of weights with activations
  double mixing = 0;        // multiply-adds of attention and of the delta rule

  double bytes() const { return weight_bytes + state_bytes; }
  double operations() const { return 2 * (products + mixing); }
};

// One operation: a composite, a fused composite or a primitive of a graph.
Workload workload_of(const Graph& graph, const GraphOp& op, const StepShape& step);
// A whole step, with the functions of operations that have a name. For one row the bytes of the experts are exact:
// top_k of them are read.
Workload workload_of(const Program& program, const StepShape& step);

}  // namespace switchyard::bench
