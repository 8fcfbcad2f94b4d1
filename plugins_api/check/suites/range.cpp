// range: swy.range/1. A claimed range gives what its operations give one by one, and who offers it takes some range.
#include <cmath>

#include "plugins_api/check/kit.h"
#include "plugins_api/check/step_block.h"
#include "plugins_api/check/suites.h"
#include "switchyard/extensions.h"

namespace switchyard::check {
namespace {

// A chain of operations with one input and one output each beside the first's, as a model has them.
struct Chain {
  const char* name;
  std::vector<swy_op_id> ops;  // SWY_OP_ADD adds the chain's own input; SWY_OP_RMS_NORM; SWY_OP_LINEAR
};

constexpr uint64_t kWidth = 64;
constexpr uint32_t kRows = 5;

const std::vector<Chain>& chains() {
  static const std::vector<Chain> all = {
      {"add_add", {SWY_OP_ADD, SWY_OP_ADD}},       {"add4", {SWY_OP_ADD, SWY_OP_ADD, SWY_OP_ADD, SWY_OP_ADD}},
      {"add_norm", {SWY_OP_ADD, SWY_OP_RMS_NORM}}, {"norm_linear", {SWY_OP_RMS_NORM, SWY_OP_LINEAR}},
      {"linear_add", {SWY_OP_LINEAR, SWY_OP_ADD}}, {"layer", {SWY_OP_RMS_NORM, SWY_OP_LINEAR, SWY_OP_ADD}}};
  return all;
}

Case link_of(swy_op_id op, Random& random) {
  Builder b(op, random);
  if (op == SWY_OP_RMS_NORM) b.attrs(swy_rms_norm_attrs{0, 1e-6f, 1, 0});
  b.rows({2, 1, kRows - 3}).input(kWidth);
  if (op == SWY_OP_ADD) b.input(kWidth);
  if (op == SWY_OP_RMS_NORM) b.plain({kWidth}, SWY_F32, 0, 0.3);
  if (op == SWY_OP_LINEAR) b.matrix({kWidth, kWidth}, SWY_BF16, 0);
  return b.output(kWidth).done();
}

std::vector<Case> build(const Kit& kit, const Chain& chain) {
  Random random(derive(kit.request().seed, chain.name));
  std::vector<Case> out;
  for (const swy_op_id op : chain.ops) out.push_back(link_of(op, random));
  for (Case& c : out) {  // what is added is the chain's input
    if (c.op == SWY_OP_ADD) c.steps[0].inputs[1] = out[0].steps[0].inputs[0];
  }
  return out;
}

// The chain, one operation after the other, by the oracle.
std::vector<float> one_by_one(const Kit& kit, std::vector<Case> links) {
  Values value = links[0].steps[0].inputs[0];
  for (Case& c : links) {
    c.steps[0].inputs[0] = value;
    const Outcome o = kit.expected(Check{}, c);
    value.floats.assign(o.outputs[0][0].values.begin(), o.outputs[0][0].values.end());
  }
  return value.floats;
}

class Range {
 public:
  Range(const Kit& kit, const std::vector<Case>& links)
      : p_(kit.plugin()), table_(static_cast<const swy_range*>(p_.extension(SWY_EXT_RANGE))), links_(links) {
    for (const Case& c : links_) {
      views_.push_back(std::make_unique<OpView>(c));
      ops_.push_back(views_.back()->get());
    }
  }

  // How many of the operations it takes; 0: none.
  uint32_t claim() {
    double us = -1;
    uint32_t accepted = 0;
    const swy_status s = table_->claim(p_.device(), ops_.data(), static_cast<uint32_t>(ops_.size()), &links_[0].bucket,
                                       &accepted, &us, why_.get());
    if (s == SWY_UNSUPPORTED) accepted = 0;
    if (s != SWY_UNSUPPORTED) why_.expect_ok(s, "claim");
    if (accepted == 1 || accepted > ops_.size()) throw Failure(text("claims ", accepted, " of ", ops_.size(), " ops"));
    if (accepted != 0 && !(us >= 0)) throw Failure(text("claims that a range costs ", us, " microseconds"));
    return accepted;
  }
  std::string why() const { return why_.line(); }

