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

// The thresholds of top-k, then of top-p, in the same code.
__device__ Kept truncate(const TeamRow& row, float top) {
  const swy_sample_params& p = *row.r.p;
  Kept kept;
  kept.top = top;
  kept.weighs = p.top_p_q15 < SWY_TOP_P_OFF || p.min_p_q30 != 0;
  kept.least = p.min_p_q30;
#pragma unroll 1
  for (uint32_t round = 0; round < 2; ++round) {
    const bool by_weight = round == 1;
    if (by_weight ? p.top_p_q15 >= SWY_TOP_P_OFF : p.top_k <= 0) continue;
    const auto need = [&](uint64_t total) {
      return by_weight ? swy_top_p_need(&p, total) : static_cast<uint64_t>(p.top_k);
    };
    const auto rank_of = [&](uint32_t id, float z, uint32_t* rank) {
      *rank = by_weight ? kept.weight_of(z) : swy_float_key(z);
      return kept.by_key.keeps(swy_float_key(z), id);
    };
    Cut found;
    row.cut(by_weight, need, rank_of, &found);
    (by_weight ? kept.by_weight : kept.by_key) = found;
  }
  return kept;
}

// An order key of a row that cannot be sampled, above those of all logits. 0: it has no live id.
constexpr uint64_t kBadRow = ~uint64_t{0};
__device__ int status_of(uint64_t key) {
  return key == kBadRow ? SWY_SAMPLE_BAD_LOGIT : key == 0 ? SWY_SAMPLE_NO_TOKEN : SWY_SAMPLE_OK;
}

// Steps 0 to 3: the row's highest keys. Returns an order key of its highest logit, without an id.
__device__ uint64_t survey(const TeamRow& row, uint32_t* top, uint32_t* highest) {
  Team& team = row.team;
  team.wipe();
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
  return bad ? kBadRow : uint64_t{*top} << 32;
}

__device__ uint64_t* likely_of(const Draws& d, uint32_t i, const Team& team) {
  return d.likely + uint64_t{i} * team.blocks * d.top;
}

