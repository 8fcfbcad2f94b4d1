// SPDX-License-Identifier: Apache-2.0
#include "bench/op_cases.h"

#include <algorithm>
#include <bit>
#include <set>

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

Result<swy_op_id> OpCases::wanted_op() const {
  if (request_.op.empty()) return 0;
  if (const OpInfo* info = find_op(std::string_view(request_.op))) return info->id;
  std::string known;
  for (const OpInfo& o : kOps) known += (known.empty() ? "" : ", ") + std::string(o.name);
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
  SWY_LET(const swy_op_id only, wanted_op());
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
  if (only != 0 && std::all_of(shapes_.begin(), shapes_.end(), [](const auto& s) { return s.empty(); })) {
    return error(Code::usage, "no step of this model runs {}; it runs {}", request_.op, fmt::join(present, ", "));
  }
  const std::string reason = refusals_.empty() ? "no kernel" : refusals_[0].reason;
  return error(Code::unsupported, "no kernel of the chosen backends can be measured: {}", reason);
}

void OpCases::collect(const OpShape& shape, const Graph& graph, const swy_bucket& b) {
  const GraphOp& op = shape.ops[0];
  if (of_logits(graph, op) && b.rows > kMostLogitRows) return;
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

Result<std::unique_ptr<OpRun>> OpCases::record(const OpCase& c, uint32_t least_ops) {
  const auto ops = rotation(c);
  SWY_TRY(load(c, ops));
  return OpRun::create(context(c), *c.kernel, ops, least_ops);
}

Result<std::optional<RowErrors>> OpCases::errors(const OpCase& c) {
  if (request_.oracle == nullptr || workload(c).operations() > kMostChecked) return std::optional<RowErrors>();
  const std::span<const GraphOp> op(c.shape->ops.data(), 1);
  const std::vector<VariantRule> any;
  std::vector<Considered> answers;
  const auto oracle =
      Matcher(readers_, any, c.bucket).best(*c.graph, op[0], static_cast<uint32_t>(devices_.size()), "alone", answers);
  if (!oracle) return std::optional<RowErrors>();
  OpContext at = context(c);
  SWY_LET(const auto run, OpRun::create(at, *c.kernel, op, 1));
  SWY_TRY(run->run());
  SWY_LET(const auto got, run->outputs());
  at.device_index = static_cast<uint32_t>(devices_.size());
  at.device = readers_[at.device_index];
  SWY_LET(const auto other, OpRun::create(at, *oracle->kernel, op, 1));
  SWY_TRY(other->run());
  SWY_LET(const auto want, other->outputs());
  RowErrors worst;
  for (size_t i = 0; i < want.size(); ++i) {
    const uint64_t width = c.graph->values[c.first().outputs[i]].width;
    worst = std::max(worst, row_errors(got[i], want[i], width));
  }
  return std::optional<RowErrors>(worst);
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
