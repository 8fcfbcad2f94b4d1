// SPDX-License-Identifier: Apache-2.0
// MOE, MOE_ADD and the pieces ROUTER_TOPK and EXPERTS. How a router chooses is in router.cpp.
//
// Rows are grouped by expert, so that each weight row is dequantized once per step. A row's experts are summed in order
// of rank, whatever else is in the step.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "arithmetic.h"
#include "kernels.h"

namespace reference {
namespace {

uint64_t hidden_of(const swy_op& op) { return swy::tensor(op, "x").dims[1]; }

uint64_t router_workspace(const swy_op& op, const swy_bucket& bucket) {
  const swy_moe_attrs a = swy_moe_of(&op);
  return has_choices(a) ? uint64_t{bucket.rows} * a.experts * sizeof(double) : 0;
}

void router_topk(const swy::Call& call) {
  route(call, swy_moe_of(call.op), call.input("logits"), call.work<double>(0), call.output<int32_t>("expert_ids"),
        call.output("expert_weights"));
}

// Assigns parts of one workspace, each aligned to 64 bytes; without a base it only measures.
class Arena {
 public:
  explicit Arena(char* base) : base_(base) {}
  template <class T>
  T* take(uint64_t count) {
    T* p = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += swy_align64(count * sizeof(T));
    return p;
  }
  uint64_t used() const { return used_; }

