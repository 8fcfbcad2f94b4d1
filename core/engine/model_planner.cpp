// SPDX-License-Identifier: Apache-2.0
// Model: its planner, and which device samples.
#include <algorithm>
#include <utility>

#include "core/engine/model.h"
#include "core/engine/pending.h"
#include "core/engine/sampler_choice.h"
#include "core/plan/plan_memory.h"

namespace switchyard {
namespace {

// Whether states depend on a compiled range. Then large steps need one, too.
bool compiles_states(const Plan& plan) {
  return std::any_of(plan.nodes.begin(), plan.nodes.end(),
                     [](const PlanNode& n) { return n.range_code != nullptr && !n.op.states.empty(); });
}

// Of kernels or memory.
bool lacks_room(const Status& s) { return s.code() == Code::unsupported || s.code() == Code::out_of_device_memory; }

}  // namespace

// The main function's, and the layer's. Where the layer may be left out and steps can run ahead without it, it is so
// with several sessions, which seldom draft, and where no device draws guesses; then its rows are not planned either.
Status Model::make_planners(const ModelOptions& options, const PlanPolicy& policy) {
  const auto plan_main = [&](const ModelOptions& as) { return fit_chunk([&] { return make_planner(as, policy); }); };
  const bool optional = options.mtp && options.mtp_if_it_fits && MtpLayer::of(*program_) != nullptr;
  ModelOptions without = options;
  without.mtp = without.hidden = false;
  const uint32_t chunk = chunk_;
  const auto go_without = [&]() -> Status {
    leave_layer_out(
        fmt::format("{} begins each step before the last one's tokens are known, and would have to wait "
                    "for the layer; --speculate mtp uses it all the same",
                    devices_[0].name));
    return {};
  };
  const bool alone = options.sessions == 1 && MtpLayer::can_draw(*program_);
  if (optional && StepRunner::can_run_ahead(devices_) && !alone) {
    SWY_TRY(plan_main(without));
    if (StepRunner::can_run_ahead(devices_, head_)) return go_without();
    chunk_ = chunk;  // which what did not fit may have made smaller; so below
  }
  Status made = plan_main(options);
  const uint32_t planned = chunk_;
  if (made.ok()) {
    made = fit_chunk([&] { return make_mtp(options, policy); });
    if (made.ok() && optional && StepRunner::can_run_ahead(devices_, head_) && !mtp_->draws()) {
      chunk_ = chunk;
      SWY_TRY(plan_main(without));
      return go_without();
    }
    if (!optional || !lacks_room(made)) return made;
    chunk_ = planned;
  } else {
    if (!optional || !lacks_room(made)) return made;
    chunk_ = chunk;
    SWY_TRY(plan_main(without));
  }
  leave_layer_out(std::string(made.message()));
  return {};
}

bool Model::goes_without_layer(const ModelOptions& options, const Status& failed) const {
  return options.mtp_if_it_fits && mtp_ != nullptr && lacks_room(failed);
}

void Model::leave_layer_out(std::string why) {
  mtp_left_out_ = std::move(why);
  runner_.reset();
  mtp_.reset();
  states_ = {};
}

// With pending rows where all steps can be planned so, else without. Where the largest step cannot be planned in either
// way, a smaller one may do with pending rows.
Status Model::make_planner(const ModelOptions& options, const PlanPolicy& policy) {
  Status made = learn_planner(options, policy);
  if (made.code() != Code::unsupported || pending_rows_ == 0) return made;
  const uint32_t pending = std::exchange(pending_rows_, 0);
  set_slots();
  made = learn_planner(options, policy);
  if (made.ok() && chunk_ > least_chunk())
    made = planner_->plan(bucket({.rows = chunk_, .context = context_})).status();
  if (made.code() == Code::unsupported) {
    pending_rows_ = pending;
    set_slots();
  }
  return made;
}

// Pending rows save less than states on a slower device cost.
Status Model::check_homes(const Planner& pending, const Graph& plain, const ModelOptions& options,
                          const PlanPolicy& policy) const {
  if (devices_.size() < 2) return {};
  const auto without = Planner::create(plain, devices_, policy, options.variants, pool_, chunk_, cancelled_);
  if (!without.ok()) return without.status().code() == Code::cancelled ? without.status() : Status();
  const std::vector<uint32_t>& homes = without->state_device();
  if (std::equal(homes.begin(), homes.end(), pending.state_device().begin())) return {};
  return error(Code::unsupported, "with pending rows the states would be on other devices than without");
}

// A kernel that refuses while a step is planned may leave a state's device without any: the state gets another one.
Status Model::learn_planner(const ModelOptions& options, const PlanPolicy& policy) {
  constexpr int kMaxRounds = 16;
  for (int round = 1;; ++round) {
    const size_t dropped = policy.memory->refusals.count();
    Status made = try_planner(options, policy);
    const bool learned = policy.memory->refusals.count() != dropped;
    if (made.code() != Code::unsupported || !learned || round == kMaxRounds) return made;
  }
}

// On the same devices, by the same policy; a backend may refuse some kernel of it as of the main function.
Status Model::make_mtp(const ModelOptions& options, const PlanPolicy& policy) {
  const Function* f = options.mtp ? MtpLayer::of(*program_) : nullptr;
  if (f == nullptr) return {};
  const auto make = [&](Graph graph, MtpLayer::Made made) -> Status {
    SWY_LET(Planner planner,
            Planner::create(std::move(graph), devices_, policy, options.variants, pool_, chunk_, cancelled_));
    if (made.last_row != kNoValue) {
      const swy_bucket one = bucket({.sample_rows = 1, .context = context_});
      SWY_TRY(planner.plan(one, made.head.results(kWantTokens)).status());
    }
    mtp_ = std::make_unique<MtpLayer>(*program_, std::move(planner), std::move(made));
    return {};
  };
  const Graph plain = graph_of(*program_, *f);
  if (devices_.size() == 1 && sampling_.token && MtpLayer::can_draw(*program_)) {
    Graph graph = plain;
    MtpLayer::Made made = MtpLayer::add_draws(graph, sampling_);
    Status drawn = make(std::move(graph), std::move(made));
    if (!lacks_room(drawn)) return drawn;
  }
  return make(plain, {.head = head_of_logits(plain)});
}

Status Model::try_planner(const ModelOptions& options, const PlanPolicy& policy) {
  Graph plain = graph_of(*program_);
  if (options.routers) routers_ = add_routers(plain);
  const Graph without = plain;
  if (pending_rows_ > 0 && !add_pending_rows(plain, pending_rows_)) {
    pending_rows_ = 0;
    set_slots();
  }
  hidden_ = kNoValue, hidden_width_ = 0;
  if (options.hidden) SWY_TRY(add_hidden(plain));
  head_ = head_of_logits(plain);
  vocab_ = static_cast<uint32_t>(plain.values[head_.logits].width);
  SWY_LET(Planner planner, Planner::create(plain, devices_, policy, options.variants, pool_, chunk_, cancelled_));
  planner_ = std::make_unique<Planner>(std::move(planner));
  if (pending_rows_ > 0) SWY_TRY(check_homes(*planner_, without, options, policy));
  SWY_LET(const Plan plan, planner_->plan(bucket({.context = context_})));
  const bool on_cpu = std::all_of(plan.nodes.begin(), plan.nodes.end(),
                                  [&](const PlanNode& n) { return devices_[n.device].info.type == SWY_DEVICE_CPU; });
  // With several devices the plan may leave the others out.
  if (options.chunk == 0 && on_cpu) chunk_ = std::max(std::min(chunk_, kChunk), options.sessions);
  if (compiles_states(plan) || pending_rows_ > 0) {
    SWY_TRY(planner_->plan(bucket({.rows = chunk_, .context = context_})).status());
  }
  return add_sampler(options, policy, plain, plan.nodes.back().device);
}

Status Model::add_hidden(Graph& graph) {
  const uint32_t logits = graph.results.at(0);
  for (const GraphOp& op : graph.ops) {
    if (op.outputs.empty() || op.outputs[0] != logits || op.inputs.size() != 1 || !op.named.empty()) continue;
    hidden_ = op.inputs.at(0);
    hidden_width_ = static_cast<uint32_t>(graph.values[hidden_].width);
    const std::vector<uint32_t>& all = graph.results;
    if (std::find(all.begin(), all.end(), hidden_) == all.end()) graph.results.push_back(hidden_);
    return {};
  }
  return error(Code::unsupported,
               "the hidden rows of this model cannot be read: no operation makes its logits of them");
}

// Replaces the planner with one for the graph with the sampling operations of a device, if one offers any that can be
// planned. `home`: the device that makes the logits.
Status Model::add_sampler(const ModelOptions& options, const PlanPolicy& policy, const Graph& plain, uint32_t home) {
  used_.clear();
  sampler_ = {"tokens", "sample", "the host", "", "estimate", {}, {}};
  sampling_ = device_sampling_of(devices_[home]);
  sampling_.token = sampling_.candidates = false;
  if (!options.device_sampling) {
    sampler_.reason = sampling_.why_not = "the model was made for logits only";
    return {};
  }
  const swy_bucket one = bucket({.sample_rows = 1, .context = context_});
  SamplerChoice choice = choose_sampler(plain, head_, devices_, home, policy, options.variants, one);
  for (const SamplerOffer& offer : choice.offers) {
    Considered& answer = choice.answers[offer.answer];
    auto made = plan_sampler(options, policy, plain, offer);
    if (made.ok()) {
      sampler_.chosen = fmt::format("{}{}{}", answer.device, answer.kernel.empty() ? "" : " ", answer.kernel);
      sampler_.reason = choice.offers.size() == 1 ? "no other device offers to sample"
                        : policy.ordered          ? "the first of the list that can"
                                                  : "the cheapest, copies included";
      break;
    }
    if (made.code() == Code::cancelled) return made;
    answer.accepted = false;
    answer.reason = fmt::format("{} offers a sampler that cannot be planned: {}", answer.device, made.message());
    if (offer.device == home) sampling_.why_not = answer.reason;
  }
  if (sampler_.reason.empty()) {
    sampler_.reason = choice.offers.empty() ? "no chosen backend offers to sample" : "no offer can be planned";
  }
  sampler_.considered = std::move(choice.answers);
  return {};
}

Status Model::plan_sampler(const ModelOptions& options, PlanPolicy policy, const Graph& plain,
                           const SamplerOffer& offer) {
  Graph graph = plain;
  const Head head = add_head(graph, offer.abilities);
  policy.sampler = static_cast<int>(offer.device);
  SWY_LET(Planner planner,
          Planner::create(std::move(graph), devices_, policy, options.variants, pool_, chunk_, cancelled_));
  SWY_LET(const Plan whole, planner.plan(bucket({.sample_rows = 1, .context = context_})));
  if (compiles_states(whole)) {
    SWY_TRY(planner.plan(bucket({.rows = chunk_, .sample_rows = 1, .context = context_})).status());
  }
  for (const PlanNode& n : whole.nodes) used_.insert(n.device);
  head_ = head;
  sampling_ = offer.abilities;
  planner_ = std::make_unique<Planner>(std::move(planner));
  return {};
}

}  // namespace switchyard
