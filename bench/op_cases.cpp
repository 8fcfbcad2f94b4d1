// SPDX-License-Identifier: Apache-2.0
#include "bench/op_cases.h"

#include <algorithm>
#include <bit>
#include <set>

#include "bench/op_oracle.h"
#include "core/plan/match.h"
#include "core/plan/op_shape.h"
#include "core/program/op_names.h"

namespace switchyard::bench {
namespace {

constexpr uint32_t kPageSize = 64;
constexpr uint32_t kMostLogitRows = 64;  // no step wants more, and their logits would fill memory
constexpr double kMostChecked = 2e9;     // operations that the oracle can compute in a few seconds

bool of_logits(const Graph& graph, const GraphOp& op) {
  return std::any_of(op.outputs.begin(), op.outputs.end(),
                     [&](uint32_t v) { return graph.values[v].rows == SWY_ROWS_LOGITS; });
}

}  // namespace

std::string OpCase::op() const { return op_kind(first()); }

uint64_t OpCase::rows() const { return op_rows(*graph, first(), bucket); }

OpCases::OpCases(std::shared_ptr<const Program> program, const std::vector<std::shared_ptr<Device>>& devices,
                 const PlanPolicy& policy, OpRequest request)
    : program_(std::move(program)),
      owners_(devices),
      graph_(graph_of(*program_)),
      policy_(policy),
      request_(std::move(request)),
      weights_(*program_, readers_) {
  for (const auto& d : devices) devices_.push_back(d->plan());
  readers_ = devices_;
  if (request_.oracle != nullptr) readers_.push_back(request_.oracle->plan());
  vocab_ = static_cast<uint32_t>(graph_.values[graph_.results[0]].width);
}

// That the operation asked for exists.
Status OpCases::check_wanted() const {
  if (request_.op.empty() || find_op(request_.op) != nullptr) return {};
  std::set<std::string> named;
  const auto add = [&](const std::vector<GraphOp>& ops) {
    for (const GraphOp& op : ops) {
      if (!op.named.empty()) named.insert(op.named);
    }
  };
  add(graph_.ops);
  if (graph_.functions != nullptr) {
    for (const GraphFunction& f : *graph_.functions) add(f.ops);
  }
  if (named.contains(request_.op)) return {};
  std::string known;
  for (const swy_op_spec& o : known_ops()) known += (known.empty() ? "" : ", ") + std::string(o.name);
  for (const std::string& name : named) known += ", " + name;
  return error(Code::usage, "unknown operation '{}'; operations are {}", request_.op, known);
}

swy_bucket OpCases::bucket(uint32_t rows) const {
  const uint32_t context = decodes(rows) ? request_.depth + 1 : rows;
  swy_bucket b{};
  b.struct_size = sizeof b;
  b.rows = rows;
  b.seqs = b.slots = decodes(rows) ? rows : 1;
  b.logit_rows = std::min(rows, kMostLogitRows);
  b.context = std::bit_ceil(context);
  b.page_size = kPageSize;
  b.pages = (b.context + kPageSize - 1) / kPageSize * b.seqs;
  if (decodes(rows)) b.flags |= SWY_BUCKET_DECODE;
  if (request_.deterministic) b.flags |= SWY_BUCKET_DETERMINISTIC;
  return b;
}

StepShape OpCases::step(const swy_bucket& b) const {
  return {b.rows, b.logit_rows, decodes(b.rows) ? request_.depth + 1 : b.rows, b.seqs};
}

Status OpCases::collect() {
  SWY_TRY(check_wanted());
  const std::string& only = request_.op;
  std::set<std::string> present;
  shapes_.reserve(request_.rows.size());  // cases point into these
  plans_.reserve(request_.rows.size());
  for (const uint32_t rows : request_.rows) {
    const swy_bucket b = bucket(rows);
    SWY_LET(const Planner planner, Planner::create(graph_, devices_, policy_, request_.variants, b, rows));
    SWY_LET(Plan plan, planner.plan(b));
    for (const PlanNode& n : plan.nodes) {
      if (n.copy_from < 0 && n.kernel != nullptr) present.insert(op_kind(n.op));
    }
    plans_.push_back(std::move(plan));
    shapes_.push_back(distinct_shapes(plans_.back(), graph_, only));
    for (const OpShape& shape : shapes_.back()) collect(shape, plans_.back().graph, b);
  }
  if (!cases_.empty()) return {};
  if (!only.empty() && std::all_of(shapes_.begin(), shapes_.end(), [](const auto& s) { return s.empty(); })) {
    return error(Code::usage, "no step of this model runs {}; it runs {}", request_.op, fmt::join(present, ", "));
  }
  if (!refusals_.empty()) {
    return error(Code::unsupported, "no kernel of the chosen backends can be measured: {}", refusals_[0].reason);
  }
  if (too_many_logits_) {
    return error(Code::usage, "--rows is too large for {}: at most {} rows have logits", request_.op, kMostLogitRows);
  }
  return error(Code::unsupported, "no chosen backend has a kernel for {}; a step of this model runs {}", request_.op,
               fmt::join(present, ", "));
}

void OpCases::collect(const OpShape& shape, const Graph& graph, const swy_bucket& b) {
  const GraphOp& op = shape.ops[0];
  if (of_logits(graph, op) && b.rows > kMostLogitRows) {
    too_many_logits_ = true;
    return;
  }
  const Matcher matcher(devices_, request_.variants, b);
  std::vector<Considered> answers;
  (void)matcher.best(graph, op, shape.device, "alone", answers);
  for (const Considered& a : answers) {
    const swy_kernel* kernel = kernel_named(devices_[shape.device], op.id, a.kernel);
    if (a.accepted && kernel != nullptr) {
      cases_.push_back({&shape, &graph, b, kernel, step(b), a.cost_us, kernel == shape.chosen});
    } else {
      refusals_.push_back({op_kind(op), shape.text, a.kernel, a.reason, b.rows});
    }
  }
}

// As many operations of the shape as together read `rotate_bytes`.
std::span<const GraphOp> OpCases::rotation(const OpCase& c) const {
  double bytes = 0;
  size_t n = 0;
  do {
    bytes += workload_of(*c.graph, c.shape->ops[n], c.step).bytes();
    ++n;
  } while (n < c.shape->ops.size() && bytes < static_cast<double>(request_.rotate_bytes));
  return {c.shape->ops.data(), n};
}

OpContext OpCases::context(const OpCase& c) {
  OpContext context{c.graph, device(c), c.shape->device, &weights_, c.bucket, 0, vocab_};
  if (decodes(c.bucket.rows)) context.position = request_.depth;
  return context;
}

Result<Workload> OpCases::workload(const OpCase& c) const {
  const PlanDevice& on = device(c);
  const GraphOp& op = c.first();
  StepShape step = c.step;
  step.state_shares.assign(c.graph->states.size(), 1);
  const OpView view(*c.graph, op, c.bucket);
  for (uint32_t i = 0; i < op.states.size(); ++i) {
    swy_state_layout layout{};
    layout.struct_size = sizeof layout;
    PluginError e;
    SWY_TRY(e.status(on.api->state_layout(on.handle, view.get(), i, &c.bucket, &layout, e.get()), c.op()));
    const uint64_t canonical = canonical_bytes(c.graph->states[op.states[i]].desc, c.bucket.page_size);
    step.state_shares[op.states[i]] = static_cast<double>(layout.unit_bytes) / static_cast<double>(canonical);
  }
  return workload_of(*c.graph, op, step);
}

Result<std::unique_ptr<OpRun>> OpCases::record(const OpCase& c, uint32_t least_ops) {
  const auto ops = rotation(c);
  SWY_TRY(load(c, ops));
  return OpRun::create(context(c), *c.kernel, ops, least_ops);
}

Result<std::optional<RowErrors>> OpCases::errors(const OpCase& c) {
  if (request_.oracle == nullptr || workload_of(*c.graph, c.first(), c.step).operations() > kMostChecked)
    return std::optional<RowErrors>();
  const std::span<const GraphOp> op(c.shape->ops.data(), 1);
  const auto last = static_cast<uint32_t>(devices_.size());
  const auto oracle = OpOracle::find(*c.graph, op[0], readers_, last, c.bucket);
  if (!oracle) return std::optional<RowErrors>();
  const bool named = op[0].id == SWY_OP_NAMED;
  OpStates ours, theirs;
  OpContext at = context(c), reference = at;
  if (named) at.states = &ours;
  SWY_LET(const auto run, OpRun::create(at, *c.kernel, op, 1));
  SWY_TRY(run->run());
  SWY_LET(const auto inputs, run->inputs());
  SWY_LET(const auto got, run->outputs());
  reference.device_index = last;
  reference.device = readers_[last];
  if (named) reference.states = &theirs;
  for (uint32_t i = 0; named && i < op[0].states.size(); ++i) {  // also those that the function does not use
    SWY_TRY(theirs.get(reference.device, *c.graph, op[0], i, c.bucket).status());
  }
  SWY_LET(const auto want, oracle->run(reference, inputs));
  RowErrors worst;
  for (size_t i = 0; i < want.size(); ++i) {
    const uint64_t width = c.graph->values[c.first().outputs[i]].width;
    worst = std::max(worst, row_errors(got[i], want[i], width));
  }
  if (named) SWY_TRY(compare_states(at, reference, op[0], worst));
  return std::optional<RowErrors>(worst);
}

// A state's rows are those of its last dim.
Status OpCases::compare_states(const OpContext& got, const OpContext& want, const GraphOp& op, RowErrors& worst) const {
  for (const uint32_t s : op.states) {
    const swy_tensor& state = got.graph->states[s].desc;
    SWY_LET(const auto ours, got.states->canonical(got.device, *got.graph, s, got.bucket));
    SWY_LET(const auto theirs, want.states->canonical(want.device, *got.graph, s, want.bucket));
    worst = std::max(worst, row_errors(ours, theirs, state.dims[state.rank - 1]));
  }
  return {};
}

// Brings the weights of a rotation into the kernel's layouts, in parallel.
Status OpCases::load(const OpCase& c, std::span<const GraphOp> ops) {
  const PlanDevice& on = device(c);
  swy_prepared prepared{};
  prepared.struct_size = sizeof prepared;
  if (c.kernel->prepare != nullptr) {
    OpView view(*c.graph, ops[0], c.bucket);
    set_kernel_dtypes(*c.kernel, view);
    PluginError e;
    SWY_TRY(
        e.status(c.kernel->prepare(on.handle, c.kernel, view.get(), &c.bucket, &prepared, e.get()), c.kernel->name));
  }
  std::vector<WeightUse> uses;
  for (const GraphOp& op : ops) {
    for (size_t i = 0; i < op.weights.size(); ++i) {
      uses.push_back(weight_use(*c.graph, op.weights[i], c.shape->device, prepared.weight_layouts[i]));
    }
  }
  return weights_.load(std::move(uses), request_.load_threads);
}

}  // namespace switchyard::bench
