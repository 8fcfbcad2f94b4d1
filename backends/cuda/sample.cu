// SAMPLE: the chain of sampling_math.h, one block per row for all that a largest key does not decide.
//
// Nothing is sorted: top-k and top-p look for their thresholds by radix, 8 bits at a time, over integer keys and
// weights, so that the order in which threads come makes no difference.
#include "sampling.cuh"

namespace gpu {
namespace {

constexpr uint32_t kScanThreads = 256, kFinishThreads = 1024, kParts = 64;

// Simple rows: the largest key and whether a logit is bad, of one part of the vocabulary.
__global__ void __launch_bounds__(kScanThreads) scan(const __grid_constant__ Draws d, const swy_step* step) {
  __shared__ uint64_t scratch[32];
  depend();
  release_next();
  const uint32_t i = blockIdx.y;
  if (i >= step->sample_rows) return;
  const Draw r = draw_of(d, step, i);
  if (!r.simple) return;
  const float* logits = d.logits + uint64_t{r.slot->logit_row} * d.vocab;
  uint64_t best = 0;
  int bad = 0;
  for (uint32_t id = blockIdx.x * kScanThreads + threadIdx.x; id < d.vocab; id += gridDim.x * kScanThreads) {
    const float logit = logits[id];
    bad |= swy_is_bad_logit(logit);
    if (!is_live(r, id, logit)) continue;
    const uint64_t key = final_key(r, id, value_of(r, id, logit));
    best = key > best ? key : best;
  }
  best = block_max(best, scratch);
  bad = __syncthreads_or(bad);
  if (threadIdx.x != 0) return;
  d.best[uint64_t{i} * d.parts + blockIdx.x] = best;
  d.bad[uint64_t{i} * d.parts + blockIdx.x] = static_cast<uint32_t>(bad);
}

// One row of logits as one block of kFinishThreads sees it.
struct Vocabulary {
  const Draw& r;
  const float* logits;
  uint32_t size;
  uint64_t* histogram;  // [256], shared
  uint64_t* scratch;    // [32], shared

  template <class Body>
  __device__ void for_each_live(Body body) const {
    for (uint32_t id = threadIdx.x; id < size; id += kFinishThreads) {
      const float logit = logits[id];
      if (is_live(r, id, logit)) body(id, value_of(r, id, logit));
    }
  }

  __device__ uint64_t sum(uint64_t x) const {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(kAll, x, d);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0;
    for (uint32_t w = 0; w < kFinishThreads / 32; ++w) x += scratch[w];
    __syncthreads();
    return x;
  }

  // Where the sum of amounts, over keys in falling order, reaches `need`: the key, and what is still needed of the ids
  // with that very key. visit(add) calls add(key, amount) for every id of this thread. False: the sum of all is less.
  template <class Visit>
  __device__ bool reach(uint64_t need, Visit visit, uint32_t* key, uint64_t* rest) const {
    uint32_t prefix = 0;
    __shared__ uint32_t found;
    __shared__ uint64_t left;
    for (int shift = 24; shift >= 0; shift -= 8) {
      if (threadIdx.x < 256) histogram[threadIdx.x] = 0;
      __syncthreads();
      visit([&](uint32_t k, uint64_t amount) {
        if (shift == 24 || (k >> (shift + 8)) == prefix) {
          atomicAdd(reinterpret_cast<unsigned long long*>(histogram + ((k >> shift) & 255u)),
                    static_cast<unsigned long long>(amount));
        }
      });
      __syncthreads();
      if (threadIdx.x == 0) {
        uint32_t bin = 256;
        left = need;
        while (bin > 0 && histogram[bin - 1] < left) left -= histogram[--bin];
        found = bin;  // 0: not reached
      }
      __syncthreads();
      if (found == 0) return false;
      prefix = prefix << 8 | (found - 1);
      need = left;
      __syncthreads();
    }
    *key = prefix;
    *rest = need;
    return true;
  }
};

// Which ids steps 4 to 7 of the chain keep.
struct Kept {
  uint32_t key = 0, key_id = 0xffffffffu;        // top-k: larger keys, and of this one ids up to key_id
  uint32_t weight = 0, weight_id = 0xffffffffu;  // top-p: likewise
  uint32_t least = 0;                            // min-p
  float top = 0;
  bool weighs = false;