 private:
  char* base_;
  uint64_t used_ = 0;
};

// Ids may come from outside: those of no expert count as the last one.
uint32_t expert_of(const swy_moe_attrs& a, int32_t id) { return std::min(static_cast<uint32_t>(id), a.experts - 1); }

struct ExpertsWork {
  uint32_t *start, *entries;   // rows of each expert: entries[start[e] .. start[e + 1]), an entry is row * top_k + rank
  float *activation, *result;  // per entry: [width] and [hidden]
  ExpertsWork(Arena& arena, const swy_moe_attrs& a, uint64_t rows, uint64_t hidden)
      : start(arena.take<uint32_t>(a.experts + 1)),
        entries(arena.take<uint32_t>(rows * a.top_k)),
        activation(arena.take<float>(rows * a.top_k * a.width)),
        result(arena.take<float>(rows * a.top_k * hidden)) {}
};

void group_by_expert(const swy_moe_attrs& a, const int32_t* ids, uint64_t entries, const ExpertsWork& work) {
  std::fill_n(work.start, a.experts + 1, 0u);
  for (uint64_t i = 0; i < entries; ++i) ++work.start[expert_of(a, ids[i]) + 1];
  for (uint32_t e = 0; e < a.experts; ++e) work.start[e + 1] += work.start[e];
  for (uint64_t i = 0; i < entries; ++i) work.entries[work.start[expert_of(a, ids[i])]++] = static_cast<uint32_t>(i);
  for (uint32_t e = a.experts; e > 0; --e) work.start[e] = work.start[e - 1];
  work.start[0] = 0;
}

double bias_of(const std::optional<Weight>& bias, uint64_t row) { return bias ? bias->at(row) : 0.0; }

// work.activation = act(gate x, up x) of every entry: two units, with gate and up of each, at a time.
void gate_and_up(const swy::Call& call, const swy_moe_attrs& a, const float* x, const ExpertsWork& work,
                 float* row_scratch) {
  const Weight w(call, "gate_up");
  const auto bias = optional_weight(call, "gate_up_bias");
  const swy_activation_attrs act = activation_of(a);
  const uint64_t hidden = w.width(), width = a.width;
  const auto [first, last] = call.split(a.experts * width);
  uint64_t count = 1;
  for (uint64_t unit = first; unit < last; unit += count) {
    const uint64_t e = unit / width, i = unit % width, gate = e * 2 * width + i;
    count = std::min({kBlock / 2, width - i, last - unit});
    if (work.start[e] == work.start[e + 1]) continue;
    Block block;
    fill(block, 2 * count, [&](uint64_t k) { return w.row(gate + k / 2 + k % 2 * width, row_scratch + k * hidden); });
    for (uint32_t n = work.start[e]; n < work.start[e + 1]; ++n) {
      Sums sums;
      dots(block, x + work.entries[n] / a.top_k * hidden, hidden, sums);
      for (uint64_t k = 0; k < count; ++k) {
        const auto g = static_cast<float>(sums[2 * k] + bias_of(bias, gate + k));
        const auto u = static_cast<float>(sums[2 * k + 1] + bias_of(bias, gate + k + width));
        work.activation[work.entries[n] * width + i + k] = static_cast<float>(activate(act, g, u));
      }
    }
  }
}

// work.result = down of every entry's activation.
void down(const swy::Call& call, const swy_moe_attrs& a, const ExpertsWork& work, float* row_scratch, uint64_t hidden) {
  const Weight w(call, "down");
  const auto bias = optional_weight(call, "down_bias");
  const uint64_t width = a.width;
  const auto [first, last] = call.split(a.experts * hidden);
  uint64_t count = 1;
  for (uint64_t unit = first; unit < last; unit += count) {
    const uint64_t e = unit / hidden, o = unit % hidden;
    count = std::min({kBlock, hidden - o, last - unit});
    if (work.start[e] == work.start[e + 1]) continue;
    Block block;
    fill(block, count, [&](uint64_t k) { return w.row(unit + k, row_scratch + k * width); });
    for (uint32_t n = work.start[e]; n < work.start[e + 1]; ++n) {
      Sums sums;
      dots(block, work.activation + work.entries[n] * width, width, sums);
      float* result = work.result + work.entries[n] * hidden + o;
      for (uint64_t k = 0; k < count; ++k) result[k] = static_cast<float>(sums[k] + bias_of(bias, unit + k));
    }
  }
}

// y [rows, hidden] = sum over ranks of weight * (down act(gate x, up x)), with their biases.
void run_experts(const swy::Call& call, const swy_moe_attrs& a, const float* x, const int32_t* ids,
                 const float* weights, const ExpertsWork& work, float* row_scratch, float* y) {
  const uint64_t hidden = hidden_of(*call.op), rows = call.step->rows;
  if (call.rank() == 0) group_by_expert(a, ids, rows * a.top_k, work);
  call.barrier();
  gate_and_up(call, a, x, work, row_scratch);
  call.barrier();
  down(call, a, work, row_scratch, hidden);
  call.barrier();
  const auto [first, last] = call.split(rows * hidden);
  for (uint64_t i = first; i < last; ++i) {
    const uint64_t r = i / hidden, o = i % hidden;
    double sum = 0;
    for (uint32_t j = 0; j < a.top_k; ++j) {
      sum += static_cast<double>(weights[r * a.top_k + j]) * work.result[(r * a.top_k + j) * hidden + o];
    }
    y[i] = static_cast<float>(sum);
  }
}

uint64_t scratch_floats(const swy_moe_attrs& a, uint64_t hidden) {
  return kBlock * std::max<uint64_t>({hidden, a.width, a.shared_width});
}

uint64_t experts_workspace(const swy_op& op, const swy_bucket& bucket) {
  const uint64_t hidden = hidden_of(op);
  Arena arena(nullptr);
  ExpertsWork(arena, swy_moe_of(&op), bucket.rows, hidden);
  return scratch_bytes(scratch_floats(swy_moe_of(&op), hidden)) + arena.used();
}

void experts(const swy::Call& call) {
  const swy_moe_attrs a = swy_moe_of(call.op);
  const uint64_t hidden = hidden_of(*call.op), floats = scratch_floats(a, hidden);
  Arena arena(call.work<char>(scratch_bytes(floats)));
  const ExpertsWork work(arena, a, call.step->rows, hidden);
  run_experts(call, a, call.input("x"), call.input<int32_t>("expert_ids"), call.input("expert_weights"), work,
              scratch(call, floats), call.output("y"));
}

struct MoeWork {
  float* logits;
  double* choices;
  float* weights;
  int32_t* ids;
  float *shared_gate, *shared_up, *shared, *mix;
  ExpertsWork experts;
  MoeWork(Arena& arena, const swy_moe_attrs& a, uint64_t rows, uint64_t hidden)
      : logits(arena.take<float>(rows * a.experts)),
        choices(arena.take<double>(has_choices(a) ? rows * a.experts : 0)),
        weights(arena.take<float>(rows * a.top_k)),
        ids(arena.take<int32_t>(rows * a.top_k)),
        shared_gate(arena.take<float>(rows * a.shared_width)),
        shared_up(arena.take<float>(rows * a.shared_width)),
        shared(arena.take<float>(rows * hidden)),
        mix(arena.take<float>(rows)),
        experts(arena, a, rows, hidden) {}
};

uint64_t moe_workspace(const swy_op& op, const swy_bucket& bucket) {
  const uint64_t hidden = hidden_of(op);
  Arena arena(nullptr);
  MoeWork(arena, swy_moe_of(&op), bucket.rows, hidden);
  return scratch_bytes(scratch_floats(swy_moe_of(&op), hidden)) + arena.used();
}

// y += sigmoid(mix) * shared(x), with each piece rounded to fp32 as in the decomposition.
void add_shared(const swy::Call& call, const swy_moe_attrs& a, const MoeWork& work, float* row_scratch, float* y) {
  const uint32_t rows = call.step->rows;
  const float* x = call.input("x");
  const uint64_t hidden = hidden_of(*call.op), width = a.shared_width;
  const swy_activation_attrs act = activation_of(a);
  linear_rows(call, Weight(call, "shared_gate_proj"), x, rows, work.shared_gate, width, row_scratch);
  linear_rows(call, Weight(call, "shared_up_proj"), x, rows, work.shared_up, width, row_scratch);
  linear_rows(call, Weight(call, "shared_gate"), x, rows, work.mix, 1, row_scratch);
  call.barrier();
  const auto [first_act, last_act] = call.split(rows * width);
  for (uint64_t i = first_act; i < last_act; ++i) {
    work.shared_gate[i] = static_cast<float>(activate(act, work.shared_gate[i], work.shared_up[i]));
  }
  call.barrier();
  linear_rows(call, Weight(call, "shared_down_proj"), work.shared_gate, rows, work.shared, hidden, row_scratch);
  call.barrier();
  const auto [first, last] = call.split(rows * hidden);
  for (uint64_t i = first; i < last; ++i) {
    y[i] = static_cast<float>(y[i] + sigmoid(work.mix[i / hidden]) * work.shared[i]);
  }
}

void moe(const swy::Call& call) {
  const swy_moe_attrs a = swy_moe_of(call.op);
  const uint64_t hidden = hidden_of(*call.op), floats = scratch_floats(a, hidden);
  const bool injected = swy::has(*call.op, "expert_ids");
  const float* x = call.input("x");
  float* y = call.output("y");
  float* row_scratch = scratch(call, floats);
  Arena arena(call.work<char>(scratch_bytes(floats)));
  const MoeWork work(arena, a, call.step->rows, hidden);
  const int32_t* ids = injected ? call.input<int32_t>("expert_ids") : work.ids;
  const float* weights = injected ? call.input("expert_weights") : work.weights;
  if (!injected) {
    const auto bias = optional_weight(call, "router_bias");
    linear_rows(call, Weight(call, "router"), x, call.step->rows, work.logits, a.experts, row_scratch,
                bias ? &*bias : nullptr);
    call.barrier();
    route(call, a, work.logits, work.choices, work.ids, work.weights);
    call.barrier();
  }
  run_experts(call, a, x, ids, weights, work.experts, row_scratch, y);
  if (a.shared_width != 0) add_shared(call, a, work, row_scratch, y);
}

// The rows are divided as in the last phase of `moe`, so no barrier is needed between them.
void moe_add(const swy::Call& call) {
  moe(call);
  const auto [first, last] = call.split(call.step->rows * hidden_of(*call.op));
  const float* residual = call.input("residual");
  float* y = call.output("y");
  for (uint64_t i = first; i < last; ++i) y[i] += residual[i];
}

double moe_cost(const swy_op& op, const swy_bucket& bucket) {
  const swy_moe_attrs a = swy_moe_of(&op);
  const double hidden = static_cast<double>(hidden_of(op));
  return cost_of(bucket.rows * hidden * (a.experts + 3.0 * a.top_k * a.width + 3.0 * a.shared_width));
}

constexpr swy::HostKernel kernel(const char* name, uint32_t op, void (*run)(const swy::Call&),
                                 uint64_t (*workspace)(const swy_op&, const swy_bucket&)) {
  return {.name = name,
          .op = op,
          .weight_dtypes = kMatrices,
          .cost = moe_cost,
          .run = run,
          .workspace = workspace,
          .op_revision = 2};
}
constexpr swy::HostKernel kKernels[] = {
    kernel("moe.grouped", SWY_OP_MOE, moe, moe_workspace),
    kernel("moe_add.grouped", SWY_OP_MOE_ADD, moe_add, moe_workspace),
    {.name = "router_topk.plain",
     .op = SWY_OP_ROUTER_TOPK,
     .cost = generic_cost,
     .run = router_topk,
     .workspace = router_workspace,
     .op_revision = 2},
    kernel("experts.grouped", SWY_OP_EXPERTS, experts, experts_workspace),
};

}  // namespace

std::span<const swy::HostKernel> moe_kernels() { return kKernels; }

}  // namespace reference
