// SPDX-License-Identifier: Apache-2.0
// MOE for many rows, in two phases over rows that are sorted by expert:
//   1. gate and up: an expert with its rows is one job; members take jobs until none is left
//   2. down: a few panels of the output are one job, over all experts in order, so that the sums of those columns stay
//   in the member's cache and every sum is added in the same order
//
// The shared expert comes last.
#include <cmath>

#include "moe.h"

namespace cpu {
namespace {

constexpr uint32_t kJobRows = 128;      // rows of one job, and of one product
constexpr uint64_t kMostJobPanels = 8;  // panels of a job of the second phase

struct Job {
  uint32_t expert;        // == experts: the shared one
  uint32_t first, count;  // of `entries`; rows for the shared expert
};

// Rows act(gate, up) in the form that down reads.
struct HiddenRows {
  uint32_t form = kRowForms;
  RowFormat format;
  uint64_t bytes = 0;  // of a row
  uint8_t* data = nullptr;
  HiddenRows() = default;
  HiddenRows(Arena& arena, Mode mode, const swy_tensor& down, uint64_t rows, uint64_t width) {
    PanelShape s;
    if (panel_shape(down, kPanels, &s, nullptr) != SWY_OK) return;
    form = row_form(mode, s);
    if (form != kRowForms) format = row_format(form, width);
    bytes = form != kRowForms ? format.bytes : width * sizeof(float);
    data = arena.take<uint8_t>((rows + kTileGroup) * bytes);
  }
  PairRows rows(uint64_t first) const {
    const uint8_t* at = data + first * bytes;
    return {reinterpret_cast<const float*>(at), format, at};
  }
  void put(uint64_t row, const float* x, uint64_t width) const {
    if (form == kRowForms) {
      std::memcpy(data + row * bytes, x, width * sizeof(float));
    } else {
      encode_row(x, format, data + row * bytes);
    }
  }
};

// One member's scratch.
struct JobScratch {
  uint8_t* x;        // gathered rows, in their form
  float* x_exact;    // or fp32
  float* hidden;     // [kJobRows, widest]
  float* sums;       // [rows, columns of a job]
  float* bias;       // [experts]: the router's
  PairScratch pair;  // products [kJobRows, 16]
};

struct ExpertWork {
  MoeWork common;
  uint32_t* start;    // [experts + 1]
  uint32_t* entries;  // row * top_k + rank, sorted by expert
  Job* jobs;
  std::atomic<uint32_t>* counters;  // next job of phase 1, their number, next job of phase 2
  HiddenRows hidden, shared_hidden;
  uint64_t x_bytes;
  bool needs_exact, has_router_bias;
  char* scratch;
  uint64_t scratch_bytes;

