// SPDX-License-Identifier: Apache-2.0
// Plugins that are wrong in one way each: the reference backend with a fault that is named by SWITCHYARD_WRONG. Each
// fault says what the conformance kit must say about it. Without the variable the plugin is right.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "switchyard/sdk/host_backend.hpp"

namespace wrong {

using Run = void (*)(const swy::Call&);

struct Fault {
  const char* name;
  const char* checks;  // what the kit is asked for: "SUITE", or "SUITE/PART OF A CHECK'S NAME"
  const char* line;    // part of a line of the kit; "": it must find nothing
  // What is wrong; each may be NULL. `run` stands in for the kernel of operation `op`, and is given that kernel.
  uint32_t op = 0;
  void (*run)(const swy::Call& call, Run right) = nullptr;
  void (*backend)(swy::HostBackend& backend) = nullptr;
  void (*table)(swy_plugin& table) = nullptr;
};

std::span<const Fault> faults_of_results();
std::span<const Fault> faults_of_revisions();
std::span<const Fault> faults_of_behaviour();
std::span<const Fault> faults_of_tables();
std::span<const Fault> faults_of_queues();
std::span<const Fault> faults_of_ahead();

inline std::vector<Fault> all_faults() {
  std::vector<Fault> all;
  for (const auto& some : {faults_of_results(), faults_of_revisions(), faults_of_behaviour(), faults_of_tables(),
                           faults_of_queues(), faults_of_ahead()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

// Runs the kernel with other attributes.
template <class Attrs, class Change>
void run_with(const swy::Call& call, Run right, Change change) {
  Attrs attrs = call.attrs<Attrs>();
  change(attrs);
  swy_op op = *call.op;
  op.attrs = &attrs;
  swy::Call other = call;
  other.op = &op;
  right(other);
}

// Runs the kernel; then, if `wrong`, one element of each row of output 0 becomes another.
inline void run_and_spoil(const swy::Call& call, Run right, bool wrong) {
  right(call);
  call.barrier();
  if (!wrong || call.rank() != 0) return;
  const swy_tensor& t = *call.op->outputs[0];
  for (uint64_t r = 0; r < call.rows(t); ++r) {
    if (t.dtype == SWY_I32) {
      call.output<int32_t>(0)[r * t.dims[1]] ^= 1;
    } else {
      call.output(0)[r * t.dims[1]] += 1;
    }
  }
}

}  // namespace wrong
