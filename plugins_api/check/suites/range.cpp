// SPDX-License-Identifier: Apache-2.0
// range: swy.range/1 and swy.range/2. A claimed range gives the results of its operations one by one, including values
// that are read outside, and from its stored form. A plugin that offers the extension must accept some range.
#include <algorithm>
#include <cmath>

#include "plugins_api/check/chains.h"
#include "plugins_api/check/kit.h"
#include "plugins_api/check/range_table.h"
#include "plugins_api/check/state_memory.h"
#include "plugins_api/check/step_block.h"
#include "plugins_api/check/suites.h"

namespace switchyard::check {
namespace {

class Range {
 public:
  // The chain's first links, which stay alive; to claim, they need no contents. Besides the value of the last one,
  // others read that of the link `also`.
  Range(const Kit& kit, RangeTable& table, const Chain& chain, const std::vector<Case>& links, size_t also = SIZE_MAX)
      : p_(kit.plugin()), table_(table), chain_(chain), links_(links) {
    for (const Case& c : links_) {
      views_.push_back(std::make_unique<OpView>(c));
      ops_.push_back(views_.back()->get());
    }
    tell_values(also);
  }
  ~Range() {
    if (list_ != nullptr) p_.api().list_free(list_);
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

  // How many of the operations it takes; 0: none.
  uint32_t claim() {
    double us = -1;
    uint32_t accepted = 0;
    const swy_status s = table_.claim(described(), &accepted, &us, why_.get());
    if (s == SWY_UNSUPPORTED) accepted = 0;
    if (s != SWY_UNSUPPORTED) why_.expect_ok(s, "claim");
    if (accepted == 1 || accepted > ops_.size()) throw Failure(text("claims ", accepted, " of ", ops_.size(), " ops"));
    if (accepted != 0 && !(us >= 0)) throw Failure(text("claims that a range costs ", us, " microseconds"));
    return accepted;
  }
  // Whether it accepts all of the links once it knows how values flow.
  bool accept() {
    if (!table_.asks()) return kept_links_.size() == 1;
    const swy_status s = table_.accept(described(), why_.get());
    if (s != SWY_UNSUPPORTED) why_.expect_ok(s, "accept");
    if (s == SWY_UNSUPPORTED && !why_.has_line()) throw Failure("accept refuses a range without a reason");
    return s == SWY_OK;
  }
  std::string why() const { return why_.has_line() ? why_.line() : ""; }

  // Records the whole chain as one range, once; with `stored`, as compiled from its stored form.
  void record(bool stored) {
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
    const swy_list_info info{sizeof info, 0, &bucket(), memory_[step_].binding(), memory_[add(64, "tokens")].binding()};
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

  // The results of the links: the kept values of all steps, and all states. Other values are not compared.
  std::vector<Outcome> submit() {
    std::vector<Outcome> out(links_.size());
    for (const Kept& k : states_) {
      k.memory.bring(k.state(links_), bucket().page_size);
      out[k.link].before.push_back(k.memory.content(k.state(links_), bucket().page_size));
    }
    for (size_t step = 0; step < links_[0].steps.size(); ++step) submit_step(step, out);
    for (const Kept& k : states_) {
      out[k.link].states.push_back(k.memory.content(k.state(links_), bucket().page_size));
      k.memory.expect_guards();
    }
    for (const Memory& m : memory_) m.expect_guards();
    return out;
  }

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

  // Value 0 is the chain's input, then come each link's other inputs and its outputs, of which the next link reads the
  // first. Kept are those of `also` and of the last one.
  void tell_values(size_t also) {
    std::vector<uint32_t> made;
    uint32_t n = 1;
    for (size_t i = 0; i < links_.size(); ++i) {
      std::vector<uint32_t> inputs = {i == 0 ? 0 : made.back()};
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
  void leave_out_inner_values() {
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

  swy_range_ops described() const { return {sizeof(swy_range_ops), count(), ops_.data(), &bucket(), &values_told_}; }
  uint32_t count() const { return static_cast<uint32_t>(ops_.size()); }
  const swy_bucket& bucket() const { return links_[0].bucket; }
  static uint64_t bytes_of(const Operand& o) { return o.desc.dims[0] * o.desc.dims[1] * 4; }

  size_t add(uint64_t bytes, const std::string& what, swy_memory_type type = SWY_MEMORY_DEVICE) {
    memory_.emplace_back(p_, type, bytes, what);
    return memory_.size() - 1;
  }
  size_t give(size_t link, size_t input) {
    const size_t m = add(bytes_of(links_[link].inputs[input]), text("input ", input, " of operation ", link));
    given_.push_back({m, link, input});
    return m;
  }

  void submit_step(size_t step, std::vector<Outcome>& out) {
    for (const std::vector<size_t>& of : values_) {
      for (const size_t m : of) memory_[m].poison();
    }
    memory_[work_].poison();
    for (const Given& g : given_) {
      const std::vector<float>& content = g.content(links_, step);
      memory_[g.memory].poison();
      memory_[g.memory].write(content.data(), content.size() * 4);
    }
    const std::vector<std::byte> block = step_block(links_[0].steps[step], bucket(), ++submissions_);
    memory_[step_].write(block.data(), block.size());
    PluginError e;
    e.expect_ok(p_.api().list_submit(list_, nullptr, e.get()), "list_submit");
    expect_untouched_inputs(step);
    const uint64_t rows = links_[0].steps[step].rows();
    for (const size_t i : kept_links_) {
      std::vector<Matrix>& outputs = out[i].outputs.emplace_back();
      for (size_t j = 0; j < values_[i].size(); ++j) {
        const uint64_t width = links_[i].outputs[j].desc.dims[1];
        std::vector<float> value(rows * width);
        memory_[values_[i][j]].read(value.data(), value.size() * 4);
        outputs.push_back({rows, width, SWY_F32, {value.begin(), value.end()}, {}});
      }
    }
  }

  // Memory for every value: values that are not kept are bound, too.
  void place() {
    const size_t first = give(0, 0);
    for (size_t i = 0; i < links_.size(); ++i) {
      const Case& c = links_[i];
      Bound& b = bound_.emplace_back();
      b.inputs = {memory_[i == 0 ? first : values_.back().front()].binding()};
      for (size_t j = 1; j < c.inputs.size(); ++j) {
        const size_t other = chain_.links[i].adds;
        const size_t m = other < i ? values_[other].front() : adds_chain_input(chain_, links_, i) ? first : give(i, j);
        b.inputs.push_back(memory_[m].binding());
      }
      for (const Weight& w : c.weights) {
        const size_t m = add(w.segment.size(), text("a weight of operation ", i));
        memory_[m].write(w.segment.data(), w.segment.size());
        b.weights.push_back(memory_[m].binding());
      }
      for (uint32_t s = 0; s < c.states.size(); ++s) {
        states_.push_back({i, s, StateMemory(p_, ops_[i], c, s)});
        b.states.push_back(states_.back().memory.binding());
      }
      std::vector<size_t>& values = values_.emplace_back();
      for (const Operand& o : c.outputs) {
        values.push_back(add(bytes_of(o), text("a value of operation ", i)));
        b.outputs.push_back(memory_[values.back()].binding());
      }
    }
  }

  void expect_untouched_inputs(size_t step) const {
    for (const Given& g : given_) {
      const std::vector<float>& content = g.content(links_, step);
      std::vector<float> now(content.size());
      memory_[g.memory].read(now.data(), now.size() * 4);
      if (now != content) throw Failure("changed an input of the range");
    }
  }

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
  std::vector<std::vector<size_t>> values_;  // results of each operation
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

// Of a few operations that may round activations to 8 bits.
constexpr double kBudget = 2e-2;

double relative_error(const std::vector<double>& wanted, const std::vector<double>& got) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    difference += (got[i] - wanted[i]) * (got[i] - wanted[i]);
    norm += wanted[i] * wanted[i];
  }
  return std::sqrt(difference / norm);
}

// The difference in the states of one link.
std::string compare_states(Case link, Outcome wanted, Outcome got) {
  link.outputs.clear();
  wanted.outputs = got.outputs = std::vector<std::vector<Matrix>>(link.steps.size());
  return compare(link, wanted, got, SWY_BF16, nullptr);
}

std::string compare_chains(const std::vector<Case>& links, const std::vector<Outcome>& wanted,
                           const std::vector<Outcome>& got) {
  for (size_t i = 0; i < links.size(); ++i) {
    const std::string problem = compare_states(links[i], wanted[i], got[i]);
    if (!problem.empty()) return text(op_name(links[i].op), ": ", problem);
    if (got[i].outputs.empty()) continue;
    for (size_t step = 0; step < links[i].steps.size(); ++step) {
      for (size_t j = 0; j < wanted[i].outputs[step].size(); ++j) {
        const double error = relative_error(wanted[i].outputs[step][j].values, got[i].outputs[step][j].values);
        if (error <= kBudget) continue;
        return text("output ", j, " of operation ", i, " (", op_name(links[i].op), ") has a relative error of ", error,
                    " (budget ", kBudget, ") in step ", step);
      }
    }
  }
  return "";
}

// How many operations of the chain the plugin takes, and in *why, why not all.
uint32_t claimed(const Kit& kit, const Chain& chain, std::string* why) {
  Random shapes = Random::shapes_only();
  std::vector<Case> links = build_chain(chain, shapes);
  RangeTable table(kit.plugin());
  Range whole(kit, table, chain, links);
  const uint32_t taken = whole.claim();
  *why = whole.why().empty() ? "no reason given" : whole.why();
  if (taken == 0) return 0;
  links.resize(taken);
  Range range(kit, table, chain, links);
  if (range.accept()) return taken;
  *why = range.why().empty() ? "it does not ask which values are read outside" : range.why();
  return 0;
}

// How the range differs from its operations; "": in nothing.
std::string difference(Range& range, const std::vector<Case>& links, const std::vector<Outcome>& wanted,
                       bool stored = false) {
  range.record(stored);
  for (const char* when : {"", "submitted again: "}) {
    const std::string problem = compare_chains(links, wanted, range.submit());
    if (!problem.empty()) return when + problem;
  }
  return "";
}

// The links of the chain that the plugin accepts, and their results one by one.
struct Taken {
  std::vector<Case> links;
  std::vector<Outcome> wanted;
};

Taken take(const Kit& kit, const Chain& chain) {
  std::string why;
  const uint32_t count = claimed(kit, chain, &why);
  if (count == 0) throw Unsupported(why);
  Random random(derive(kit.request().seed, chain.name));
  Taken t{build_chain(chain, random), {}};
  t.links.resize(count);
  t.wanted = one_by_one(kit, chain, t.links, random);
  return t;
}

std::string same_as_one_by_one(const Kit& kit, const Chain& chain, bool stored) {
  const Taken t = take(kit, chain);
  RangeTable table(kit.plugin());
  Range range(kit, table, chain, t.links);
  const std::string problem = difference(range, t.links, t.wanted, stored);
  return problem.empty() ? "" : text("the range ", chain.name, " differs from its operations: ", problem);
}

// The same with each value inside the range read by others, too: it is written, or the range is refused.
std::string writes_what_is_kept(const Kit& kit, const Chain& chain) {
  const Taken t = take(kit, chain);
  std::string why = "it does not ask which values are read outside";
  bool some = false;
  RangeTable table(kit.plugin());  // so that ranges with equal keys share what was compiled
  for (size_t also = 0; also + 1 < t.links.size(); ++also) {
    Range range(kit, table, chain, t.links, also);
    if (!range.accept()) {
      if (!range.why().empty()) why = range.why();
      continue;
    }
    some = true;
    const std::string problem = difference(range, t.links, t.wanted);
    if (!problem.empty()) {
      return text("the range ", chain.name, ", the value of whose operation ", also,
                  " is read outside, differs from its operations: ", problem);
    }
  }
  if (!some) throw Unsupported(why);
  return "";
}

std::string takes_some(const Kit& kit) {
  std::string all;
  for (const Chain& chain : all_chains()) {
    std::string why;
    if (claimed(kit, chain, &why) != 0) return "";
    all += text(all.empty() ? "" : "; ", chain.name, ": ", why);
  }
  return text(RangeTable(kit.plugin()).name(), " is there and takes no range that the kit knows: ", all);
}

std::vector<Task> list(Session& session, std::vector<Refusal>* refusals) {
  Kit& kit = session.kit();
  const bool first = kit.plugin().extension(SWY_EXT_RANGE) != nullptr;
  const bool second = kit.plugin().extension(SWY_EXT_RANGE_2) != nullptr;
  if (!first && !second) {
    refusals->push_back({"chains", "the plugin has no " SWY_EXT_RANGE " and no " SWY_EXT_RANGE_2, {}});
    return {};
  }
  std::vector<Task> tasks = {{"takes_some", [&kit] { return takes_some(kit); }, {}}};
  for (const Chain& chain : all_chains()) {
    tasks.push_back({chain.name, [&kit, &chain] { return same_as_one_by_one(kit, chain, false); }, {}});
    tasks.push_back(
        {std::string(chain.name) + "_kept", [&kit, &chain] { return writes_what_is_kept(kit, chain); }, {}});
    if (!second) continue;
    tasks.push_back({std::string(chain.name) + "_stored",
                     [&kit, &chain] {
                       if (!RangeTable(kit.plugin()).stores()) throw Unsupported("the plugin stores nothing");
                       return same_as_one_by_one(kit, chain, true);
                     },
                     {}});
  }
  return tasks;
}

}  // namespace

const Suite kRangeSuite = {"range", "swy.range/1, swy.range/2: a range gives what its operations give", true, false, {},
                           list};

}  // namespace switchyard::check
