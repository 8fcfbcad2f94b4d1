// SPDX-License-Identifier: Apache-2.0
// TOP_CANDIDATES: the k best ids of a row after steps 0 to 3 of sampling_math.h, and the other values that sampling
// needs.
//
// A team of blocks (sampling_team.cuh) finds the k-th best digit by digit and gathers the ids from there on. Its first
// block orders them by counting for each how many are better.
#include "sampling_team.cuh"

namespace gpu {
namespace {

struct Candidates {
  Draws d;  // likely: [sample rows, team_blocks * k], the gathered order keys
  uint32_t k;
  uint32_t* gathered;  // [sample rows]: how many; zero between kernels
  int32_t* ids;        // [sample rows, k]
  float* logits;       // [sample rows, k]
  swy_candidates_result* results;
};

// Results for the whole row, known to every thread of the team.
struct Survey {
  uint32_t top, highest;  // the largest key of an adjusted logit, and of a clamped one
  uint32_t bad;           // the first id with a bad logit; UINT32_MAX: none
  uint64_t live;
};

__device__ inline uint32_t block_least(uint32_t x, uint64_t* scratch) {
  return ~static_cast<uint32_t>(block_max(~x, scratch));
}

__device__ Survey survey(const TeamRow& row) {
  Team& team = row.team;
  team.wipe();
  Survey own{0, 0, UINT32_MAX, 0};
  team.for_each(row.logits, [&](uint32_t id, float logit) {
    if (swy_is_bad_logit(logit)) own.bad = min(own.bad, id);
    own.highest = max(own.highest, swy_float_key(swy_clamp(logit)));
    if (!is_live(row.r, id, logit)) return;
    own.top = max(own.top, swy_float_key(value_of(row.r, id, logit)));
    ++own.live;
  });
  uint64_t* scratch = team.shared.scratch;
  own.top = static_cast<uint32_t>(block_max(own.top, scratch));
  own.highest = static_cast<uint32_t>(block_max(own.highest, scratch));
  own.bad = block_least(own.bad, scratch);
  own.live = block_total(own.live, scratch);
  TeamPart* parts = row.parts;
  if (threadIdx.x == 0) {
    TeamPart& part = parts[team.rank];
    part.top = own.top, part.highest = own.highest, part.bad = own.bad, part.best = own.live;
  }
  team.barrier();
  const bool reads = threadIdx.x < team.blocks;
  const TeamPart* part = parts + threadIdx.x;
  Survey all;
  all.top = static_cast<uint32_t>(block_max(reads ? __ldcg(&part->top) : 0, scratch));
  all.highest = static_cast<uint32_t>(block_max(reads ? __ldcg(&part->highest) : 0, scratch));
  all.bad = block_least(reads ? __ldcg(&part->bad) : UINT32_MAX, scratch);
  all.live = block_total(reads ? __ldcg(&part->best) : 0, scratch);
  return all;
}

// The sums of weights that sampling and its log-probability need, if they are wanted.
__device__ void weigh(const TeamRow& row, const Survey& s, bool wants, uint64_t* total, uint64_t* logprob_total) {
  const float top = float_of_key(s.top), highest = float_of_key(s.highest);
  uint64_t sum = 0, log_sum = 0;
  row.team.for_each(row.logits, [&](uint32_t id, float logit) {
    if (swy_float_bits(logit) == SWY_BITS_NEG_INF) return;
    if (wants) log_sum += swy_logprob_weight(swy_add(swy_clamp(logit), -highest));
    if (!row.r.greedy && is_live(row.r, id, logit)) sum += swy_weight(swy_add(value_of(row.r, id, logit), -top));
  });
  *total = block_total(sum, row.team.shared.scratch);
  *logprob_total = block_total(log_sum, row.team.shared.scratch);
}

// One block calls this: writes the n gathered keys in order.
__device__ void order(const Candidates& c, const float* logits, const uint64_t* keys, uint32_t n, uint32_t i) {
  int32_t* ids = c.ids + uint64_t{i} * c.k;
  float* out = c.logits + uint64_t{i} * c.k;
  for (uint32_t a = threadIdx.x; a < c.k; a += kTeamThreads) {
    if (a >= n) {
      ids[a] = -1, out[a] = 0;
      continue;
    }
    const uint64_t mine = __ldcg(keys + a);
    uint32_t better = 0;
    for (uint32_t b = 0; b < n; ++b) better += __ldcg(keys + b) > mine ? 1 : 0;
    const uint32_t id = id_of(mine);
    ids[better] = static_cast<int32_t>(id);
    out[better] = logits[id];
  }
}

__device__ void find_row(const Candidates& c, const Draw& r, uint32_t i, Team& team) {
  const TeamRow row{team, r, c.d.logits + uint64_t{r.slot->logit_row} * c.d.vocab,
                    c.d.team_parts + uint64_t{i} * team.blocks};
  uint64_t* keys = c.d.likely + uint64_t{i} * team.blocks * c.k;
  const bool wants = (r.p->flags & SWY_SAMPLE_LOGPROB) != 0;
  const Survey s = survey(row);
  swy_candidates_result result{};
  result.id = s.bad == UINT32_MAX ? -1 : static_cast<int32_t>(s.bad);
  result.status = s.bad != UINT32_MAX ? SWY_SAMPLE_BAD_LOGIT : s.live == 0 ? SWY_SAMPLE_NO_TOKEN : SWY_SAMPLE_OK;
  const bool ok = result.status == SWY_SAMPLE_OK;
  if (ok) {
    Cut kept;
    const auto key = [](uint32_t, float z, uint32_t* rank) {
      *rank = swy_float_key(z);
      return true;
    };
    row.cut(
        false, [&](uint64_t) { return uint64_t{c.k}; }, key, &kept);
    row.for_each_live([&](uint32_t id, float z) {
      if (!kept.keeps(swy_float_key(z), id)) return;
      const uint32_t at = atomicAdd(c.gathered + i, 1u);
      if (at < c.k) keys[at] = swy_order_key(swy_float_key(z), id);
    });
    uint64_t total = 0, logprob_total = 0;
    weigh(row, s, wants, &total, &logprob_total);
    if (threadIdx.x == 0) row.parts[team.rank].total = total, row.parts[team.rank].ties[1] = logprob_total;
    team.barrier();
    if (team.rank != 0) return;
    const bool reads = threadIdx.x < team.blocks;
    result.live = static_cast<uint32_t>(s.live);
    result.total = block_total(reads ? __ldcg(&row.parts[threadIdx.x].total) : 0, team.shared.scratch);
    result.logprob_total = block_total(reads ? __ldcg(&row.parts[threadIdx.x].ties[1]) : 0, team.shared.scratch);
    result.max_logit = wants ? float_of_key(s.highest) : 0.0f;
  }
  if (team.rank != 0) return;
  order(c, row.logits, keys, ok ? static_cast<uint32_t>(min(s.live, uint64_t{c.k})) : 0, i);
  if (threadIdx.x != 0) return;
  c.results[i] = result;
  c.gathered[i] = 0;
}

__global__ void __launch_bounds__(kTeamThreads, 1)
    candidates(const __grid_constant__ Candidates c, const swy_step* step) {
  __shared__ TeamShared shared;
  depend();
  release_next();
  Team team(c.d, shared);
  for (uint32_t i = blockIdx.y; i < step->sample_rows; i += gridDim.y) {
    find_row(c, draw_of(c.d, step, i), i, team);
    team.barrier();  // the parts of this row have been read
  }
}

uint32_t vocab_of(const swy_op& op) { return static_cast<uint32_t>(swy::tensor(op, "logits").dims[1]); }
uint32_t k_of(const swy_op& op) { return static_cast<const swy_top_candidates_attrs*>(op.attrs)->k; }

swy_status record(const Recording& r) {
  Arena arena(r.operands.workspace());
  const auto rows = static_cast<uint32_t>(swy::tensor(r.op, "ids").dims[0]);
  Candidates c{};
  c.d = draws_of(r, vocab_of(r.op), 1, arena);
  c.d.logits = r.operands.input("logits");
  c.k = k_of(r.op);
  c.ids = r.operands.output<int32_t>("ids");
  c.logits = r.operands.output("best");
  c.results = r.operands.output<swy_candidates_result>("result");
  c.d.barriers = take_counters(r.list, c.d.teams + rows, r.error);
  if (c.d.barriers == nullptr) return SWY_UNSUPPORTED;
  c.gathered = c.d.barriers + c.d.teams;
  return launch(r, candidates, dim3(c.d.team_blocks, c.d.teams), kTeamThreads, 0, c, r.list.step);
}

swy_status supports(const swy_device&, const swy_op& op, const swy_bucket&, swy_error* error) {
  if (k_of(op) != 0 && k_of(op) <= kMostCandidates) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "lists %u candidates; 1 to %u are possible", k_of(op),
                   kMostCandidates);
}

uint64_t workspace(const swy_device& device, const swy_op& op, const swy_bucket&) { return draws_bytes(device, op, 1); }

double cost(const swy_device& device, const swy_op& op, const swy_bucket&) {
  return cost_of(device, 6 * row_bytes(op), 0) + 30;
}

constexpr Kernel kKernels[] = {
    {"top_candidates.radix", SWY_OP_TOP_CANDIDATES, kInvariant, SWY_F32, supports, cost, workspace, record}};

}  // namespace

std::span<const Kernel> candidates_kernels() { return kKernels; }

}  // namespace gpu