  ExpertWork(Arena& arena, Mode mode, const swy_op& op, const MoeShape& s)
      : common(arena, mode, op, s),
        start(arena.take<uint32_t>(s.experts + 1)),
        entries(arena.take<uint32_t>(s.rows * s.top_k)),
        jobs(arena.take<Job>(s.experts + s.rows * s.top_k / kJobRows + s.rows / kJobRows + 2)),
        counters(arena.take<std::atomic<uint32_t>>(3)),
        hidden(arena, mode, *op.weights[down_of(op)], s.rows * s.top_k, s.width),
        x_bytes(0),
        needs_exact(forms_of(mode, op, gate_up_of(op), matrices_of(op)) >> kRowForms != 0),
        has_router_bias(swy::has(op, "router_bias")) {
    if (s.shared_width != 0)
      shared_hidden = {arena, mode, *op.weights[Moe::weight("shared_down_proj")], s.rows, s.shared_width};
    for (uint32_t form = 0; form < kRowForms; ++form) {
      x_bytes = std::max(x_bytes, kJobRows * row_format(form, s.hidden).bytes);
    }
    Arena one(nullptr);
    take(one, s);
    scratch_bytes = one.used();
    scratch = arena.take<char>(scratch_bytes * swy::team_width);
  }
  JobScratch take(Arena& arena, const MoeShape& s) const {
    return {arena.take<uint8_t>(x_bytes),
            arena.take<float>(needs_exact ? kJobRows * s.hidden : 0),
            arena.take<float>(uint64_t{kJobRows} * s.widest()),
            arena.take<float>(s.rows * kMostJobPanels * kPanelRows),
            arena.take<float>(has_router_bias ? s.experts : 0),
            PairScratch(arena, kJobRows)};
  }
  JobScratch of(uint32_t rank, const MoeShape& s) const {
    Arena arena(scratch + scratch_bytes * rank);
    return take(arena, s);
  }
};

// Rows of the whole step against the router and the shared gate; each member does its own rows.
template <Mode kMode>
void route(const swy::Call& call, const MoeShape& s, const MoePanels& w, const MoeExtras& extras,
           const ExpertWork& work) {
  const auto mine = call.split(s.rows);
  const JobScratch own = work.of(call.rank(), s);
  const PairScratch& scratch = own.pair;
  TileScope tiles;
  const auto product = [&](const Panels& m, const float* bias, float* y) {
    const uint32_t form = row_form(kMode, m.shape);
    for (uint64_t r = mine.first; r < mine.second; r += kJobRows) {
      const auto n = static_cast<uint32_t>(std::min<uint64_t>(kJobRows, mine.second - r));
      const PairRows x{call.input(AnyMoe::input("x")) + r * s.hidden, work.common.x.format(form),
                       work.common.x.row(form, r)};
      const RowPointers<float, kJobRows> to(y + r * m.shape.rows, m.shape.rows, n);
      panel_range<kMode>(m, 0, 0, m.shape.panels, x, n, tiles, scratch, {.rows = to.at, .bias = bias});
    }
  };
  if (s.shared_width != 0) product(w.mix, nullptr, work.common.mix);
  if (injected(*call.op)) return;
  product(w.router, extras.router_bias.load(0, s.experts, own.bias), work.common.logits);
  const Routing routing(call);
  for (uint64_t r = mine.first; r < mine.second; ++r) {
    routing.row(work.common.logits + r * s.experts, work.common.route + call.rank() * work.common.route_floats,
                work.common.ids + r * s.top_k, work.common.weights + r * s.top_k);
  }
}

// Entries by expert, then jobs: the shared expert's first, then the experts'.
void sort_rows(const MoeShape& s, const int32_t* ids, const ExpertWork& work) {
  const uint64_t n = s.rows * s.top_k;
  std::fill_n(work.start, s.experts + 1, 0u);
  for (uint64_t i = 0; i < n; ++i) ++work.start[s.expert_of(ids[i]) + 1];
  for (uint32_t e = 0; e < s.experts; ++e) work.start[e + 1] += work.start[e];
  for (uint64_t i = 0; i < n; ++i) work.entries[work.start[s.expert_of(ids[i])]++] = static_cast<uint32_t>(i);
  for (uint32_t e = s.experts; e > 0; --e) work.start[e] = work.start[e - 1];
  work.start[0] = 0;
  uint32_t jobs = 0;
  const auto add = [&](uint32_t expert, uint32_t first, uint32_t last) {
    for (; first < last; first += kJobRows) work.jobs[jobs++] = {expert, first, std::min(kJobRows, last - first)};
  };
  if (s.shared_width != 0) add(s.experts, 0, static_cast<uint32_t>(s.rows));
  for (uint32_t e = 0; e < s.experts; ++e) add(e, work.start[e], work.start[e + 1]);
  work.counters[0].store(0, std::memory_order_relaxed);
  work.counters[1].store(jobs, std::memory_order_relaxed);
  work.counters[2].store(0, std::memory_order_relaxed);
}

// One member's work on both phases.
template <Mode kMode>
class Jobs {
 public:
  Jobs(const swy::Call& call, const MoeShape& s, const MoePanels& w, const MoeExtras& extras, const ExpertWork& work)
      : call_(call), s_(s), w_(w), extras_(extras), work_(work), j_(work.of(call.rank(), s)) {}

  void gate_and_up() {
    const uint32_t jobs = work_.counters[1].load(std::memory_order_relaxed);
    const auto take = [&] {
      const uint32_t i = work_.counters[0].fetch_add(1, std::memory_order_relaxed);
      return i < jobs ? &work_.jobs[i] : nullptr;
    };
    for (const Job *job = take(), *next; job != nullptr; job = next) {
      next = take();  // early, so that its weights can be on their way
      one(*job, next != nullptr && shared(*next) == shared(*job) ? gate_up_pair(*next, 0) : PanelPair{});
    }
  }

