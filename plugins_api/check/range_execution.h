// SPDX-License-Identifier: Apache-2.0
// A chain's links as one range of a plugin: claimed, accepted, recorded once, and run on the links' steps.
#pragma once

#include <memory>

#include "plugins_api/check/chains.h"
#include "plugins_api/check/execution.h"
#include "plugins_api/check/range_table.h"

namespace switchyard::check {

class RangeExecution {
 public:
  // The chain's first links, which stay alive; to claim, they need no contents. Besides the value of the last one,
  // others read that of the link `also`.
  RangeExecution(const Plugin& plugin, RangeTable& table, const Chain& chain, const std::vector<Case>& links,
                 size_t also = SIZE_MAX);
  ~RangeExecution();
  RangeExecution(const RangeExecution&) = delete;
  RangeExecution& operator=(const RangeExecution&) = delete;

  // How many of the operations it takes; 0: none.
  uint32_t claim();
  // Whether it accepts all of the links once it knows how values flow.
  bool accept();
  std::string why() const { return why_.has_line() ? why_.line() : ""; }

  // Records the whole chain as one range, once; with `stored`, as compiled from its stored form.
  void record(bool stored = false);
  // Other weights, of the same shapes, in the place of those that were recorded.
  void write_weights(const std::vector<Case>& links) const;
  // The results of the links, with these inputs and states: the kept values of all steps, and all states. Other values
  // are not compared.
  std::vector<Outcome> submit(const std::vector<Case>& links);
  std::vector<Outcome> submit() { return submit(links_); }

 private:
  struct Bound {
    std::vector<swy_binding> inputs, weights, states, outputs;
    swy_bindings all{};
  };
  struct Given {  // an input from outside
    size_t memory, link, input;
    const std::vector<float>& content(const std::vector<Case>& links, size_t step) const {
      return links[link].steps[step].inputs[input].floats;
    }
  };
  struct Kept {
    size_t link, index;
    StateMemory memory;
    const State& state(const std::vector<Case>& links) const { return links[link].states[index]; }
  };

  void tell_values(size_t also);
  void leave_out_inner_values();
  swy_range_ops described() const { return {sizeof(swy_range_ops), count(), ops_.data(), &bucket(), &values_told_}; }
  uint32_t count() const { return static_cast<uint32_t>(ops_.size()); }
  const swy_bucket& bucket() const { return links_[0].bucket; }
  size_t add(uint64_t bytes, const std::string& what, swy_memory_type type = SWY_MEMORY_DEVICE);
  size_t give(size_t link, size_t input);
  void place();
  void place_link(size_t link, size_t first);
  void submit_step(const std::vector<Case>& links, size_t step, std::vector<Outcome>& out);
  void expect_untouched_inputs(const std::vector<Case>& links, size_t step) const;

  const Plugin& p_;
  RangeTable& table_;
  const Chain& chain_;
  const std::vector<Case>& links_;
  std::vector<std::unique_ptr<OpView>> views_;
  std::vector<const swy_op*> ops_;
  PluginError why_;
  std::vector<Memory> memory_;
  std::vector<Kept> states_;
  std::vector<Given> given_;
  std::vector<std::vector<size_t>> weights_, values_;  // of each operation: weights, results
  std::vector<size_t> kept_links_;
  std::vector<std::vector<uint32_t>> input_values_, output_values_;
  std::vector<uint32_t> kept_;
  std::vector<const uint32_t*> input_lists_, output_lists_;
  swy_range_values values_told_{};
  std::vector<Bound> bound_;
  size_t step_ = 0, work_ = 0;
  swy_list* list_ = nullptr;
  uint64_t submissions_ = 0;
};

}  // namespace switchyard::check
