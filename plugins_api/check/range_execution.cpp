// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/range_execution.h"

#include <algorithm>

#include "plugins_api/check/step_block.h"

namespace switchyard::check {
namespace {

uint64_t bytes_of(const Operand& o) { return o.desc.dims[0] * o.desc.dims[1] * 4; }

}  // namespace

RangeExecution::RangeExecution(const Plugin& plugin, RangeTable& table, const Chain& chain,
                               const std::vector<Case>& links, size_t also)
    : p_(plugin), table_(table), chain_(chain), links_(links) {
  for (const Case& c : links_) {
    views_.push_back(std::make_unique<OpView>(c));
    ops_.push_back(views_.back()->get());
  }
  tell_values(also);
}

RangeExecution::~RangeExecution() {
  if (list_ != nullptr) p_.api().list_free(list_);
}

uint32_t RangeExecution::claim() {
  double us = -1;
  uint32_t accepted = 0;
  const swy_status s = table_.claim(described(), &accepted, &us, why_.get());
  if (s == SWY_UNSUPPORTED) accepted = 0;
  if (s != SWY_UNSUPPORTED) why_.expect_ok(s, "claim");
  if (accepted == 1 || accepted > ops_.size()) throw Failure(text("claims ", accepted, " of ", ops_.size(), " ops"));
  if (accepted != 0 && !(us >= 0)) throw Failure(text("claims that a range costs ", us, " microseconds"));
  return accepted;
}

bool RangeExecution::accept() {
  if (!table_.asks()) return kept_links_.size() == 1;
  const swy_status s = table_.accept(described(), why_.get());
  if (s != SWY_UNSUPPORTED) why_.expect_ok(s, "accept");
  if (s == SWY_UNSUPPORTED && !why_.has_line()) throw Failure("accept refuses a range without a reason");
  return s == SWY_OK;
}

void RangeExecution::record(bool stored) {
  size_t weights = 0;
  for (const Case& c : links_) weights += c.weights.size();
  const RangeNeeds needs = table_.prepare(described(), weights, stored);
  for (const uint32_t layout : needs.layouts) {
    if (layout != 0) throw Unsupported("the range wants packed weights");
  }
  PluginError e;
  place();
  step_ = add(step_block_bytes(links_[0]), "the step", SWY_MEMORY_UPLOAD);
  work_ = add(needs.workspace_bytes + 64, "the workspace");
  const size_t tokens = add(64, "tokens");
  const std::vector<int32_t>& begins_with = links_[0].tokens;
  if (!begins_with.empty()) memory_[tokens].write(begins_with.data(), begins_with.size() * 4);
  const swy_list_info info{sizeof info, 0, &bucket(), memory_[step_].binding(), memory_[tokens].binding()};
  e.expect_ok(p_.api().list_begin(p_.device(), &info, &list_, e.get()), "list_begin");
  std::vector<const swy_bindings*> bindings;
  if (table_.compiles()) leave_out_inner_values();
  for (Bound& b : bound_) {
    b.all = {sizeof b.all, 0, b.inputs.data(), b.weights.data(), b.states.data(), b.outputs.data(), {}};
    bindings.push_back(&b.all);
  }
  const swy_range_operands operands{sizeof operands, count(), ops_.data(), bindings.data(), &values_told_};
  const swy_binding w = memory_[work_].part(0, needs.workspace_bytes);
  e.expect_ok(table_.record(list_, needs, operands, w, e.get()), "record of a range");
  e.expect_ok(p_.api().list_finalize(list_, e.get()), "list_finalize");
}

void RangeExecution::write_weights(const std::vector<Case>& links) const {
  for (size_t i = 0; i < links.size(); ++i) {
    for (size_t w = 0; w < links[i].weights.size(); ++w) {
      const Shared<std::byte>& segment = links[i].weights[w].segment;
      memory_[weights_[i][w]].write(segment.data(), segment.size());
    }
  }
}

std::vector<Outcome> RangeExecution::submit(const std::vector<Case>& links) {
  std::vector<Outcome> out(links.size());
  for (const Kept& k : states_) {
    k.memory.bring(k.state(links), bucket().page_size);
    out[k.link].before.push_back({k.memory.content(k.state(links), bucket().page_size), k.memory.unit_bytes()});
  }
  for (size_t step = 0; step < links[0].steps.size(); ++step) submit_step(links, step, out);
  for (const Kept& k : states_) {
    out[k.link].states.push_back(k.memory.content(k.state(links), bucket().page_size));
    k.memory.expect_guards();
  }
  for (const Memory& m : memory_) m.expect_guards();
  return out;
}

// Value 0 is the chain's input, then come each link's other inputs and its outputs, of which other links read the
// first. Kept are those of `also` and of the last one.
void RangeExecution::tell_values(size_t also) {
  std::vector<uint32_t> made;
  uint32_t n = 1;
  for (size_t i = 0; i < links_.size(); ++i) {
    std::vector<uint32_t> inputs;
    if (const auto from = read_by(chain_, i)) {
      inputs.push_back(made[*from]);
    } else if (!links_[i].inputs.empty()) {
      inputs.push_back(i == 0 ? 0 : n++);
    }
    for (size_t j = 1; j < links_[i].inputs.size(); ++j) {
      const size_t other = chain_.links[i].adds;
      inputs.push_back(other < i ? made[other] : adds_chain_input(chain_, links_, i) ? 0 : n++);
    }
    input_values_.push_back(std::move(inputs));
    made.push_back(n);
    std::vector<uint32_t>& outputs = output_values_.emplace_back();
    for (size_t j = 0; j < links_[i].outputs.size(); ++j) outputs.push_back(n++);
    if (i == also || i + 1 == links_.size()) kept_links_.push_back(i);
  }
  kept_.resize(n);
  for (const size_t i : kept_links_) {
    for (const uint32_t v : output_values_[i]) kept_[v] = 1;
  }
  for (const auto& v : input_values_) input_lists_.push_back(v.data());
  for (const auto& v : output_values_) output_lists_.push_back(v.data());
  values_told_ = {sizeof values_told_, n, input_lists_.data(), output_lists_.data(), kept_.data()};
}

// With swy.range/2 only what crosses the range's border has memory.
void RangeExecution::leave_out_inner_values() {
  const auto leave_out = [&](std::vector<swy_binding>& bindings, const uint32_t* values) {
    for (size_t k = 0; k < bindings.size(); ++k) {
      const uint32_t v = values[k];
      const bool made = std::any_of(output_values_.begin(), output_values_.end(),
                                    [&](const auto& of) { return std::find(of.begin(), of.end(), v) != of.end(); });
      if (made && kept_[v] == 0) bindings[k] = {};
    }
  };
  for (size_t i = 0; i < bound_.size(); ++i) {
    leave_out(bound_[i].inputs, input_lists_[i]);
    leave_out(bound_[i].outputs, output_lists_[i]);
  }
}

size_t RangeExecution::add(uint64_t bytes, const std::string& what, swy_memory_type type) {
  memory_.emplace_back(p_, type, bytes, what);
  return memory_.size() - 1;
}

size_t RangeExecution::give(size_t link, size_t input) {
  const size_t m = add(bytes_of(links_[link].inputs[input]), text("input ", input, " of operation ", link));
  given_.push_back({m, link, input});
  return m;
}

void RangeExecution::submit_step(const std::vector<Case>& links, size_t step, std::vector<Outcome>& out) {
  for (const std::vector<size_t>& of : values_) {
    for (const size_t m : of) memory_[m].poison();
  }
  memory_[work_].poison();
  for (const Given& g : given_) {
    const std::vector<float>& content = g.content(links, step);
    memory_[g.memory].poison();
    memory_[g.memory].write(content.data(), content.size() * 4);
  }
  const std::vector<std::byte> block = step_block(links[0].steps[step], bucket(), ++submissions_);
  memory_[step_].write(block.data(), block.size());
  PluginError e;
  e.expect_ok(p_.api().list_submit(list_, nullptr, e.get()), "list_submit");
  expect_untouched_inputs(links, step);
  for (const size_t i : kept_links_) {
    std::vector<Matrix>& outputs = out[i].outputs.emplace_back();
    for (size_t j = 0; j < values_[i].size(); ++j) {
      const swy_tensor& desc = links[i].outputs[j].desc;
      const uint64_t rows = links[i].steps[step].rows(static_cast<swy_rows>(desc.rows)), width = desc.dims[1];
      if (desc.dtype == SWY_I32) {
        std::vector<int32_t> value(rows * width);
        memory_[values_[i][j]].read(value.data(), value.size() * 4);
        outputs.push_back({rows, width, SWY_I32, {}, std::move(value)});
        continue;
      }
      std::vector<float> value(rows * width);
      memory_[values_[i][j]].read(value.data(), value.size() * 4);
      outputs.push_back({rows, width, SWY_F32, {value.begin(), value.end()}, {}});
    }
  }
}

// Memory for every value: values that are not kept are bound, too.
void RangeExecution::place() {
  const size_t first = links_[0].inputs.empty() ? 0 : give(0, 0);
  for (size_t i = 0; i < links_.size(); ++i) place_link(i, first);
  write_weights(links_);
}

void RangeExecution::place_link(size_t link, size_t first) {
  const Case& c = links_[link];
  Bound& b = bound_.emplace_back();
  if (const auto from = read_by(chain_, link)) {
    b.inputs.push_back(memory_[values_[*from].front()].binding());
  } else if (!c.inputs.empty()) {
    b.inputs.push_back(memory_[link == 0 ? first : give(link, 0)].binding());
  }
  for (size_t j = 1; j < c.inputs.size(); ++j) {
    const size_t other = chain_.links[link].adds;
    const size_t m = other < link                             ? values_[other].front()
                     : adds_chain_input(chain_, links_, link) ? first
                                                              : give(link, j);
    b.inputs.push_back(memory_[m].binding());
  }
  std::vector<size_t>& weights = weights_.emplace_back();
  for (const Weight& w : c.weights) {
    weights.push_back(add(w.segment.size(), text("a weight of operation ", link)));
    b.weights.push_back(memory_[weights.back()].binding());
  }
  for (uint32_t s = 0; s < c.states.size(); ++s) {
    states_.push_back({link, s, StateMemory(p_, ops_[link], c, s)});
    b.states.push_back(states_.back().memory.binding());
  }
  std::vector<size_t>& values = values_.emplace_back();
  for (const Operand& o : c.outputs) {
    values.push_back(add(bytes_of(o), text("a value of operation ", link)));
    b.outputs.push_back(memory_[values.back()].binding());
  }
}

void RangeExecution::expect_untouched_inputs(const std::vector<Case>& links, size_t step) const {
  for (const Given& g : given_) {
    const std::vector<float>& content = g.content(links, step);
    std::vector<float> now(content.size());
    memory_[g.memory].read(now.data(), now.size() * 4);
    if (now != content) throw Failure("changed an input of the range");
  }
}

}  // namespace switchyard::check