  // y [rows, hidden]; `weights` [rows, top_k].
  void down(const float* weights) {
    const uint64_t panels = w_.down.shape.panels, rounds = divide(panels, call_.members() * kMostJobPanels);
    const uint64_t share = divide(panels, call_.members() * rounds);
    for (uint64_t p; (p = share * work_.counters[2].fetch_add(1, std::memory_order_relaxed)) < panels;) {
      columns(p, std::min(p + share, panels), weights);
    }
  }

 private:
  static uint64_t divide(uint64_t a, uint64_t b) { return (a + b - 1) / b; }
  bool shared(const Job& job) const { return job.expert == s_.experts; }
  uint64_t row_of(const Job& job, uint32_t i) const {
    return shared(job) ? job.first + i : work_.entries[job.first + i] / s_.top_k;
  }

  const Panels& gate_of(const Job& job) const { return shared(job) ? w_.shared_gate : w_.gate_up; }
  // Panel i of the job's gate and of its up.
  PanelPair gate_up_pair(const Job& job, uint64_t i) const {
    if (shared(job)) return {w_.shared_gate.panel(0, i), w_.shared_up.panel(0, i)};
    return {w_.gate_up.panel(2 * uint64_t{job.expert}, i), w_.gate_up.panel(2 * uint64_t{job.expert} + 1, i)};
  }

  void one(const Job& job, PanelPair after) {
    const PanelShape& s = gate_of(job).shape;
    const PairRows x = gather(job, s);
    float biases[2 * kPanelRows];
    for (uint64_t i = 0; i < s.panels; ++i) {
      panel_pair<kMode>(s, gate_up_pair(job, i), i + 1 < s.panels ? gate_up_pair(job, i + 1) : after, x, job.count,
                        tiles_, j_.pair);
      const uint32_t n = gate_of(job).rows_in(i);
      const Activation act = shared(job) ? extras_.shared_act() : extras_.act(job.expert, i * kPanelRows, n, biases);
      activate_columns(act, j_.pair.first, j_.pair.second, job.count, n, s.rows, j_.hidden + i * kPanelRows);
    }
    const HiddenRows& to = shared(job) ? work_.shared_hidden : work_.hidden;
    for (uint32_t i = 0; i < job.count; ++i) to.put(job.first + i, j_.hidden + i * s.rows, s.rows);
  }

  PairRows gather(const Job& job, const PanelShape& shape) {
    const uint32_t form = row_form(kMode, shape);
    const RowFormat& f = work_.common.x.format(form);
    for (uint32_t i = 0; i < job.count; ++i) {
      if (form == kRowForms) {
        std::memcpy(j_.x_exact + i * s_.hidden, call_.input(AnyMoe::input("x")) + row_of(job, i) * s_.hidden,
                    s_.hidden * 4);
      } else {
        std::memcpy(j_.x + i * f.bytes, work_.common.x.row(form, row_of(job, i)), f.bytes);
      }
    }
    return {j_.x_exact, f, j_.x};
  }

