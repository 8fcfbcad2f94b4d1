// range: swy.range/1. A claimed range gives what its operations give one by one, and who offers it takes some range.
#include <cmath>

#include "plugins_api/check/chains.h"
#include "plugins_api/check/kit.h"
#include "plugins_api/check/state_memory.h"
#include "plugins_api/check/step_block.h"
#include "plugins_api/check/suites.h"
#include "switchyard/extensions.h"

namespace switchyard::check {
namespace {

class Range {
 public:
  // The links stay alive. To claim, they need no contents.
  Range(const Kit& kit, const std::vector<Case>& links)
      : p_(kit.plugin()), table_(static_cast<const swy_range*>(p_.extension(SWY_EXT_RANGE))), links_(links) {
    for (const Case& c : links_) {
      views_.push_back(std::make_unique<OpView>(c));
      ops_.push_back(views_.back()->get());
    }
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
    const swy_status s = table_->claim(p_.device(), ops_.data(), count(), &bucket(), &accepted, &us, why_.get());
    if (s == SWY_UNSUPPORTED) accepted = 0;
    if (s != SWY_UNSUPPORTED) why_.expect_ok(s, "claim");
    if (accepted == 1 || accepted > ops_.size()) throw Failure(text("claims ", accepted, " of ", ops_.size(), " ops"));
    if (accepted != 0 && !(us >= 0)) throw Failure(text("claims that a range costs ", us, " microseconds"));
    return accepted;
  }
  std::string why() const { return why_.line(); }

  // Records the whole chain as one range, once.
  void record() {
    uint64_t workspace = 0;
    std::vector<uint32_t> layouts;
    for (const Case& c : links_) layouts.resize(layouts.size() + c.weights.size(), 0);
    PluginError e;
    e.expect_ok(table_->prepare(p_.device(), ops_.data(), count(), &bucket(), &workspace, layouts.data(),
                                static_cast<uint32_t>(layouts.size()), e.get()),
                "prepare");
    for (const uint32_t layout : layouts) {
      if (layout != 0) throw Unsupported("the range wants packed weights");
    }
    place();
    step_ = add(step_block_bytes(links_[0]), "the step", SWY_MEMORY_UPLOAD);
    work_ = add(workspace + 64, "the workspace");
    const swy_list_info info{sizeof info, 0, &bucket(), memory_[step_].binding(), memory_[add(64, "tokens")].binding()};
    e.expect_ok(p_.api().list_begin(p_.device(), &info, &list_, e.get()), "list_begin");
    std::vector<const swy_bindings*> bindings;
    for (Bound& b : bound_) {
      b.all = {sizeof b.all, 0, b.inputs.data(), b.weights.data(), b.states.data(), b.outputs.data(), {}};
      bindings.push_back(&b.all);
    }
    const swy_range_operands operands{sizeof operands, count(), ops_.data(), bindings.data()};
    const swy_binding w = memory_[work_].part(0, workspace);
    e.expect_ok(table_->record(list_, &operands, &w, e.get()), "record of a range");
    e.expect_ok(p_.api().list_finalize(list_, e.get()), "list_finalize");
  }

  // What the links leave: the last one's output, and everyone's states. Values inside the range are not looked at.
  std::vector<Outcome> submit() {
    std::vector<Outcome> out(links_.size());
    for (const size_t m : values_) memory_[m].poison();
    memory_[work_].poison();
    for (const Given& g : given_) memory_[g.memory].write(g.content->data(), g.content->size() * 4);
    for (const Kept& k : kept_) {
      k.memory.bring(k.state(links_), bucket().page_size);
      out[k.link].before.push_back(k.memory.content(k.state(links_), bucket().page_size));
    }
    const std::vector<std::byte> block = step_block(links_[0].steps[0], bucket(), ++submissions_);
    memory_[step_].write(block.data(), block.size());
    PluginError e;
    e.expect_ok(p_.api().list_submit(list_, nullptr, e.get()), "list_submit");
    for (const Kept& k : kept_) {
      out[k.link].states.push_back(k.memory.content(k.state(links_), bucket().page_size));
      k.memory.expect_guards();
    }
    for (const Memory& m : memory_) m.expect_guards();
    expect_untouched_inputs();
    std::vector<float> last(bytes_of(links_.back().outputs[0]) / 4);
    memory_[values_.back()].read(last.data(), last.size() * 4);
    Matrix m{bucket().rows, links_.back().outputs[0].desc.dims[1], SWY_F32, {last.begin(), last.end()}, {}};
    out.back().outputs.push_back({std::move(m)});
    return out;
  }

 private:
  struct Bound {
    std::vector<swy_binding> inputs, weights, states, outputs;
    swy_bindings all{};
  };
  struct Given {  // an input from outside
    size_t memory;
    const std::vector<float>* content;
  };
  struct Kept {
    size_t link, index;
    StateMemory memory;
    const State& state(const std::vector<Case>& links) const { return links[link].states[index]; }
  };

  uint32_t count() const { return static_cast<uint32_t>(ops_.size()); }
  const swy_bucket& bucket() const { return links_[0].bucket; }
  static uint64_t bytes_of(const Operand& o) { return o.desc.dims[0] * o.desc.dims[1] * 4; }