  // Runs the whole chain as one range.
  std::vector<float> run() {
    const auto n = static_cast<uint32_t>(ops_.size());
    uint64_t workspace = 0;
    std::vector<uint32_t> layouts(n, 0);
    PluginError e;
    e.expect_ok(table_->prepare(p_.device(), ops_.data(), n, &links_[0].bucket, &workspace, layouts.data(), n, e.get()),
                "prepare");
    place(layouts);
    const Memory step(p_, SWY_MEMORY_UPLOAD, step_block_bytes(links_[0]), "the step");
    const Memory tokens(p_, SWY_MEMORY_DEVICE, 64, "tokens"), work(p_, SWY_MEMORY_DEVICE, workspace + 64, "workspace");
    const std::vector<std::byte> block = step_block(links_[0].steps[0], links_[0].bucket, 1);
    step.write(block.data(), block.size());
    swy_list_info info{sizeof info, 0, &links_[0].bucket, step.binding(), tokens.binding()};
    swy_list* list = nullptr;
    e.expect_ok(p_.api().list_begin(p_.device(), &info, &list, e.get()), "list_begin");
    const std::shared_ptr<swy_list> owned(list, p_.api().list_free);
    const swy_range_operands operands{sizeof operands, n, ops_.data(), binding_list_.data()};
    const swy_binding w = work.part(0, workspace);
    e.expect_ok(table_->record(list, &operands, &w, e.get()), "record of a range");
    e.expect_ok(p_.api().list_finalize(list, e.get()), "list_finalize");
    e.expect_ok(p_.api().list_submit(list, nullptr, e.get()), "list_submit");
    for (const Memory& m : memory_) m.expect_guards();
    std::vector<float> out(kRows * kWidth);
    memory_[last_].read(out.data(), out.size() * 4);
    return out;
  }

 private:
  // Memory for every value: values inside the range are bound too, and may be left unwritten.
  void place(const std::vector<uint32_t>& layouts) {
    constexpr uint64_t kBytes = kRows * kWidth * 4;
    const auto add = [&](uint64_t bytes, const void* content, const char* what) {
      memory_.emplace_back(p_, SWY_MEMORY_DEVICE, bytes, what);
      if (content != nullptr) memory_.back().write(content, bytes);
      return memory_.size() - 1;
    };
    memory_.reserve(3 * links_.size() + 1);
    size_t value = add(kBytes, links_[0].steps[0].inputs[0].floats.data(), "the range's input");
    const size_t first = value;
    for (size_t i = 0; i < links_.size(); ++i) {
      if (layouts[i] != 0) throw Unsupported("the range wants packed weights");
      Bound& b = bound_.emplace_back();
      b.inputs = {memory_[value].binding(), memory_[first].binding()};
      if (!links_[i].weights.empty()) {
        const auto& bytes = links_[i].weights[0].segment;
        b.weights = {memory_[add(bytes.size(), bytes.data(), "a weight")].binding()};
      }
      value = add(kBytes, nullptr, "a value");
      b.outputs = {memory_[value].binding()};
    }
    last_ = value;
    for (Bound& b : bound_) {
      b.all = {sizeof(swy_bindings), 0, b.inputs.data(), b.weights.data(), nullptr, b.outputs.data(), {}};
      binding_list_.push_back(&b.all);
    }
  }

  struct Bound {
    std::vector<swy_binding> inputs, weights, outputs;
    swy_bindings all{};
  };
  const Plugin& p_;
  const swy_range* table_;
  const std::vector<Case>& links_;
  std::vector<std::unique_ptr<OpView>> views_;
  std::vector<const swy_op*> ops_;
  PluginError why_;
  std::vector<Memory> memory_;
  std::vector<Bound> bound_;
  std::vector<const swy_bindings*> binding_list_;
  size_t last_ = 0;
};

std::string same_as_one_by_one(const Kit& kit, const Chain& chain) {
  std::vector<Case> links = build(kit, chain);
  const uint32_t accepted = Range(kit, links).claim();
  if (accepted == 0) throw Unsupported(Range(kit, links).why());
  links.resize(accepted);
  const std::vector<float> wanted = one_by_one(kit, links), got = Range(kit, links).run();
  double difference = 0, norm = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    difference += (double{got[i]} - wanted[i]) * (double{got[i]} - wanted[i]);
    norm += double{wanted[i]} * wanted[i];
  }
  const double error = std::sqrt(difference / norm);
  constexpr double kBudget = 2e-2;  // of a few operations that may round activations to 8 bits
  return error <= kBudget ? "" : text("the range ", chain.name, " differs from its operations by ", error);
}

std::string takes_some(const Kit& kit) {
  std::string why;
  for (const Chain& chain : chains()) {
    const std::vector<Case> links = build(kit, chain);
    Range range(kit, links);
    if (range.claim() != 0) return "";
    why += text(why.empty() ? "" : "; ", chain.name, ": ", range.why());
  }
  return text(SWY_EXT_RANGE " is there and takes no range that the kit knows: ", why);
}

std::vector<Task> list(Session& session, std::vector<Refusal>* refusals) {
  Kit& kit = session.kit();
  if (kit.plugin().extension(SWY_EXT_RANGE) == nullptr) {
    refusals->push_back({"chains", "the plugin has no " SWY_EXT_RANGE, {}});
    return {};
  }
  std::vector<Task> tasks = {{"takes_some", [&kit] { return takes_some(kit); }, {}}};
  for (const Chain& chain : chains()) {
    tasks.push_back({chain.name, [&kit, &chain] { return same_as_one_by_one(kit, chain); }, {}});
  }
  return tasks;
}

}  // namespace

const Suite kRangeSuite = {"range", "swy.range/1: a range gives what its operations give", true, false, {}, list};

}  // namespace switchyard::check
