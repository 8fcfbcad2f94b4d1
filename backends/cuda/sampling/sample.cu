// SPDX-License-Identifier: Apache-2.0
// SAMPLE: the chain of sampling_math.h. A team of blocks samples rows that the largest key does not decide.
//
// Nothing is sorted. Most truncated rows are drawn as truncated.cuh says. For the others, top-k and top-p find their
// thresholds digit by digit over integer keys and weights.
#include <algorithm>

#include "truncated.cuh"

namespace gpu {
namespace {

constexpr uint32_t kScanThreads = 256, kScanAhead = 8, kParts = 128;

// Rows of which only the token is wanted: the largest key of one part of the vocabulary, and whether a logit is bad.
// Logits are read several at a time; where the largest logit decides, the others are not examined.
__global__ void __launch_bounds__(kScanThreads) scan(const __grid_constant__ Draws d, const swy_step* step) {
  __shared__ uint64_t scratch[32];
  depend();
  release_next();
  const uint32_t i = blockIdx.y;
  if (i >= step->sample_rows) return;
  const Draw r = searched(draw_of(d, step, i));
  if (!r.token_only) return;
  const float* logits = d.logits + uint64_t{r.slot->logit_row} * d.vocab;
  const bool largest = largest_decides(r);
  const uint32_t apart = gridDim.x * kScanThreads;
  Best best;
  float top = -INFINITY;
  for (uint32_t first = blockIdx.x * kScanThreads + threadIdx.x; first < d.vocab; first += kScanAhead * apart) {
    float x[kScanAhead];
    uint32_t near = 0;
#pragma unroll
    for (uint32_t k = 0; k < kScanAhead; ++k)
      x[k] = first + k * apart < d.vocab ? logits[first + k * apart] : -INFINITY;
#pragma unroll
    for (uint32_t k = 0; k < kScanAhead; ++k) top = fmaxf(top, x[k]);
    const float bound = largest ? bound_of(top) : -INFINITY;
#pragma unroll
    for (uint32_t k = 0; k < kScanAhead; ++k) {
      if (first + k * apart < d.vocab && !(x[k] < bound)) near |= 1u << k;
    }
#pragma unroll 1
    for (; near != 0; near &= near - 1) {
      const uint32_t id = first + (__ffs(near) - 1) * apart;
      best.look(r, id, logits[id]);
    }
  }
  best.give(d, uint64_t{i} * d.parts + blockIdx.x, scratch);
}

// Which of a block's own ids steps 4 to 7 of the chain keep.
struct Kept {
  Cut by_key, by_weight;  // top-k, top-p
  uint32_t least = 0;     // min-p
  float top = 0;
  bool weighs = false;

