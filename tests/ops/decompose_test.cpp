// SPDX-License-Identifier: Apache-2.0
// decompose.h against the composites: the pieces, in fp64 one after the other, give what the composite gives.
#include <gtest/gtest.h>

#include <set>

#include "plugins_api/check/cases.h"
#include "plugins_api/check/compare.h"
#include "plugins_api/check/execution.h"
#include "plugins_api/check/naive.h"
#include "plugins_api/check/pending.h"
#include "switchyard/decompose.h"

namespace switchyard::check {
namespace {

// A composite that is run in pieces. Values between them are rounded to fp32, as on a device.
class Pieces {
 public:
  explicit Pieces(const Case& c) : c_(c), op_(c) { known_ = swy_decompose(op_.get(), &d_) == 0; }
  bool known() const { return known_; }

  Outcome run() {
    outcome_ = blank_outcome(c_);
    for (step_ = 0; step_ < c_.steps.size(); ++step_) {
      temps_.assign(d_.temp_count, {});
      for (uint32_t p = 0; p < d_.piece_count; ++p) run(d_.pieces[p]);
    }
    return std::move(outcome_);
  }

 private:
  void run(const swy_piece& p) {
    Case c;
    c.op = p.id;
    c.revision = p.revision;
    const auto* attrs = reinterpret_cast<const std::byte*>(&p.attrs);
    c.attrs.assign(attrs, attrs + p.attrs_size);
    c.bucket = c_.bucket;
    Step step = c_.steps[step_];
    step.inputs.clear();
    for (uint32_t i = 0; i < p.input_count; ++i) {
      c.inputs.push_back({desc(p.inputs[i]), true});
      step.inputs.push_back(value(p.inputs[i]));
    }
    for (uint32_t i = 0; i < p.weight_count; ++i) c.weights.push_back(c_.weights[SWY_REF_INDEX(p.weights[i])]);
    Outcome all;
    all.tokens = outcome_.tokens;
    for (uint32_t i = 0; i < p.state_count; ++i) {
      c.states.push_back(c_.states[SWY_REF_INDEX(p.states[i])]);
      all.states.push_back(outcome_.states[SWY_REF_INDEX(p.states[i])]);
    }
    for (uint32_t i = 0; i < p.output_count; ++i) c.outputs.push_back({desc(p.outputs[i]), true});
    check_against_the_table(c);
    c.steps = {step};
    std::vector<Matrix> outputs = blank_outcome(c).outputs[0];
    naive_of(p.id)(c, step, all, outputs);
    for (uint32_t i = 0; i < p.output_count; ++i) keep(p.outputs[i], outputs[i]);
    for (uint32_t i = 0; i < p.state_count; ++i) outcome_.states[SWY_REF_INDEX(p.states[i])] = all.states[i];
  }

  // As many operands as the piece's entry has with these attributes.
  static void check_against_the_table(const Case& c) {
    const swy_op_spec* spec = swy_find_op(c.op, c.revision);
    ASSERT_NE(spec, nullptr) << "no entry for a piece";
    ASSERT_EQ(spec->attrs_size, c.attrs.size()) << spec->name;
    const uint32_t sizes[] = {static_cast<uint32_t>(c.inputs.size()), static_cast<uint32_t>(c.weights.size()),
                              static_cast<uint32_t>(c.states.size()), static_cast<uint32_t>(c.outputs.size())};
    uint32_t places[4] = {};
    for (uint32_t i = 0; i < spec->operand_count; ++i) {
      const swy_operand_spec& o = spec->operands[i];
      places[o.list] += swy_operand_places(&o, c.attrs.data(), places[o.list], sizes[o.list], sizes[SWY_REF_OUTPUT]);
    }
    for (uint32_t list = 0; list < 4; ++list) EXPECT_EQ(places[list], sizes[list]) << spec->name << " list " << list;
  }

  swy_tensor desc(swy_ref r) const {
    if (SWY_REF_KIND(r) == SWY_REF_TEMP) return d_.temps[SWY_REF_INDEX(r)];
    return (SWY_REF_KIND(r) == SWY_REF_INPUT ? c_.inputs : c_.outputs)[SWY_REF_INDEX(r)].desc;
  }
  Values value(swy_ref r) const {
    if (SWY_REF_KIND(r) == SWY_REF_INPUT) return c_.steps[step_].inputs[SWY_REF_INDEX(r)];
    return temps_[SWY_REF_INDEX(r)];
  }
  void keep(swy_ref r, const Matrix& m) {
    if (SWY_REF_KIND(r) == SWY_REF_TEMP) {
      temps_[SWY_REF_INDEX(r)] = {std::vector<float>(m.values.begin(), m.values.end()), m.ints};
    } else {
      outcome_.outputs[step_][SWY_REF_INDEX(r)] = m;
    }
  }

  const Case& c_;
  const OpView op_;
  swy_decomposition d_{};
  bool known_ = false;
  Outcome outcome_;
  size_t step_ = 0;
  std::vector<Values> temps_;
};

// Small cases have all that a decomposition distinguishes.
bool is_large(const Case& c) {
  uint64_t elements = 0;
  for (const Weight& w : c.weights) elements += w.desc.dims[0] * w.desc.dims[1] * w.desc.dims[2];
  return c.bucket.rows > 20 || c.bucket.context > 130 || elements > 150000;
}

TEST(Decomposition, GivesWhatTheCompositeGives) {
  std::set<std::pair<uint32_t, uint32_t>> seen;
  for (const CaseSpec& spec : all_cases()) {
    const bool composite = spec.op == SWY_OP_ATTENTION || spec.op == SWY_OP_GATED_DELTA || spec.op == SWY_OP_MOE ||
                           spec.op == SWY_OP_MLP || spec.op == SWY_OP_LM_HEAD;
    if (spec.slow || !composite) continue;
    Random shapes = Random::shapes_only();
    const Case shape = spec.build(shapes);
    if (is_large(shape) || has_pending_rows(shape)) continue;  // which have no decomposition
    Random random(derive(42, spec.name));
    const Case c = spec.build(random);
    Pieces pieces(c);
    ASSERT_TRUE(pieces.known()) << spec.name;
    EXPECT_EQ(compare(c, run_naive(c), pieces.run(), SWY_F32, nullptr), "") << spec.name;
    if (HasFatalFailure() || HasNonfatalFailure()) return;
    seen.emplace(c.op, c.revision);
  }
  for (const auto& [op, revision] : {std::pair<uint32_t, uint32_t>{SWY_OP_ATTENTION, 1},
                                     {SWY_OP_ATTENTION, 2},
                                     {SWY_OP_GATED_DELTA, 1},
                                     {SWY_OP_MOE, 1},
                                     {SWY_OP_MOE, 2},
                                     {SWY_OP_MLP, 1},
                                     {SWY_OP_LM_HEAD, 1}}) {
    EXPECT_TRUE(seen.contains({op, revision})) << op_name(op) << " " << revision;
  }
}

}  // namespace
}  // namespace switchyard::check
