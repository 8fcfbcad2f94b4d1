// MOE for many rows: the rows are sorted by expert, and an expert with its rows is one job. A member takes jobs until
// none is left; between an expert's gate and its down nothing leaves the member's cache. The shared expert is jobs too,
// a stretch of rows each. In the end every row sums its experts' results in order of rank.
#include <cmath>

#include "moe.h"

namespace cpu {
namespace {

constexpr uint32_t kJobRows = 64;  // rows of one job

struct Job {
  uint32_t expert;        // == experts: the shared one
  uint32_t first, count;  // of `entries`; rows for the shared expert
};

// One member's scratch.
struct JobScratch {
  uint8_t* x;        // gathered rows, in their form
  float* x_exact;    // or fp32
  float* hidden;     // [kJobRows, widest]
  uint8_t* quant;    // its rows in their form
  PairScratch pair;  // products [kJobRows, 16]
};

struct ExpertWork {
  MoeWork common;
  uint32_t* start;    // [experts + 1]
  uint32_t* entries;  // row * top_k + rank, sorted by expert
  Job* jobs;
  std::atomic<uint32_t>* counters;  // next job, number of jobs
  float* results;                   // [rows, slots, hidden]
  uint64_t x_bytes, quant_bytes;
  bool needs_exact;
  char* scratch;
  uint64_t scratch_bytes;

  ExpertWork(Arena& arena, Mode mode, const swy_op& op, const MoeShape& s)
      : common(arena, mode, op, s),
        start(arena.take<uint32_t>(s.experts + 1)),
        entries(arena.take<uint32_t>(s.rows * s.top_k)),
        jobs(arena.take<Job>(max_jobs(s))),
        counters(arena.take<std::atomic<uint32_t>>(2)),
        results(arena.take<float>(s.rows * s.slots * s.hidden)),
        x_bytes(0),
        quant_bytes(0),
        needs_exact(forms_of(mode, op, kGateUp, op.weight_count) >> kRowForms != 0) {
    for (uint32_t form = 0; form < kRowForms; ++form) {
      x_bytes = std::max(x_bytes, kJobRows * row_format(form, s.hidden).bytes);
      quant_bytes = std::max(quant_bytes, kJobRows * row_format(form, s.widest()).bytes);
    }
    Arena one(nullptr);
    take(one, s);
    scratch_bytes = one.used();
    scratch = arena.take<char>(scratch_bytes * swy::team_width);
  }
  static uint64_t max_jobs(const MoeShape& s) {
    return s.experts + s.rows * s.top_k / kJobRows + s.rows / kJobRows + 2;
  }
  JobScratch take(Arena& arena, const MoeShape& s) const {
    return {arena.take<uint8_t>(x_bytes), arena.take<float>(needs_exact ? kJobRows * s.hidden : 0),
            arena.take<float>(uint64_t{kJobRows} * s.widest()), arena.take<uint8_t>(quant_bytes),
            PairScratch(arena, kJobRows)};
  }
};

// Rows of the whole step against the router and the shared gate; each member does its own rows.
template <Mode kMode>
void route(const swy::Call& call, const MoeShape& s, const MoePanels& w, const ExpertWork& work) {
  const auto mine = call.split(s.rows);
  Arena own(work.scratch + work.scratch_bytes * call.rank());
  const PairScratch scratch = work.take(own, s).pair;
  TileScope tiles;
  const auto product = [&](const Panels& m, float* y) {
    const uint32_t form = row_form(kMode, m.shape);
    for (uint64_t r = mine.first; r < mine.second; r += kJobRows) {
      const auto n = static_cast<uint32_t>(std::min<uint64_t>(kJobRows, mine.second - r));
      const PairRows x{call.input(0) + r * s.hidden, work.common.x.format(form), work.common.x.row(form, r)};
      panel_range<kMode>(m, 0, 0, m.shape.panels, x, n, tiles, scratch, [&](uint64_t p, const float* out) {
        for (uint32_t i = 0; i < n; ++i) {
          std::memcpy(y + (r + i) * m.shape.rows + p * kPanelRows, out + i * kPanelRows, m.rows_in(p) * 4);
        }
      });
    }
  };
  if (s.shared_width != 0) product(w.mix, work.common.mix);
  if (injected(*call.op)) return;
  product(w.router, work.common.logits);
  for (uint64_t r = mine.first; r < mine.second; ++r) {
    route_row(work.common.logits + r * s.experts, s.experts, s.top_k, work.common.ids + r * s.top_k,
              work.common.weights + r * s.top_k);
  }
}

// Entries by expert, then jobs: the shared expert's first, then the experts'.
void sort_rows(const MoeShape& s, const int32_t* ids, const ExpertWork& work) {
  const uint64_t n = s.rows * s.top_k;
  std::fill_n(work.start, s.experts + 1, 0u);
  for (uint64_t i = 0; i < n; ++i) ++work.start[ids[i] + 1];
  for (uint32_t e = 0; e < s.experts; ++e) work.start[e + 1] += work.start[e];
  for (uint64_t i = 0; i < n; ++i) work.entries[work.start[ids[i]]++] = static_cast<uint32_t>(i);
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
}

// The matrices of one job.
struct JobPanels {
  const Panels &gate, &up, &down;
  uint64_t gate_matrix, up_matrix, down_matrix;
};

// One member's work on jobs.
template <Mode kMode>
class Jobs {
 public:
  Jobs(const swy::Call& call, const MoeShape& s, const MoePanels& w, const ExpertWork& work)
      : call_(call), s_(s), w_(w), work_(work), j_(scratch_of(work, s, call.rank())) {}