  __device__ bool by_key(uint32_t id, float z) const {
    const uint32_t k = swy_float_key(z);
    return k > key || (k == key && id <= key_id);
  }
  __device__ uint32_t weight_of(float z) const { return swy_weight(swy_add(z, -top)); }
  __device__ bool keeps(uint32_t id, float z) const {
    if (!by_key(id, z)) return false;
    if (!weighs) return true;
    const uint32_t w = weight_of(z);
    return (w > weight || (w == weight && id <= weight_id)) && w >= least;
  }
};

__device__ Kept truncate(const Vocabulary& v, float top) {
  const swy_sample_params& p = *v.r.p;
  Kept kept;
  kept.top = top;
  uint64_t rest = 0;
  uint32_t inverse = 0;
  if (p.top_k > 0) {
    const auto keys = [&](auto add) { v.for_each_live([&](uint32_t, float z) { add(swy_float_key(z), 1); }); };
    if (v.reach(static_cast<uint64_t>(p.top_k), keys, &kept.key, &rest)) {
      const auto ids = [&](auto add) {
        v.for_each_live([&](uint32_t id, float z) {
          if (swy_float_key(z) == kept.key) add(~id, 1);  // the lowest ids have the largest keys
        });
      };
      uint64_t none = 0;
      v.reach(rest, ids, &inverse, &none);
      kept.key_id = ~inverse;
    }
  }
  kept.weighs = p.top_p_q15 < SWY_TOP_P_OFF || p.min_p_q30 != 0;
  kept.least = p.min_p_q30;
  if (p.top_p_q15 >= SWY_TOP_P_OFF) return kept;
  uint64_t total = 0;
  v.for_each_live([&](uint32_t id, float z) { total += kept.by_key(id, z) ? kept.weight_of(z) : 0; });
  total = v.sum(total);
  const auto weights = [&](auto add) {
    v.for_each_live([&](uint32_t id, float z) {
      if (!kept.by_key(id, z)) return;
      const uint32_t w = kept.weight_of(z);
      if (w != 0) add(w, w);
    });
  };
  uint32_t weight = 0;
  v.reach(swy_top_p_need(&p, total), weights, &weight, &rest);
  const auto ids = [&](auto add) {
    v.for_each_live([&](uint32_t id, float z) {
      if (kept.by_key(id, z) && kept.weight_of(z) == weight) add(~id, 1);
    });
  };
  uint64_t none = 0;
  v.reach((rest + weight - 1) / weight, ids, &inverse, &none);
  kept.weight = weight;
  kept.weight_id = ~inverse;
  return kept;
}

// Steps 1 to 8 over a row of logits. 0: no live id.
__device__ uint64_t choose(const Vocabulary& v) {
  uint64_t best = 0;
  v.for_each_live([&](uint32_t id, float z) {
    const uint64_t key = v.r.truncated ? swy_order_key(swy_float_key(z), id) : final_key(v.r, id, z);
    best = key > best ? key : best;
  });
  best = block_max(best, v.scratch);
  if (!v.r.truncated || best == 0) return best;
  const uint32_t first = ~static_cast<uint32_t>(best);
  const Kept kept = truncate(v, value_of(v.r, first, v.logits[first]));
  best = 0;
  v.for_each_live([&](uint32_t id, float z) {
    if (!kept.keeps(id, z)) return;
    const uint64_t key = final_key(v.r, id, z);
    best = key > best ? key : best;
  });
  return block_max(best, v.scratch);
}

// The highest clamped logit, and the sum of the weights of log-probabilities.
__device__ uint64_t logprob_total(const Vocabulary& v, float* max) {
  uint64_t top = 0;
  for (uint32_t id = threadIdx.x; id < v.size; id += kFinishThreads) {
    const uint64_t key = swy_order_key(swy_float_key(swy_clamp(v.logits[id])), id);
    top = key > top ? key : top;
  }
  top = block_max(top, v.scratch);
  *max = swy_clamp(v.logits[~static_cast<uint32_t>(top)]);
  uint64_t total = 0;
  for (uint32_t id = threadIdx.x; id < v.size; id += kFinishThreads) {
    if (swy_float_bits(v.logits[id]) == SWY_BITS_NEG_INF) continue;
    total += swy_logprob_weight(swy_add(swy_clamp(v.logits[id]), -*max));
  }
  return v.sum(total);
}

// The most likely ids of the model's own distribution, one after the other.
__device__ void most_likely(const Vocabulary& v, float max, uint64_t total, uint32_t n, int32_t* ids, float* logprobs) {
  uint64_t before = ~uint64_t{0};
  for (uint32_t k = 0; k < n; ++k) {
    uint64_t best = 0;
    for (uint32_t id = threadIdx.x; before != 0 && id < v.size; id += kFinishThreads) {
      if (swy_float_bits(v.logits[id]) == SWY_BITS_NEG_INF) continue;
      const uint64_t key = swy_order_key(swy_float_key(swy_clamp(v.logits[id])), id);
      if (key < before && key > best) best = key;
    }
    best = block_max(best, v.scratch);
    before = best;
    if (threadIdx.x != 0) continue;
    const uint32_t id = ~static_cast<uint32_t>(best);
    ids[k] = best == 0 ? -1 : static_cast<int32_t>(id);
    logprobs[k] = best == 0 ? 0.0f : swy_logprob(v.logits[id], max, total);
  }
}

// Counts with the drawn token counted, from the slot read to the slot written.
__device__ void count(const Draws& d, const Draw& r, uint32_t token) {
  if (d.counts == nullptr || r.slot->counts_write_slot == SWY_NO_SLOT) return;
  uint32_t* to = d.counts + uint64_t{r.slot->counts_write_slot} * d.vocab;
  for (uint32_t id = threadIdx.x; id < d.vocab; id += kFinishThreads) {
    const uint32_t word = r.counts == nullptr ? 0u : r.counts[id];
    if (id == token) {
      to[id] = swy_count_output(word);
    } else if (to != r.counts) {
      to[id] = word;
    }
  }
}

__global__ void __launch_bounds__(kFinishThreads) finish(const __grid_constant__ Draws d, const swy_step* step) {
  __shared__ uint64_t scratch[32], histogram[256];
  depend();
  release_next();
  const uint32_t i = blockIdx.x;
  if (i >= step->sample_rows) return;
  const Draw r = draw_of(d, step, i);
  const Vocabulary v{r, d.logits + uint64_t{r.slot->logit_row} * d.vocab, d.vocab, histogram, scratch};
  uint64_t best = 0;
  int bad = 0;
  if (r.simple) {
    for (uint32_t p = threadIdx.x; p < d.parts; p += kFinishThreads) {
      const uint64_t at = uint64_t{i} * d.parts + p;
      bad |= d.bad[at] != 0;
      best = d.best[at] > best ? d.best[at] : best;
    }
    best = block_max(best, scratch);
  } else {
    for (uint32_t id = threadIdx.x; id < d.vocab; id += kFinishThreads) bad |= swy_is_bad_logit(v.logits[id]);
  }
  bad = __syncthreads_or(bad);
  if (!bad && !r.simple) best = choose(v);
  const int status = bad ? SWY_SAMPLE_BAD_LOGIT : best == 0 ? SWY_SAMPLE_NO_TOKEN : SWY_SAMPLE_OK;
  const bool ok = status == SWY_SAMPLE_OK;
  const int32_t token = ok ? static_cast<int32_t>(~static_cast<uint32_t>(best)) : -1;
  float max = 0, logprob = 0;
  const bool wants = ok && (r.p->flags & SWY_SAMPLE_LOGPROB) != 0;
  const uint64_t total = wants || (ok && d.top != 0) ? logprob_total(v, &max) : 0;
  if (wants) logprob = swy_logprob(v.logits[token], max, total);
  if (d.top != 0 && ok) most_likely(v, max, total, d.top, d.top_ids + i * d.top, d.top_logprobs + i * d.top);
  for (uint32_t k = threadIdx.x; !ok && k < d.top; k += kFinishThreads) {
    d.top_ids[i * d.top + k] = -1;
    d.top_logprobs[i * d.top + k] = 0;
  }
  if (threadIdx.x == 0) {
    const int32_t* stops = step_array<int32_t>(step, r.slot->stop_at);
    uint32_t stopped = 0;
    for (uint32_t s = 0; ok && r.slot->stop_at != 0 && s < r.slot->stop_count; ++s) stopped |= stops[s] == token;
    d.results[i] = swy_sample_result{token, status, logprob, stopped};
    d.tokens[r.slot->token_entry] = ok ? token : 0;
  }
  __syncthreads();
  if (ok) count(d, r, static_cast<uint32_t>(token));
}

uint32_t vocab_of(const swy_op& op) { return static_cast<uint32_t>(op.inputs[0]->dims[1]); }

swy_status record_sample(const Recording& r) {
  Arena arena(r.operands.workspace());
  Draws d = draws_of(r, vocab_of(r.op), kParts, arena);
  d.logits = r.operands.input(0);
  const auto rows = static_cast<uint32_t>(r.op.outputs[0]->dims[0]);
  SWY_CUDA_TRY(launch(r, scan, dim3(kParts, rows), kScanThreads, 0, d, r.list.step));
  return record_finish(r, d);
}

uint64_t workspace(const swy_device&, const swy_op& op, const swy_bucket&) {
  return op.outputs[0]->dims[0] * kParts * 12 + 512;
}

double cost(const swy_op& op, const swy_bucket&) { return cost_of(row_bytes(op), 0, 2) + 20; }

constexpr Kernel kKernels[] = {
    {"sample.radix", SWY_OP_SAMPLE, kInvariant, SWY_F32, nullptr, cost, workspace, record_sample}};

__global__ void self_check(int* same) { *same = swy_sampling_self_check(); }

}  // namespace

Draws draws_of(const Recording& r, uint32_t vocab, uint32_t parts, Arena& arena) {
  const uint64_t rows = r.op.outputs[0]->dims[0];
  Draws d{};
  d.counts = r.op.state_count == 0 ? nullptr : r.operands.state<uint32_t>(0);
  d.tokens = r.list.tokens;
  d.results = r.operands.output<swy_sample_result>(0);
  d.vocab = vocab;
  d.parts = parts;
  if (r.op.output_count == 3) {
    d.top = static_cast<uint32_t>(r.op.outputs[1]->dims[1]);
    d.top_ids = r.operands.output<int32_t>(1);
    d.top_logprobs = r.operands.output(2);
  }
  d.best = arena.take<uint64_t>(rows * parts);
  d.bad = arena.take<uint32_t>(rows * parts);
  return d;
}

swy_status record_finish(const Recording& r, const Draws& d) {
  return launch(r, finish, static_cast<uint32_t>(r.op.outputs[0]->dims[0]), kFinishThreads, 0, d, r.list.step);
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
