#include "bench/ops.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "bench/op_run.h"
#include "bench/op_shapes.h"
#include "core/plan/match.h"
#include "core/program/op_names.h"

namespace switchyard::bench {
namespace {

constexpr uint32_t kPageSize = 64;
constexpr uint32_t kMostLogitRows = 64;  // more are not asked for in one step, and their logits would fill memory
constexpr size_t kLeastSamples = 5, kMostSamples = 500;
constexpr double kPatience = 10;      // times the wanted seconds, for kernels that are slow
constexpr uint32_t kLeastOps = 8;     // in a list, so that starting the team does not count
constexpr double kMostChecked = 2e9;  // operations that the oracle is asked for: a few seconds

double now() { return static_cast<double>(Os::real().now_ns()) / 1e9; }

// One kernel on one shape, still to be measured.
struct Case {
  const OpShape* shape;
  const Graph* graph;
  swy_bucket bucket;
  const swy_kernel* kernel;
  StepShape step;
  double estimate_us;
};

const swy_kernel* kernel_named(const PlanDevice& device, swy_op_id op, const std::string& name) {
  for (uint32_t i = 0; i < device.api->kernel_count(device.handle); ++i) {
    const swy_kernel* k = device.api->kernel_at(device.handle, i);
    if (k != nullptr && k->op == op && name == k->name) return k;
  }
  return nullptr;
}

// The root mean square of the difference, as a share of that of `want`; of the worst output.
double error_of(const std::vector<std::vector<float>>& got, const std::vector<std::vector<float>>& want) {
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    double difference = 0, size = 0;
    for (size_t k = 0; k < want[i].size(); ++k) {
      const double d = static_cast<double>(got[i][k]) - static_cast<double>(want[i][k]);
      difference += d * d;
      size += static_cast<double>(want[i][k]) * static_cast<double>(want[i][k]);
    }
    worst = std::max(worst, size > 0 ? std::sqrt(difference / size) : std::sqrt(difference));
  }
  return worst;
}

bool of_logits(const Graph& graph, const GraphOp& op) {
  return std::any_of(op.outputs.begin(), op.outputs.end(),
                     [&](uint32_t v) { return graph.values[v].rows == SWY_ROWS_LOGITS; });
}

class Bench {
 public:
  Bench(std::shared_ptr<const Program> program, const std::vector<std::shared_ptr<Device>>& devices,
        const PlanPolicy& policy, const OpRequest& request)
      : program_(std::move(program)), graph_(graph_of(*program_)), policy_(policy), request_(request) {
    for (const auto& d : devices) devices_.push_back(d->plan());
    readers_ = devices_;
    if (request.oracle != nullptr) readers_.push_back(request.oracle->plan());
    vocab_ = static_cast<uint32_t>(graph_.values[graph_.results[0]].width);
  }

  Result<OpTimes> run(const OpProgress& progress) {
    SWY_LET(const swy_op_id only, wanted_op());
    SWY_TRY(collect(only));
    WeightStore weights(*program_, readers_);
    for (size_t i = 0; i < cases_.size(); ++i) {
      if (!progress(i, cases_.size())) return error(Code::cancelled, "the benchmark was stopped");
      SWY_TRY(measure(cases_[i], weights));
    }
    return std::move(out_);
  }

 private:
  Result<swy_op_id> wanted_op() const {
    if (request_.op.empty()) return 0;
    if (const OpInfo* info = find_op(std::string_view(request_.op))) return info->id;
    std::string known;
    for (const OpInfo& o : kOps) known += (known.empty() ? "" : ", ") + std::string(o.name);
    return error(Code::usage, "unknown operation '{}'; operations are {}", request_.op, known);
  }

  swy_bucket bucket(uint32_t rows) const {
    const uint32_t context = rows == 1 ? request_.depth + 1 : rows;
    swy_bucket b{};
    b.struct_size = sizeof b;
    b.rows = rows;
    b.seqs = b.slots = 1;
    b.logit_rows = std::min(rows, kMostLogitRows);
    b.context = std::bit_ceil(context);
    b.page_size = kPageSize;
    b.pages = (b.context + kPageSize - 1) / kPageSize;
    if (rows == 1) b.flags |= SWY_BUCKET_DECODE;
    if (request_.deterministic) b.flags |= SWY_BUCKET_DETERMINISTIC;
    return b;
  }

  // What there is to measure.
  Status collect(swy_op_id only) {
    std::set<std::string> present;
    shapes_.reserve(request_.rows.size());  // cases point into these
    plans_.reserve(request_.rows.size());
    for (const uint32_t rows : request_.rows) {
      const swy_bucket b = bucket(rows);
      SWY_LET(const Planner planner, Planner::create(graph_, devices_, policy_, request_.variants, b, rows));
      SWY_LET(Plan plan, planner.plan(b));
      for (const PlanNode& n : plan.nodes) {
        if (n.copy_from < 0 && n.kernel != nullptr) present.insert(op_name(n.op.id));
      }
      plans_.push_back(std::move(plan));
      shapes_.push_back(distinct_shapes(plans_.back(), graph_, only));
      for (const OpShape& shape : shapes_.back()) collect(shape, plans_.back().graph, b);
    }
    if (!cases_.empty()) return {};
    if (only != 0 && std::all_of(shapes_.begin(), shapes_.end(), [](const auto& s) { return s.empty(); })) {
      return error(Code::usage, "no step of this model runs {}; it runs {}", request_.op, fmt::join(present, ", "));
    }
    const std::string reason = out_.refusals.empty() ? "no kernel" : out_.refusals[0].reason;
    return error(Code::unsupported, "no kernel of the chosen backends can be measured: {}", reason);
  }