  void run() {
    const uint32_t jobs = work_.counters[1].load(std::memory_order_relaxed);
    for (uint32_t i; (i = work_.counters[0].fetch_add(1, std::memory_order_relaxed)) < jobs;) one(work_.jobs[i]);
  }

 private:
  static JobScratch scratch_of(const ExpertWork& work, const MoeShape& s, uint32_t rank) {
    Arena arena(work.scratch + work.scratch_bytes * rank);
    return work.take(arena, s);
  }
  bool shared(const Job& job) const { return job.expert == s_.experts; }
  uint64_t row_of(const Job& job, uint32_t i) const {
    return shared(job) ? job.first + i : work_.entries[job.first + i] / s_.top_k;
  }
  float* result_of(const Job& job, uint32_t i) const {
    if (shared(job)) return work_.results + ((job.first + i) * uint64_t{s_.slots} + s_.top_k) * s_.hidden;
    const uint64_t entry = work_.entries[job.first + i];
    return work_.results + (entry / s_.top_k * s_.slots + entry % s_.top_k) * s_.hidden;
  }

  void one(const Job& job) {
    const uint64_t e = job.expert;
    const JobPanels p = shared(job) ? JobPanels{w_.shared_gate, w_.shared_up, w_.shared_down, 0, 0, 0}
                                    : JobPanels{w_.gate_up, w_.gate_up, w_.down, 2 * e, 2 * e + 1, e};
    gather(job, p.gate.shape);
    gate_and_up(job, p);
    down(job, p);
  }

  void gather(const Job& job, const PanelShape& shape) {
    const uint32_t form = row_form(kMode, shape);
    if (form == kRowForms) {
      for (uint32_t i = 0; i < job.count; ++i) {
        std::memcpy(j_.x_exact + i * s_.hidden, call_.input(0) + row_of(job, i) * s_.hidden, s_.hidden * 4);
      }
      return;
    }
    const RowFormat& f = work_.common.x.format(form);
    for (uint32_t i = 0; i < job.count; ++i) {
      std::memcpy(j_.x + i * f.bytes, work_.common.x.row(form, row_of(job, i)), f.bytes);
    }
  }