  size_t add(uint64_t bytes, const std::string& what, swy_memory_type type = SWY_MEMORY_DEVICE) {
    memory_.emplace_back(p_, type, bytes, what);
    return memory_.size() - 1;
  }
  size_t give(size_t link, size_t input) {
    const std::vector<float>& content = links_[link].steps[0].inputs[input].floats;
    given_.push_back({add(content.size() * 4, text("input ", input, " of operation ", link)), &content});
    return given_.back().memory;
  }

  // Memory for every value: values inside the range are bound too, and may be left unwritten.
  void place() {
    const size_t first = give(0, 0);
    for (size_t i = 0; i < links_.size(); ++i) {
      const Case& c = links_[i];
      Bound& b = bound_.emplace_back();
      b.inputs = {memory_[i == 0 ? first : values_.back()].binding()};
      for (size_t j = 1; j < c.inputs.size(); ++j) {
        b.inputs.push_back(memory_[adds_chain_input(links_, i) ? first : give(i, j)].binding());
      }
      for (const Weight& w : c.weights) {
        const size_t m = add(w.segment.size(), text("a weight of operation ", i));
        memory_[m].write(w.segment.data(), w.segment.size());
        b.weights.push_back(memory_[m].binding());
      }
      for (uint32_t s = 0; s < c.states.size(); ++s) {
        kept_.push_back({i, s, StateMemory(p_, ops_[i], c, s)});
        b.states.push_back(kept_.back().memory.binding());
      }
      values_.push_back(add(bytes_of(c.outputs[0]), text("the value of operation ", i)));
      b.outputs = {memory_[values_.back()].binding()};
    }
  }

  void expect_untouched_inputs() const {
    for (const Given& g : given_) {
      std::vector<float> now(g.content->size());
      memory_[g.memory].read(now.data(), now.size() * 4);
      if (now != *g.content) throw Failure("changed an input of the range");
    }
  }

  const Plugin& p_;
  const swy_range* table_;
  const std::vector<Case>& links_;
  std::vector<std::unique_ptr<OpView>> views_;
  std::vector<const swy_op*> ops_;
  PluginError why_;
  std::vector<Memory> memory_;
  std::vector<Kept> kept_;
  std::vector<Given> given_;
  std::vector<size_t> values_;  // what each operation gives
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

// What differs in the states of one link.
std::string compare_states(Case link, Outcome wanted, Outcome got) {
  link.outputs.clear();
  wanted.outputs = got.outputs = {{}};
  return compare(link, wanted, got, SWY_BF16, nullptr);
}

std::string compare_chains(const std::vector<Case>& links, const std::vector<Outcome>& wanted,
                           const std::vector<Outcome>& got) {
  for (size_t i = 0; i < links.size(); ++i) {
    const std::string problem = compare_states(links[i], wanted[i], got[i]);
    if (!problem.empty()) return text(op_name(links[i].op), ": ", problem);
  }
  const double error = relative_error(wanted.back().outputs[0][0].values, got.back().outputs[0][0].values);
  return error <= kBudget ? "" : text("its output has a relative error of ", error, " (budget ", kBudget, ")");
}

// How many operations of the chain the plugin takes, and in *why, why not all.
uint32_t claimed(const Kit& kit, const Chain& chain, std::string* why) {
  Random shapes = Random::shapes_only();
  const std::vector<Case> links = build_chain(chain, shapes);
  Range range(kit, links);
  const uint32_t accepted = range.claim();
  *why = range.why();
  return accepted;
}

std::string same_as_one_by_one(const Kit& kit, const Chain& chain) {
  std::string why;
  const uint32_t accepted = claimed(kit, chain, &why);
  if (accepted == 0) throw Unsupported(why);
  Random random(derive(kit.request().seed, chain.name));
  std::vector<Case> links = build_chain(chain, random);
  links.resize(accepted);
  const std::vector<Outcome> wanted = one_by_one(kit, links, random);
  Range range(kit, links);
  range.record();
  for (const char* when : {"", ", submitted again,"}) {
    const std::string problem = compare_chains(links, wanted, range.submit());
    if (!problem.empty()) return text("the range ", chain.name, when, " differs from its operations: ", problem);
  }
  return "";
}

std::string takes_some(const Kit& kit) {
  std::string all;
  for (const Chain& chain : all_chains()) {
    std::string why;
    if (claimed(kit, chain, &why) != 0) return "";
    all += text(all.empty() ? "" : "; ", chain.name, ": ", why);
  }
  return text(SWY_EXT_RANGE " is there and takes no range that the kit knows: ", all);
}

std::vector<Task> list(Session& session, std::vector<Refusal>* refusals) {
  Kit& kit = session.kit();
  if (kit.plugin().extension(SWY_EXT_RANGE) == nullptr) {
    refusals->push_back({"chains", "the plugin has no " SWY_EXT_RANGE, {}});
    return {};
  }
  std::vector<Task> tasks = {{"takes_some", [&kit] { return takes_some(kit); }, {}}};
  for (const Chain& chain : all_chains()) {
    tasks.push_back({chain.name, [&kit, &chain] { return same_as_one_by_one(kit, chain); }, {}});
  }
  return tasks;
}

}  // namespace

const Suite kRangeSuite = {"range", "swy.range/1: a range gives what its operations give", true, false, {}, list};

}  // namespace switchyard::check