// The order keys of the n most likely ids of this block, in the model's own distribution; 0 if there are fewer.
__device__ void own_likely(const TeamRow& row, uint32_t n, uint64_t* keys) {
  uint64_t before = ~uint64_t{0};
#pragma unroll 1
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

// What becomes of a row.
struct Drawn {
  uint64_t key = 0;                // of the token
  float logprob = 0, highest = 0;  // highest, total: of the model's own distribution
  uint64_t total = 0;
};

// One thread calls this.
__device__ void tell(const Draws& d, const swy_step* step, const Draw& r, uint32_t i, const Drawn& drawn) {
  const int status = status_of(drawn.key);
  const bool ok = status == SWY_SAMPLE_OK;
  const auto token = static_cast<int32_t>(id_of(drawn.key));
  const int32_t* stops = step_array<int32_t>(step, r.slot->stop_at);
  uint32_t stopped = 0;
#pragma unroll 1
  for (uint32_t s = 0; ok && r.slot->stop_at != 0 && s < r.slot->stop_count; ++s) stopped |= stops[s] == token;
  d.results[i] = swy_sample_result{ok ? token : -1, status, drawn.logprob, stopped};
  d.tokens[r.slot->token_entry] = ok ? token : 0;
}

// One block calls this: the most likely ids of the row, from those of its blocks; none if the row cannot be sampled.
__device__ void tell_likely(const Draws& d, const TeamRow& row, uint32_t i, const Drawn& drawn) {
  const uint64_t* keys = likely_of(d, i, row.team);
  uint64_t before = status_of(drawn.key) == SWY_SAMPLE_OK ? ~uint64_t{0} : 0;
#pragma unroll 1
  for (uint32_t k = 0; k < d.top; ++k) {
    uint64_t best = 0;
#pragma unroll 1
    for (uint32_t c = threadIdx.x; c < row.team.blocks * d.top; c += kTeamThreads) {
      const uint64_t key = __ldcg(keys + c);
      if (key < before && key > best) best = key;
    }
    before = best = block_max(best, row.team.shared.scratch);
    if (threadIdx.x != 0) continue;
    const float logit = best == 0 ? 0.0f : row.logits[id_of(best)];
    d.top_ids[i * d.top + k] = best == 0 ? -1 : static_cast<int32_t>(id_of(best));
    d.top_logprobs[i * d.top + k] = best == 0 ? 0.0f : swy_logprob(logit, drawn.highest, drawn.total);
  }
}

// What the kernels before have found of a token_only row: the largest order key.
__device__ uint64_t found_before(const Draws& d, uint32_t i, uint64_t* scratch) {
  uint64_t most = 0;
#pragma unroll 1
  for (uint32_t p = threadIdx.x; p < d.parts; p += kTeamThreads) {
    const uint64_t at = uint64_t{i} * d.parts + p, key = d.bad[at] != 0 ? kBadRow : d.best[at];
    most = key > most ? key : most;
  }
  return block_max(most, scratch);
}

// One block calls this: a row whose largest key was found before.
__device__ void finish_simple(const Draws& d, const swy_step* step, const Draw& r, uint32_t i, uint64_t* scratch) {
  const Drawn drawn{.key = found_before(d, i, scratch)};
  if (threadIdx.x == 0) tell(d, step, r, i, drawn);
  if (status_of(drawn.key) == SWY_SAMPLE_OK) count(d, r, id_of(drawn.key), 0, d.vocab);
}

// A truncated row of which only the token is wanted. False: it needs thresholds.
__device__ bool draw_truncated(const Draws& d, const Draw& r, uint32_t i, Team& team, Stamps& stamps, Drawn* drawn) {
  drawn->key = found_before(d, i, team.shared.scratch);
  if (status_of(drawn->key) != SWY_SAMPLE_OK) return true;
  drawn->key = TruncatedRow(d, i, team, r, swy_scale(r.p, value_in(drawn->key)), stamps).draw();
  return drawn->key != 0;
}

// Any row. Each block also finds its most likely ids, if they are wanted.
__device__ void draw_any(const Draws& d, const TeamRow& row, uint32_t i, Drawn* drawn) {
  const Draw& r = row.r;
  Team& team = row.team;
  uint32_t top = 0, highest_key = 0;
  drawn->key = survey(row, &top, &highest_key);
  if (status_of(drawn->key) != SWY_SAMPLE_OK) return;
  const bool wants = (r.p->flags & SWY_SAMPLE_LOGPROB) != 0;
  drawn->highest = float_of_key(highest_key);
  Kept kept;
  if (r.truncated) kept = truncate(row, float_of_key(top));
  own_likely(row, d.top, likely_of(d, i, team) + team.rank * d.top);
  drawn->key = draw(row, kept, wants || d.top != 0, drawn->highest, &drawn->total);
  if (wants) drawn->logprob = swy_logprob(row.logits[id_of(drawn->key)], drawn->highest, drawn->total);
}

// A row that a whole team draws.
__device__ void finish_row(const Draws& d, const swy_step* step, const Draw& r, uint32_t i, Team& team,
                           Stamps& stamps) {
  const TeamRow row{team, r, d.logits + uint64_t{r.slot->logit_row} * d.vocab,
                    d.team_parts + uint64_t{i} * team.blocks};
  Drawn drawn;
  if (!r.token_only || !draw_truncated(d, r, i, team, stamps, &drawn)) draw_any(d, row, i, &drawn);
  if (status_of(drawn.key) == SWY_SAMPLE_OK) count(d, r, id_of(drawn.key), team.begin(), team.end());
  if (team.rank != 0) return;
  if (threadIdx.x == 0) tell(d, step, r, i, drawn);
  tell_likely(d, row, i, drawn);
}

// Rows that their largest key decides are divided among all blocks. This comes first, and few of its instructions
// come after the wait: in most steps all rows are of this kind, and the step's end waits for them.
__global__ void __launch_bounds__(kTeamThreads, 2) finish(const __grid_constant__ Draws d, const swy_step* step) {
  __shared__ TeamShared shared;
  Stamps stamps(kStampFinish);
  stamps.take_place();
  const uint32_t samples = step->sample_rows, own = blockIdx.y + blockIdx.x * gridDim.y;
  Draw r = own < samples ? draw_of(d, step, own) : Draw{};
  bool others = false;  // rows that this block's team draws
#pragma unroll 1
  for (uint32_t i = blockIdx.y + threadIdx.x % 32 * gridDim.y; i < samples; i += 32 * gridDim.y) {
    others |= !draw_of(d, step, i).simple;
  }
  others = __any_sync(kAll, others);
  depend();
  stamps.note(kWaited);
  release_next();
#pragma unroll 1
  for (uint32_t i = own; i < samples;) {
    if (r.simple) finish_simple(d, step, r, i, shared.scratch);
    i += gridDim.x * gridDim.y;
    if (i < samples) r = draw_of(d, step, i);
  }
  if (!others) return;
  Team team(d, shared);
#pragma unroll 1
  for (uint32_t i = blockIdx.y; i < samples; i += gridDim.y) {
    __syncthreads();
    if (threadIdx.x == 0) shared.draw = draw_of(d, step, i);
    __syncthreads();
    if (!shared.draw.simple) finish_row(d, step, shared.draw, i, team, stamps);
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
  if (d.top == 0) {  // else no row is one of which only the token is wanted
    d.sought = arena.take<Sought>(uint64_t{d.teams} * 2 * d.team_blocks);
    d.listed = arena.take<uint64_t>(uint64_t{d.teams} * 2 * d.team_blocks * kListed);
  }
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
  d.block_ids = ceil_div(ceil_div(vocab, 32), d.team_blocks) * 32;
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