  void gate_and_up(const Job& job, const JobPanels& p) {
    const PanelShape& s = p.gate.shape;
    const PairRows x{j_.x_exact, work_.common.x.format(row_form(kMode, s)), j_.x};
    const auto pair_at = [&](uint64_t i) {
      return i < s.panels ? PanelPair{p.gate.panel(p.gate_matrix, i), p.up.panel(p.up_matrix, i)} : PanelPair{};
    };
    for (uint64_t i = 0; i < s.panels; ++i) {
      panel_pair<kMode>(s, pair_at(i), pair_at(i + 1), x, job.count, tiles_, j_.pair);
      silu_mul_columns(j_.pair.first, j_.pair.second, job.count, p.gate.rows_in(i), s.rows, j_.hidden + i * kPanelRows);
    }
  }

  void down(const Job& job, const JobPanels& p) {
    const PanelShape& s = p.down.shape;
    const uint32_t form = row_form(kMode, s);
    const RowFormat f = form == kRowForms ? RowFormat() : row_format(form, s.width);
    for (uint32_t i = 0; form != kRowForms && i < job.count; ++i) {
      encode_row(j_.hidden + i * s.width, f, j_.quant + i * f.bytes);
    }
    panel_range<kMode>(p.down, p.down_matrix, 0, s.panels, {j_.hidden, f, j_.quant}, job.count, tiles_, j_.pair,
                       [&](uint64_t panel, const float* out) {
                         for (uint32_t i = 0; i < job.count; ++i) {
                           std::memcpy(result_of(job, i) + panel * kPanelRows, out + i * kPanelRows,
                                       p.down.rows_in(panel) * 4);
                         }
                       });
  }

  const swy::Call& call_;
  const MoeShape& s_;
  const MoePanels& w_;
  const ExpertWork& work_;
  JobScratch j_;
  TileScope tiles_;
};

// y [hidden] of this member's rows = sum over slots of share * result (+ residual).
void sum_rows(const swy::Call& call, const MoeShape& s, const ExpertWork& work, const float* weights) {
  const float* residual = residual_of(call);
  const auto [first, last] = call.split(s.rows);
  for (uint64_t r = first; r < last; ++r) {
    float shares[256];
    std::copy_n(weights + r * s.top_k, s.top_k, shares);
    if (s.shared_width != 0) shares[s.top_k] = 1.0f / (1.0f + std::exp(-work.common.mix[r]));
    const float* result = work.results + r * s.slots * s.hidden;
    float* y = call.output(0) + r * s.hidden;
    for (uint64_t i = 0; i < s.hidden; ++i) {
      float sum = 0;
      for (uint32_t j = 0; j < s.slots; ++j) sum += shares[j] * result[j * s.hidden + i];
      y[i] = residual == nullptr ? sum : sum + residual[r * s.hidden + i];
    }
  }
}

}  // namespace

template <Mode kMode>
uint64_t moe_by_expert_workspace(const swy_op& op, const swy_bucket&) {
  Arena arena(nullptr);
  ExpertWork(arena, kMode, op, MoeShape(op, op.inputs[0]->dims[0]));
  return arena.used();
}

template <Mode kMode>
void moe_by_expert(const swy::Call& call) {
  const swy_op& op = *call.op;
  Arena arena(call.workspace);
  ExpertWork work(arena, kMode, op, MoeShape(op, op.inputs[0]->dims[0]));
  const MoeShape s(op, call.step->rows);
  const MoePanels w(call);
  work.common.x.fill(call, call.input(0), static_cast<uint32_t>(s.rows));
  route<kMode>(call, s, w, work);
  call.barrier();
  const bool routed = !injected(op);
  if (call.rank() == 0) sort_rows(s, routed ? work.common.ids : call.input<int32_t>(1), work);
  call.barrier();
  Jobs<kMode>(call, s, w, work).run();
  call.barrier();
  sum_rows(call, s, work, routed ? work.common.weights : call.input(2));
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
