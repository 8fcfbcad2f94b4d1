#include "core/sampling/row_sampler.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace switchyard {
namespace {

constexpr float kDead = -std::numeric_limits<float>::infinity();
constexpr uint32_t kWeightOne = 1u << 30;

uint64_t noisy_key(const swy_sample_params& p, uint64_t position, uint32_t id, float z) {
  return swy_order_key(swy_float_key(swy_add(z, swy_gumbel(p.seed, position, id))), id);
}

}  // namespace

RowSampler::RowSampler(uint32_t vocab, const RowKernels& kernels) : kernels_(kernels) {
  const size_t groups = (size_t{vocab} + kGroup - 1) / kGroup;
  z_.resize(groups * kGroup);
  ids_.resize(groups * kGroup);
  ranks_.resize(groups * kGroup);
  group_max_.resize(groups);
  scratch_.resize(groups);
  group_rank_.resize(groups);
}

int32_t RowSampler::sample(const swy_sample_params& p, const swy_sample_row_in& in, swy_sample_row_out& out) {
  out = {-1, -1, 0.0f};
  if (const int32_t status = prepare(p, in, out.id); status != SWY_SAMPLE_OK) return status;
  out.token = static_cast<int32_t>(p.inv_temperature == 0.0f ? argmax() : draw(p, in.position, truncate(p)));
  if ((p.flags & SWY_SAMPLE_LOGPROB) != 0) {
    const float max = kernels_.highest(in.logits, in.vocab);
    out.logprob = swy_logprob(in.logits[out.token], max, kernels_.logprob_total(in.logits, in.vocab, max));
  }
  return SWY_SAMPLE_OK;
}

int32_t RowSampler::prepare(const swy_sample_params& p, const swy_sample_row_in& in, int32_t& bad_id) {
  const uint64_t workspace = 0;
  if (swy_row_argument_ok(&p, &in, &workspace) == 0 || in.vocab > z_.size()) return SWY_SAMPLE_BAD_ARGUMENT;
  vocab_ = in.vocab;
  groups_ = (vocab_ + kGroup - 1) / kGroup;
  if (!kernels_.scale(p, in, z_.data(), group_max_.data())) {
    bad_id = 0;
    while (swy_is_bad_logit(in.logits[bad_id]) == 0) ++bad_id;
    return SWY_SAMPLE_BAD_LOGIT;
  }
  apply_biases(p, in);
  max_ = *std::max_element(group_max_.begin(), group_max_.begin() + groups_);
  return max_ == kDead ? SWY_SAMPLE_NO_TOKEN : SWY_SAMPLE_OK;
}

void RowSampler::apply_biases(const swy_sample_params& p, const swy_sample_row_in& in) {
  for (uint32_t i = 0; i < in.bias_count && in.biases[i].id < vocab_; ++i) {
    const uint32_t id = in.biases[i].id, group = id / kGroup;
    if (z_[id] == kDead) continue;
    z_[id] = swy_row_logit(&p, &in, id);
    const float* first = z_.data() + size_t{group} * kGroup;
    group_max_[group] = *std::max_element(first, first + kGroup);
  }
}

uint32_t RowSampler::argmax() const {
  const auto group = std::find(group_max_.begin(), group_max_.end(), max_) - group_max_.begin();
  return static_cast<uint32_t>(std::find(z_.begin() + group * kGroup, z_.end(), max_) - z_.begin());
}

// ---- truncation

bool RowSampler::truncate(const swy_sample_params& p) {
  if (p.top_k > 0 && static_cast<uint32_t>(p.top_k) < vocab_) {
    keep_top_k(static_cast<uint32_t>(p.top_k));
    truncate_list(p);
  } else if (p.top_p_q15 < SWY_TOP_P_OFF) {
    keep_top_p(p);
  } else if (p.min_p_q30 > 0) {
    keep_weights(p.min_p_q30);
  } else {
    return false;
  }
  return true;
}