  // The columns of y that panels [begin, end) of down produce.
  void columns(uint64_t begin, uint64_t end, const float* weights) {
    const uint64_t stride = (end - begin) * kPanelRows;
    std::fill_n(j_.sums, s_.rows * stride, 0.0f);
    const uint64_t width = std::min(stride, s_.hidden - begin * kPanelRows);
    float biases[kMostJobPanels * kPanelRows];
    const auto product = [&](const Panels& w, uint64_t matrix, const float* bias, const HiddenRows& hidden,
                             uint64_t first, uint64_t last, PanelPair after, auto row_and_factor) {
      for (; first < last; first += kJobRows) {
        const auto m = static_cast<uint32_t>(std::min<uint64_t>(kJobRows, last - first));
        float* rows[kJobRows];
        float factors[kJobRows];
        for (uint32_t r = 0; r < m; ++r) {
          const auto [row, factor] = row_and_factor(first + r);
          rows[r] = j_.sums + row * stride;
          factors[r] = factor;
        }
        panel_range<kMode>(w, matrix, begin, end, hidden.rows(first), m, tiles_, j_.pair, {rows, rows, factors, bias},
                           first + kJobRows < last ? PanelPair{} : after);
      }
    };
    const auto next_expert = [&](uint32_t e) {
      while (e < s_.experts && work_.start[e] == work_.start[e + 1]) ++e;
      return e;
    };
    for (uint32_t e = next_expert(0), next; e < s_.experts; e = next) {
      next = next_expert(e + 1);
      const uint64_t second = std::min(begin + 1, end - 1);
      const PanelPair after =
          next == s_.experts ? PanelPair{} : PanelPair{w_.down.panel(next, begin), w_.down.panel(next, second)};
      const float* bias = extras_.down_bias(e, begin * kPanelRows, width, biases);
      product(w_.down, e, bias, work_.hidden, work_.start[e], work_.start[e + 1], after, [&](uint64_t i) {
        const uint32_t entry = work_.entries[i];
        return std::pair<uint64_t, float>{entry / s_.top_k, weights[entry]};
      });
    }
    if (s_.shared_width != 0) {
      product(w_.shared_down, 0, nullptr, work_.shared_hidden, 0, s_.rows, {}, [&](uint64_t r) {
        return std::pair<uint64_t, float>{r, 1.0f / (1.0f + std::exp(-work_.common.mix[r]))};
      });
    }
    store(begin, stride);
  }

  void store(uint64_t begin, uint64_t stride) const {
    const float* residual = residual_of(call_);
    float* y = call_.output(AnyMoe::output("y"));
    const uint64_t n = std::min(stride, s_.hidden - begin * kPanelRows);
    for (uint64_t r = 0; r < s_.rows; ++r) {
      const uint64_t at = r * s_.hidden + begin * kPanelRows;
      const float* sum = j_.sums + r * stride;
      for (uint64_t i = 0; i < n; ++i) {
        y[at + i] = residual == nullptr ? sum[i] : sum[i] + residual[at + i];
      }
    }
  }

  const swy::Call& call_;
  const MoeShape& s_;
  const MoePanels& w_;
  const MoeExtras& extras_;
  const ExpertWork& work_;
  JobScratch j_;
  TileScope tiles_;
};

}  // namespace

template <Mode kMode>
uint64_t moe_by_expert_workspace(const swy_op& op, const swy_bucket&) {
  Arena arena(nullptr);
  ExpertWork(arena, kMode, op, MoeShape(op, bucket_rows(op)));
  return arena.used();
}

template <Mode kMode>
void moe_by_expert(const swy::Call& call) {
  const swy_op& op = *call.op;
  Arena arena(call.workspace);
  const MoeShape most(op, bucket_rows(op));
  ExpertWork work(arena, kMode, op, most);
  const MoeShape s(op, call.step->rows);
  const MoePanels w(call);
  const MoeExtras extras(call);
  work.common.x.fill(call, call.input(AnyMoe::input("x")), static_cast<uint32_t>(s.rows));
  route<kMode>(call, s, w, extras, work);
  call.barrier();
  const bool routed = !injected(op);
  if (call.rank() == 0)
    sort_rows(s, routed ? work.common.ids : call.input<int32_t>(Injected::input("expert_ids")), work);
  call.barrier();
  Jobs<kMode> jobs(call, s, w, extras, work);
  jobs.gate_and_up();
  call.barrier();
  jobs.down(routed ? work.common.weights : call.input(Injected::input("expert_weights")));
}

#define CPU_MOE_BY_EXPERT(mode)                        \
  template void moe_by_expert<mode>(const swy::Call&); \
  template uint64_t moe_by_expert_workspace<mode>(const swy_op&, const swy_bucket&)
CPU_MOE_BY_EXPERT(Mode::vector);
CPU_MOE_BY_EXPERT(Mode::tiles_int8);
CPU_MOE_BY_EXPERT(Mode::tiles_wide);
CPU_MOE_BY_EXPERT(Mode::tiles_bf16);
CPU_MOE_BY_EXPERT(Mode::exact);

}  // namespace cpu