  void collect(const OpShape& shape, const Graph& graph, const swy_bucket& b) {
    const GraphOp& op = shape.ops[0];
    if (of_logits(graph, op) && b.rows > kMostLogitRows) return;
    const Matcher matcher(devices_, request_.variants, b);
    std::vector<Considered> answers;
    (void)matcher.best(graph, op, shape.device, "alone", answers);
    const StepShape step{b.rows, b.logit_rows, b.rows == 1 ? request_.depth + 1 : b.rows};
    for (const Considered& a : answers) {
      const swy_kernel* kernel = kernel_named(devices_[shape.device], op.id, a.kernel);
      if (a.accepted && kernel != nullptr) {
        cases_.push_back({&shape, &graph, b, kernel, step, a.cost_us});
      } else {
        out_.refusals.push_back({op_name(op.id), shape.text, a.kernel, a.reason, b.rows});
      }
    }
  }

  // As many operations of the shape as together read `rotate_bytes`.
  std::span<const GraphOp> rotation(const Case& c) const {
    double bytes = 0;
    size_t n = 0;
    do {
      bytes += workload_of(*program_, c.shape->ops[n], c.step).bytes();
      ++n;
    } while (n < c.shape->ops.size() && bytes < static_cast<double>(request_.rotate_bytes));
    return {c.shape->ops.data(), n};
  }

  Status measure(const Case& c, WeightStore& weights) {
    const GraphOp& op = c.shape->ops[0];
    OpContext context{c.graph, devices_[c.shape->device], c.shape->device, &weights, c.bucket, 0, vocab_};
    if (c.bucket.rows == 1) context.position = request_.depth;
    const auto ops = rotation(c);
    SWY_TRY(load(c, ops, weights));
    SWY_LET(const auto run, OpRun::create(context, *c.kernel, ops, kLeastOps));
    SWY_TRY(run->run());
    OpTime t{op_name(op.id),
             c.shape->text,
             c.kernel->name,
             c.bucket.rows,
             c.shape->ops.size(),
             c.kernel == c.shape->chosen,
             c.estimate_us,
             {},
             workload_of(*program_, op, c.step),
             {}};
    if (request_.oracle != nullptr && t.work.operations() <= kMostChecked) {
      SWY_LET(t.error, check(c, context));
    }
    const double begin = now();
    for (double spent = 0; t.samples.seconds.size() < kMostSamples;) {
      const double start = now();
      SWY_TRY(run->run());
      t.samples.seconds.push_back((now() - start) / run->ops());
      spent = now() - begin;
      const bool enough = t.samples.seconds.size() >= kLeastSamples && spent >= request_.seconds;
      if (enough || spent >= kPatience * request_.seconds) break;
    }
    out_.times.push_back(std::move(t));
    return {};
  }

  // The first operation of a case, once, against the oracle; nothing where the oracle has no kernel for it.
  Result<std::optional<double>> check(const Case& c, OpContext context) const {
    const std::span<const GraphOp> op(c.shape->ops.data(), 1);
    const std::vector<VariantRule> any;
    std::vector<Considered> answers;
    const auto oracle = Matcher(readers_, any, c.bucket)
                            .best(*c.graph, op[0], static_cast<uint32_t>(devices_.size()), "alone", answers);
    if (!oracle) return std::optional<double>();
    SWY_LET(const auto run, OpRun::create(context, *c.kernel, op, 1));
    SWY_TRY(run->run());
    SWY_LET(const auto got, run->outputs());
    context.device_index = static_cast<uint32_t>(devices_.size());
    context.device = readers_[context.device_index];
    SWY_LET(const auto other, OpRun::create(context, *oracle->kernel, op, 1));
    SWY_TRY(other->run());
    SWY_LET(const auto want, other->outputs());
    return std::optional<double>(error_of(got, want));
  }

  // Brings the weights of a rotation into the kernel's layouts, in parallel.
  Status load(const Case& c, std::span<const GraphOp> ops, WeightStore& weights) const {
    const PlanDevice& device = devices_[c.shape->device];
    swy_prepared prepared{};
    prepared.struct_size = sizeof prepared;
    if (c.kernel->prepare != nullptr) {
      OpView view(*c.graph, ops[0], c.bucket);
      set_kernel_dtypes(*c.kernel, view);
      PluginError e;
      SWY_TRY(e.status(c.kernel->prepare(device.handle, c.kernel, view.get(), &c.bucket, &prepared, e.get()),
                       c.kernel->name));
    }
    std::vector<WeightUse> uses;
    for (const GraphOp& op : ops) {
      for (size_t i = 0; i < op.weights.size(); ++i) {
        uses.push_back({op.weights[i], c.shape->device, prepared.weight_layouts[i]});
      }
    }
    return weights.load(std::move(uses), request_.load_threads);
  }

  std::shared_ptr<const Program> program_;
  Graph graph_;
  std::vector<PlanDevice> devices_;
  std::vector<PlanDevice> readers_;  // of weights: the devices, and the oracle
  const PlanPolicy& policy_;
  const OpRequest& request_;
  uint32_t vocab_ = 0;
  std::vector<Plan> plans_;                   // per row count
  std::vector<std::vector<OpShape>> shapes_;  // likewise
  std::vector<Case> cases_;
  OpTimes out_;
};

}  // namespace

Result<OpTimes> measure_ops(std::shared_ptr<const Program> program, const std::vector<std::shared_ptr<Device>>& devices,
                            const PlanPolicy& policy, const OpRequest& request, const OpProgress& progress) {
  return Bench(std::move(program), devices, policy, request).run(progress);
}

}  // namespace switchyard::bench