// The k-th highest of the groups' maxima is reached by at least k ids.
void RowSampler::keep_top_k(uint32_t k) {
  float least = std::numeric_limits<float>::lowest();  // every live id
  if (k < groups_) {
    std::copy_n(group_max_.begin(), groups_, scratch_.begin());
    std::nth_element(scratch_.begin(), scratch_.begin() + (k - 1), scratch_.begin() + groups_, std::greater<>());
    least = std::max(least, scratch_[k - 1]);
  }
  kept_ = 0;
  for (uint32_t g = 0; g < groups_; ++g) {
    if (group_max_[g] < least) continue;
    for (uint32_t id = g * kGroup; id < (g + 1) * kGroup; ++id) {
      ids_[kept_] = id;
      ranks_[kept_] = swy_float_key(z_[id]);
      kept_ += z_[id] >= least ? 1 : 0;
    }
  }
  if (kept_ > k) cut<false>(k);
}

// Top-p and min-p over the ids that top-k kept.
void RowSampler::truncate_list(const swy_sample_params& p) {
  if (p.top_p_q15 >= SWY_TOP_P_OFF && p.min_p_q30 == 0) return;
  for (uint32_t i = 0; i < kept_; ++i) ranks_[i] = swy_weight(swy_add(z_[ids_[i]], -max_));
  if (p.top_p_q15 < SWY_TOP_P_OFF) cut<true>(swy_top_p_need(&p, rank_sum()));
  uint32_t n = 0;
  for (uint32_t i = 0; i < kept_; ++i) {
    ids_[n] = ids_[i];
    n += ranks_[i] >= p.min_p_q30 ? 1 : 0;
  }
  kept_ = n;
}

// Every id that weighs `least` (1 or more) or more. Weights never fall as z rises, so whole groups are skipped.
void RowSampler::keep_weights(uint32_t least) {
  kernels_.weights(group_max_.data(), groups_, max_, group_rank_.data());
  kept_ = 0;
  std::array<uint32_t, kGroup> weights;
  for (uint32_t g = 0; g < groups_; ++g) {
    if (group_rank_[g] < least) continue;
    kernels_.weights(z_.data() + size_t{g} * kGroup, kGroup, max_, weights.data());
    for (uint32_t j = 0; j < kGroup; ++j) {
      ids_[kept_] = g * kGroup + j;
      ranks_[kept_] = weights[j];
      kept_ += weights[j] >= least ? 1 : 0;
    }
  }
}

// The prefix is sought among the heavy ids first: they are few, and mostly enough.
void RowSampler::keep_top_p(const swy_sample_params& p) {
  const uint64_t need = swy_top_p_need(&p, kernels_.total_weight(z_.data(), group_max_.data(), groups_, max_));
  const uint32_t floor = std::max(p.min_p_q30, 1u);
  for (uint32_t shift = 10;; shift += 5) {
    const uint32_t least = std::max(floor, kWeightOne >> std::min(shift, 31u));
    keep_weights(least);
    if (rank_sum() >= need) return cut<true>(need);
    if (least == floor) return;  // the prefix reaches below min-p
  }
}

uint64_t RowSampler::rank_sum() const {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < kept_; ++i) sum += ranks_[i];
  return sum;
}