  __device__ uint32_t weight_of(float z) const { return swy_weight(swy_add(z, -top)); }
  __device__ bool keeps(uint32_t id, float z) const {
    if (!by_key.keeps(swy_float_key(z), id)) return false;
    if (!weighs) return true;
    const uint32_t w = weight_of(z);
    return by_weight.keeps(w, id) && w >= least;
  }
};

__device__ Kept truncate(const TeamRow& row, float top) {
  const swy_sample_params& p = *row.r.p;
  Kept kept;
  kept.top = top;
  kept.weighs = p.top_p_q15 < SWY_TOP_P_OFF || p.min_p_q30 != 0;
  kept.least = p.min_p_q30;
  if (p.top_k > 0) {
    const auto need = [&](uint64_t) { return static_cast<uint64_t>(p.top_k); };
    const auto key = [](uint32_t, float z, uint32_t* rank) {
      *rank = swy_float_key(z);
      return true;
    };
    row.cut<false>(need, key, &kept.by_key);
  }
  if (p.top_p_q15 < SWY_TOP_P_OFF) {
    const auto need = [&](uint64_t total) { return swy_top_p_need(&p, total); };
    const auto weight = [&](uint32_t id, float z, uint32_t* rank) {
      *rank = kept.weight_of(z);
      return kept.by_key.keeps(swy_float_key(z), id);
    };
    row.cut<true>(need, weight, &kept.by_weight);
  }
  return kept;
}

// Steps 0 to 3: the row's highest keys, or why sampling fails.
__device__ int survey(const TeamRow& row, uint32_t* top, uint32_t* highest) {
  Team& team = row.team;
  uint32_t t = 0, h = 0;
  int bad = 0;
  team.for_each(row.logits, [&](uint32_t id, float logit) {
    bad |= swy_is_bad_logit(logit);
    h = max(h, swy_float_key(swy_clamp(logit)));
    if (is_live(row.r, id, logit)) t = max(t, swy_float_key(value_of(row.r, id, logit)));
  });
  t = static_cast<uint32_t>(block_max(t, team.shared.scratch));
  h = static_cast<uint32_t>(block_max(h, team.shared.scratch));
  bad = __syncthreads_or(bad);
  if (threadIdx.x == 0) {
    TeamPart& part = row.parts[team.rank];
    part.top = t, part.highest = h, part.bad = static_cast<uint32_t>(bad);
  }
  team.barrier();
  const bool reads = threadIdx.x < team.blocks;
  const TeamPart* part = row.parts + threadIdx.x;
  bad = __syncthreads_or(reads && __ldcg(&part->bad) != 0);
  *top = static_cast<uint32_t>(block_max(reads ? __ldcg(&part->top) : 0, team.shared.scratch));
  *highest = static_cast<uint32_t>(block_max(reads ? __ldcg(&part->highest) : 0, team.shared.scratch));
  return bad ? SWY_SAMPLE_BAD_LOGIT : *top == 0 ? SWY_SAMPLE_NO_TOKEN : SWY_SAMPLE_OK;
}

// The order keys of the n most likely ids of this block, in the model's own distribution; 0 if there are fewer.
__device__ void own_likely(const TeamRow& row, uint32_t n, uint64_t* keys) {
  uint64_t before = ~uint64_t{0};
  for (uint32_t k = 0; k < n; ++k) {
    uint64_t best = 0;
    row.team.for_each(row.logits, [&](uint32_t id, float logit) {
      if (swy_float_bits(logit) == SWY_BITS_NEG_INF) return;
      const uint64_t key = swy_order_key(swy_float_key(swy_clamp(logit)), id);
      if (key < before && key > best) best = key;
    });
    before = block_max(best, row.team.shared.scratch);
    if (threadIdx.x == 0) keys[k] = before;
  }
}

// The most likely ids of the row, from those of its blocks.
__device__ void most_likely(const TeamRow& row, const uint64_t* keys, float highest, uint64_t total, uint32_t n,
                            int32_t* ids, float* logprobs) {
  uint64_t before = ~uint64_t{0};
  for (uint32_t k = 0; k < n; ++k) {
    uint64_t best = 0;
    for (uint32_t c = threadIdx.x; c < row.team.blocks * n; c += kTeamThreads) {
      const uint64_t key = __ldcg(keys + c);
      if (key < before && key > best) best = key;
    }
    before = best = block_max(best, row.team.shared.scratch);
    if (threadIdx.x != 0) continue;
    const uint32_t id = ~static_cast<uint32_t>(best);
    ids[k] = best == 0 ? -1 : static_cast<int32_t>(id);
    logprobs[k] = best == 0 ? 0.0f : swy_logprob(row.logits[id], highest, total);
  }
}

// Step 8, and the sums for log-probabilities: the best order key and the sum of the weights.
__device__ uint64_t draw(const TeamRow& row, const Kept& kept, bool totals, float highest, uint64_t* total) {
  Team& team = row.team;
  const Draw& r = row.r;
  uint64_t best = 0, sum = 0;
  team.for_each(row.logits, [&](uint32_t id, float logit) {
    if (swy_float_bits(logit) == SWY_BITS_NEG_INF) return;
    if (totals) sum += swy_logprob_weight(swy_add(swy_clamp(logit), -highest));
    if (!is_live(r, id, logit)) return;
    const float z = value_of(r, id, logit);
    if (r.truncated && !kept.keeps(id, z)) return;
    const uint64_t key = final_key(r, id, z);
    best = key > best ? key : best;
  });
  best = block_max(best, team.shared.scratch);
  if (totals) sum = block_total(sum, team.shared.scratch);
  if (threadIdx.x == 0) row.parts[team.rank].best = best, row.parts[team.rank].total = sum;
  team.barrier();
  const bool reads = threadIdx.x < team.blocks;
  if (totals) *total = block_total(reads ? __ldcg(&row.parts[threadIdx.x].total) : 0, team.shared.scratch);
  return block_max(reads ? __ldcg(&row.parts[threadIdx.x].best) : 0, team.shared.scratch);
}

// Copies counts from the slot read to the slot written, with the sampled token counted; for some ids.
__device__ void count(const Draws& d, const Draw& r, uint32_t token, uint32_t begin, uint32_t end) {
  if (d.counts == nullptr || r.slot->counts_write_slot == SWY_NO_SLOT) return;
  uint32_t* to = d.counts + uint64_t{r.slot->counts_write_slot} * d.vocab;
  for (uint32_t id = begin + threadIdx.x; id < end; id += kTeamThreads) {
    const uint32_t word = r.counts == nullptr ? 0u : r.counts[id];
    if (id == token) {
      to[id] = swy_count_output(word);
    } else if (to != r.counts) {
      to[id] = word;
    }
  }
}

// One thread calls this.
__device__ void tell(const Draws& d, const swy_step* step, const Draw& r, uint32_t i, int status, int32_t token,
                     float logprob) {
  const bool ok = status == SWY_SAMPLE_OK;
  const int32_t* stops = step_array<int32_t>(step, r.slot->stop_at);
  uint32_t stopped = 0;
  for (uint32_t s = 0; ok && r.slot->stop_at != 0 && s < r.slot->stop_count; ++s) stopped |= stops[s] == token;
  d.results[i] = swy_sample_result{ok ? token : -1, status, logprob, stopped};
  d.tokens[r.slot->token_entry] = ok ? token : 0;
}

// What the kernels before have found of a token_only row; returns its status.
__device__ int found_before(const Draws& d, uint32_t i, uint64_t* best, uint64_t* scratch) {
  uint64_t most = 0;
  int bad = 0;
  for (uint32_t p = threadIdx.x; p < d.parts; p += kTeamThreads) {
    const uint64_t at = uint64_t{i} * d.parts + p;
    bad |= d.bad[at] != 0;
    most = d.best[at] > most ? d.best[at] : most;
  }
  *best = block_max(most, scratch);
  bad = __syncthreads_or(bad);
  return bad ? SWY_SAMPLE_BAD_LOGIT : *best == 0 ? SWY_SAMPLE_NO_TOKEN : SWY_SAMPLE_OK;
}

// One block calls this: a row whose largest key was found before.
__device__ void finish_simple(const Draws& d, const swy_step* step, const Draw& r, uint32_t i, uint64_t* scratch) {
  uint64_t best = 0;
  const int status = found_before(d, i, &best, scratch);
  const uint32_t token = id_of(best);
  if (threadIdx.x == 0) tell(d, step, r, i, status, static_cast<int32_t>(token), 0.0f);
  if (status == SWY_SAMPLE_OK) count(d, r, token, 0, d.vocab);
}

__device__ TeamRow team_row(const Draws& d, const Draw& r, uint32_t i, Team& team) {
  return {team, r, d.logits + uint64_t{r.slot->logit_row} * d.vocab, d.team_parts + uint64_t{i} * team.blocks};
}

// A truncated row of which only the token is wanted. False: it needs thresholds.
__device__ bool finish_truncated(const Draws& d, const swy_step* step, const Draw& r, uint32_t i, Team& team,
                                 Stamps& stamps) {
  uint64_t best = 0;
  const uint64_t first = uint64_t{i} * d.parts, exchange = blockIdx.y * 2 * uint64_t{team.blocks};
  const int status = found_before(d, i, &best, team.shared.scratch);
  if (status != SWY_SAMPLE_OK) {
    if (team.rank == 0 && threadIdx.x == 0) tell(d, step, r, i, status, -1, 0.0f);
    return true;
  }
  const RowPlace place{d.logits + uint64_t{r.slot->logit_row} * d.vocab,
                       d.vocab,
                       d.parts,
                       d.best + first,
                       d.sought + exchange,
                       d.listed + exchange * kListed};
  const uint64_t drawn = TruncatedRow(place, team, r, swy_scale(r.p, value_in(best)), stamps).draw();
  if (drawn == 0) return false;
  if (team.rank == 0 && threadIdx.x == 0) tell(d, step, r, i, status, static_cast<int32_t>(id_of(drawn)), 0.0f);
  count(d, r, id_of(drawn), team.begin, team.end);
  return true;
}

__device__ void finish_row(const Draws& d, const swy_step* step, const Draw& r, uint32_t i, Team& team) {
  const TeamRow row = team_row(d, r, i, team);
  uint32_t top = 0, highest_key = 0;
  const int status = survey(row, &top, &highest_key);
  if (status != SWY_SAMPLE_OK) {
    if (team.rank != 0) return;
    if (threadIdx.x == 0) tell(d, step, r, i, status, -1, 0.0f);
    for (uint32_t k = threadIdx.x; k < d.top; k += kTeamThreads) {
      d.top_ids[i * d.top + k] = -1;
      d.top_logprobs[i * d.top + k] = 0;
    }
    return;
  }
  const bool wants = (r.p->flags & SWY_SAMPLE_LOGPROB) != 0;
  const float highest = float_of_key(highest_key);
  uint64_t* likely = d.likely + uint64_t{i} * team.blocks * d.top;
  Kept kept;
  if (r.truncated) kept = truncate(row, float_of_key(top));
  own_likely(row, d.top, likely + team.rank * d.top);
  uint64_t total = 0;
  const uint64_t best = draw(row, kept, wants || d.top != 0, highest, &total);
  const uint32_t token = ~static_cast<uint32_t>(best);
  count(d, r, token, team.begin, team.end);
  if (team.rank != 0) return;
  const float logprob = wants ? swy_logprob(row.logits[token], highest, total) : 0.0f;
  if (threadIdx.x == 0) tell(d, step, r, i, status, static_cast<int32_t>(token), logprob);
  most_likely(row, likely, highest, total, d.top, d.top_ids + i * d.top, d.top_logprobs + i * d.top);
}

__global__ void __launch_bounds__(kTeamThreads, 2) finish(const __grid_constant__ Draws d, const swy_step* step) {
  __shared__ TeamShared shared;
  Stamps stamps(kStampFinish);
  stamps.take_place();
  const uint32_t samples = step->sample_rows;
  const Draw first = blockIdx.y < samples ? draw_of(d, step, blockIdx.y) : Draw{};
  depend();
  stamps.note(kWaited);
  release_next();
  Team team(d, shared);
  for (uint32_t i = blockIdx.y; i < samples; i += gridDim.y) {
    const Draw r = i == blockIdx.y ? first : draw_of(d, step, i);
    if (!r.simple) {
      if (!r.token_only || !finish_truncated(d, step, r, i, team, stamps)) finish_row(d, step, r, i, team);
    } else if (i / gridDim.y % gridDim.x == blockIdx.x) {
      finish_simple(d, step, r, i, shared.scratch);
    }
  }
}

uint32_t vocab_of(const swy_op& op) { return static_cast<uint32_t>(swy::tensor(op, "logits").dims[1]); }

swy_status record_sample(const Recording& r) {
  Arena arena(r.operands.workspace());
  Draws d = draws_of(r, vocab_of(r.op), kParts, arena);
  d.logits = r.operands.input("logits");
  const auto rows = static_cast<uint32_t>(swy::tensor(r.op, "result").dims[0]);
  SWY_CUDA_TRY(launch(r, scan, dim3(kParts, rows), kScanThreads, 0, d, r.list.step));
  return record_finish(r, d);
}

uint64_t workspace(const swy_device& device, const swy_op& op, const swy_bucket&) {
  return draws_bytes(device, op, kParts);
}

double cost(const swy_device& device, const swy_op& op, const swy_bucket&) {
  return cost_of(device, row_bytes(op), 0, 2) + 20;
}

constexpr Kernel kKernels[] = {
    {"sample.radix", SWY_OP_SAMPLE, kInvariant, SWY_F32, nullptr, cost, workspace, record_sample}};

// Many blocks for few rows, fewer for each of many rows; together no more than the device runs at once.
void form_teams(const swy_device& device, uint32_t rows, Draws& d) {
  const auto processors = static_cast<uint32_t>(device.processors);
  d.team_blocks = 64;
  while (d.team_blocks > 8 && d.team_blocks * rows > 128) d.team_blocks /= 2;
  while (d.team_blocks > processors) d.team_blocks /= 2;
  d.teams = std::clamp(processors / d.team_blocks, 1u, std::max(rows, 1u));
}

Draws laid_out(const swy_device& device, const swy_op& op, uint32_t parts, Arena& arena) {
  const uint64_t rows = swy::tensor(op, "result").dims[0];
  Draws d{};
  form_teams(device, static_cast<uint32_t>(rows), d);
  d.parts = parts;
  if (op.id == SWY_OP_TOP_CANDIDATES) {
    d.top = static_cast<const swy_top_candidates_attrs*>(op.attrs)->k;
  } else if (swy::has(op, "likely_ids")) {
    d.top = static_cast<uint32_t>(swy::tensor(op, "likely_ids").dims[1]);
  }
  d.best = arena.take<uint64_t>(rows * parts);
  d.bad = arena.take<uint32_t>(rows * parts);
  d.histograms = arena.take<uint64_t>(uint64_t{d.teams} * 3 * kDigits);
  d.team_parts = arena.take<TeamPart>(rows * d.team_blocks);
  d.likely = arena.take<uint64_t>(rows * d.team_blocks * d.top);
  d.sought = arena.take<Sought>(uint64_t{d.teams} * 2 * d.team_blocks);
  d.listed = arena.take<uint64_t>(uint64_t{d.teams} * 2 * d.team_blocks * kListed);
  return d;
}

__global__ void self_check(int* same) { *same = swy_sampling_self_check(); }

}  // namespace

Draws draws_of(const Recording& r, uint32_t vocab, uint32_t parts, Arena& arena) {
  Draws d = laid_out(r.device(), r.op, parts, arena);
  d.counts = r.operands.state<uint32_t>("counts");
  d.tokens = r.list.tokens;
  d.results = r.operands.output<swy_sample_result>("result");
  d.vocab = vocab;
  if (swy::has(r.op, "likely_ids")) {
    d.top_ids = r.operands.output<int32_t>("likely_ids");
    d.top_logprobs = r.operands.output("likely_logprobs");
  }
  return d;
}

uint64_t draws_bytes(const swy_device& device, const swy_op& op, uint32_t parts) {
  Arena arena(nullptr);
  laid_out(device, op, parts, arena);
  return arena.used();
}

swy_status record_finish(const Recording& r, const Draws& draws) {
  Draws d = draws;
  d.barriers = take_counters(r.list, d.teams, r.error);
  if (d.barriers == nullptr) return SWY_UNSUPPORTED;
  const uint32_t memory = d.teams == 1 ? 0 : alone_memory(r.device());
  return launch(r.with(FastMemory::shared), finish, dim3(d.team_blocks, d.teams), kTeamThreads, memory, d, r.list.step);
}

swy_status check_sampling(const swy_device& device, swy_error* error) {
  int *result = nullptr, same = 0;
  SWY_CUDA_TRY(check(cudaMalloc(reinterpret_cast<void**>(&result), sizeof(int)), "allocating", error));
  self_check<<<1, 1, 0, device.stream>>>(result);
  cudaError_t e = cudaMemcpyAsync(&same, result, sizeof(int), cudaMemcpyDeviceToHost, device.stream);
  if (e == cudaSuccess) e = cudaStreamSynchronize(device.stream);
  cudaFree(result);
  SWY_CUDA_TRY(check(e, "checking the sampler's arithmetic", error));
  if (same != 0) return SWY_OK;
  return swy::fail(error, SWY_INTERNAL, SWY_REASON_NONE, "the sampler's arithmetic has other bits than the host's");
}

std::span<const Kernel> sample_kernels() { return kKernels; }

}  // namespace gpu
