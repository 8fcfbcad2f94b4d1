// SPDX-License-Identifier: Apache-2.0
// Steps of a small model, each of which reads the token that the one before it drew: in lists of their own, or in one
// list (swy.ahead/1).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "plugins_api/check/execution.h"
#include "switchyard/extensions_ahead.h"

namespace switchyard::check {

class JoinedSteps {
 public:
  static constexpr uint32_t kSteps = 4;

  // What the steps leave behind.
  struct Left {
    std::vector<int32_t> tokens;   // that the steps drew
    std::vector<double> sums;      // of the last step: attention and embedding
    std::vector<double> gathered;  // of them the row that is wanted
    std::vector<double> keys;      // and values
  };

  struct Shape {
    uint32_t rows = 1;     // of the first step; the others have one
    bool gathers = false;  // after the draw: each step ends with GATHER_ROWS
  };
  // `ahead`: the steps are in one list; NULL: a list each. Throws Failure; Unsupported, if no kernel takes an
  // operation, or the device does not join steps.
  JoinedSteps(const Plugin& plugin, uint64_t seed, Shape shape, const swy_ahead* ahead);
  ~JoinedSteps();
  JoinedSteps(const JoinedSteps&) = delete;
  JoinedSteps& operator=(const JoinedSteps&) = delete;

  // After this token, which the last row of the first step has.
  Left run(int32_t token) const;
  // The token that each step draws if all are right.
  static std::vector<int32_t> walk(int32_t token);

 private:
  struct Node;
  using Step = std::vector<std::unique_ptr<Node>>;

  void place(const Step& step);
  void record(const Step& step, const Memory& block, const swy_ahead* ahead);
  void finalize() const;

  const Plugin& p_;
  std::vector<Step> steps_;
  std::vector<Memory> blocks_;  // a step each
  std::vector<Memory> values_;  // what each operation makes, of the step that runs
  std::vector<StateMemory> state_;
  std::vector<Memory> tokens_;
  std::vector<swy_list*> lists_;
};

}  // namespace switchyard::check