// Keeps the shortest prefix in (rank descending, id ascending) whose measure, the sum of the ranks or the number of
// ids, reaches `need`, which the whole list does. The last rank of the prefix is found digit by digit, the highest
// first.
template <bool kByWeight>
void RowSampler::cut(uint64_t need) {
  uint32_t prefix = 0, known = 0;  // the digits found, and which bits they cover
  for (const auto& [shift, bits] : {std::pair{21u, 11u}, {10u, 11u}, {0u, 10u}}) {
    const uint32_t digits = 1u << bits;
    std::fill_n(histogram_.begin(), digits, 0);
    for (uint32_t i = 0; i < kept_; ++i) {
      if ((ranks_[i] & known) == prefix) histogram_[(ranks_[i] >> shift) & (digits - 1)] += kByWeight ? ranks_[i] : 1;
    }
    uint32_t digit = digits - 1;
    while (histogram_[digit] < need) need -= histogram_[digit--];
    prefix |= digit << shift;
    known |= (digits - 1) << shift;
  }
  uint64_t ties = kByWeight ? (need + prefix - 1) / prefix : need;  // `need` is 1 or more, and so is this rank
  uint32_t n = 0;
  for (uint32_t i = 0; i < kept_; ++i) {
    const bool keep = ranks_[i] > prefix || (ranks_[i] == prefix && ties > 0);
    if (ranks_[i] == prefix && ties > 0) --ties;
    ids_[n] = ids_[i];
    ranks_[n] = ranks_[i];
    n += keep ? 1 : 0;
  }
  kept_ = n;
}

// ---- the draw

uint32_t RowSampler::draw(const swy_sample_params& p, uint64_t position, bool truncated) {
  const uint32_t likely = truncated ? ids_[0] : argmax();
  uint64_t best = noisy_key(p, position, likely, z_[likely]);
  std::array<uint32_t, kGroup> ids{};
  std::array<float, kGroup> z{};
  if (!truncated) {
    for (uint32_t g = 0; g < groups_; ++g) {
      if (swy_float_key(swy_add(group_max_[g], SWY_GUMBEL_MAX)) < best >> 32) continue;
      for (uint32_t j = 0; j < kGroup; ++j) ids[j] = g * kGroup + j;
      draw_group(p, position, ids.data(), z_.data() + size_t{g} * kGroup, best);
    }
    return swy_row_key_id(best);
  }
  for (uint32_t first = 0; first < kept_; first += kGroup) {
    const uint32_t n = std::min(kGroup, kept_ - first);
    for (uint32_t j = 0; j < kGroup; ++j) {
      ids[j] = j < n ? ids_[first + j] : 0;
      z[j] = j < n ? z_[ids[j]] : kDead;
    }
    draw_group(p, position, ids.data(), z.data(), best);
  }
  return swy_row_key_id(best);
}

void RowSampler::draw_group(const swy_sample_params& p, uint64_t position, const uint32_t* ids, const float* z,
                            uint64_t& best) {
  std::array<float, kGroup> bounds;
  const auto reaches = [&](float bound) { return swy_float_key(bound) >= best >> 32; };
  if (!reaches(kernels_.noise_bounds(p.seed, position, ids, z, bounds.data()))) return;
  for (uint32_t j = 0; j < kGroup; ++j) {
    if (reaches(bounds[j])) best = std::max(best, noisy_key(p, position, ids[j], z[j]));
  }
}

// ---- log-probabilities

void RowSampler::top_logprobs(std::span<const float> logits, std::span<int32_t> ids, std::span<float> logprobs) {
  std::fill(ids.begin(), ids.end(), -1);
  std::fill(logprobs.begin(), logprobs.end(), 0.0f);
  swy_sample_params neutral;
  swy_sample_params_init(&neutral);
  swy_sample_params_normalise(&neutral, nullptr);
  swy_sample_row_in in{};
  in.logits = logits.data();
  in.vocab = static_cast<uint32_t>(logits.size());
  int32_t bad_id = -1;
  if (ids.empty() || prepare(neutral, in, bad_id) != SWY_SAMPLE_OK) return;
  keep_top_k(static_cast<uint32_t>(ids.size()));
  const uint64_t total = kernels_.logprob_total(in.logits, in.vocab, max_);
  std::sort(ids_.begin(), ids_.begin() + kept_, [&](uint32_t a, uint32_t b) {
    return swy_order_key(swy_float_key(z_[a]), a) > swy_order_key(swy_float_key(z_[b]), b);
  });
  for (uint32_t i = 0; i < kept_; ++i) {
    ids[i] = static_cast<int32_t>(ids_[i]);
    logprobs[i] = swy_logprob(logits[ids_[i]], max_, total);
  }
}

}  // namespace switchyard
