// SPDX-License-Identifier: Apache-2.0
#include "switchyard/sdk/row_sampler.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <new>

#include "row_groups.h"

namespace swy {
namespace {

constexpr uint32_t kWeightOne = 1u << 30;

float float_of_key(uint64_t key) {
  const auto bits = static_cast<uint32_t>(key);
  return swy_bits_float((bits & 0x80000000u) != 0 ? bits ^ 0x80000000u : ~bits);
}

uint32_t groups_of(uint32_t vocab) { return vocab / kGroup + (vocab % kGroup != 0 ? 1 : 0); }

}  // namespace

// ---- memory and the team

// Hands out the parts of a sampler's memory; with no base it only measures.
struct RowSampler::Memory {
  char* base;
  uint64_t used = 0;

  template <class T>
  T* take(uint64_t n) {
    T* p = base == nullptr ? nullptr : reinterpret_cast<T*>(base + used);
    used += (n * sizeof(T) + 63) / 64 * 64;
    return p;
  }
  void lay_out(RowSampler& s, uint32_t members) {
    const uint64_t groups = groups_of(s.capacity_), ids = groups * kGroup;
    s.totals_ = take<Totals>(2 * members);
    s.histograms_ = take<uint64_t>(uint64_t{2} * members * kDigits);
    s.z_ = take<float>(ids);
    s.group_max_ = take<float>(groups);
    s.scratch_ = take<float>(groups);
    s.group_rank_ = take<uint32_t>(groups);
    s.lists_ = take<uint32_t>(2 * ids);
    s.few_ = take<uint32_t>(members == 1 ? 0 : uint64_t{2} * members * kTeamList);
  }
};

uint64_t RowSampler::bytes(uint32_t vocab, uint32_t members) {
  RowSampler view(vocab, nullptr, kAlone, *row_kernels().front());
  Memory memory{nullptr};
  memory.lay_out(view, members);
  return memory.used;
}

RowSampler::RowSampler(uint32_t vocab, void* memory, const swy_team& team, const RowKernels& kernels)
    : kernels_(&kernels), team_(&team), capacity_(vocab) {
  Memory{static_cast<char*>(memory)}.lay_out(*this, team.size);
}

RowSampler::RowSampler(uint32_t vocab, const RowKernels& kernels) : RowSampler(vocab, nullptr, kAlone, kernels) {
  own_.reset(new (std::align_val_t(64)) char[bytes(vocab, 1)]);
  Memory{own_.get()}.lay_out(*this, 1);
}

void RowSampler::Free::operator()(char* p) const { ::operator delete[](p, std::align_val_t(64)); }

// Starts a row: this member's groups. A member that is still reading the row before is waited for.
bool RowSampler::begin(const swy_sample_params& p, const swy_sample_row_in& in) {
  const uint64_t workspace = 0;
  kept_ = 0;
  if (swy_row_argument_ok(&p, &in, &workspace) == 0 || in.vocab > capacity_) return false;
  if (begun_ && team_->size > 1) team_->barrier(team_);
  begun_ = true;
  vocab_ = in.vocab;
  groups_ = groups_of(vocab_);
  first_ = static_cast<uint32_t>(uint64_t{groups_} * team_->rank / team_->size);
  last_ = static_cast<uint32_t>(uint64_t{groups_} * (team_->rank + 1) / team_->size);
  ids_ = lists_ + size_t{first_} * kGroup;
  ranks_ = ids_ + size_t{groups_of(capacity_)} * kGroup;
  gathered_ = team_->size == 1;
  return true;
}

// Two turns of totals are enough: no member begins a turn while another has yet to read the turn before the last.
RowSampler::Totals RowSampler::reduce(const Totals& own) {
  Totals* turn = totals_ + size_t{turn_++ % 2} * team_->size;
  latest_ = turn;
  turn[team_->rank] = own;
  if (team_->size == 1) return own;
  team_->barrier(team_);
  Totals all;
  for (uint32_t m = 0; m < team_->size; ++m) {
    all.bad = std::min(all.bad, turn[m].bad);
    all.high = std::max(all.high, turn[m].high);
    all.least = std::max(all.least, turn[m].least);
    all.kept += turn[m].kept;
    all.sum += turn[m].sum;
    all.kept_sum += turn[m].kept_sum;
  }
  return all;
}

uint64_t RowSampler::over_members(uint64_t own) {
  if (gathered_) return own;
  Totals t;
  t.sum = own;
  return reduce(t).sum;
}

// How many ids all members keep; gathers them.
uint64_t RowSampler::collect() {
  if (gathered_) return kept_;
  Totals own;
  own.kept = kept_;
  const uint64_t all = reduce(own).kept;
  gather(all);
  return all;
}

// The members' lists, if they are short, as one list of this member's own.
void RowSampler::gather(uint64_t all) {
  if (gathered_ || all > kTeamList) return;
  uint32_t* ids = few_ + size_t{2} * kTeamList * team_->rank;
  uint32_t* ranks = ids + kTeamList;
  kept_ = 0;
  for (uint32_t m = 0; m < team_->size; ++m) {
    const auto n = static_cast<uint32_t>(latest_[m].kept);
    const uint32_t* from = lists_ + uint64_t{groups_} * m / team_->size * kGroup;
    std::copy_n(from, n, ids + kept_);
    std::copy_n(from + size_t{groups_of(capacity_)} * kGroup, n, ranks + kept_);
    kept_ += n;
  }
  ids_ = ids;
  ranks_ = ranks;
  gathered_ = true;
}

// ---- a row

int32_t RowSampler::sample(const swy_sample_params& p, const swy_sample_row_in& in, swy_sample_row_out& out) {
  out = {-1, -1, 0.0f};
  if (!begin(p, in)) return SWY_SAMPLE_BAD_ARGUMENT;
  if (row_scans(p, vocab_)) {
    if (const int32_t status = scan(p, in, out); status != SWY_SAMPLE_OK) return status;
  } else {
    const bool top_k = p.top_k > 0 && static_cast<uint32_t>(p.top_k) < vocab_;
    const int32_t status = prepare(p, in, top_k ? static_cast<uint32_t>(p.top_k) : 0, out.id);
    if (status != SWY_SAMPLE_OK) return status;
    truncate(p);
    out.token = static_cast<int32_t>(~static_cast<uint32_t>(draw(p, in.position)));
  }
  if ((p.flags & SWY_SAMPLE_LOGPROB) != 0) {
    float max = 0;
    const uint64_t total = logprob_total(in, &max);
    out.logprob = swy_logprob(in.logits[out.token], max, total);
  }
  return SWY_SAMPLE_OK;
}

int32_t RowSampler::scan(const swy_sample_params& p, const swy_sample_row_in& in, swy_sample_row_out& out) {
  RowBest best;
  scan_groups(*kernels_, p, in, first_, last_ - first_, in.logits + size_t{first_} * kGroup, best);
  Totals own;
  own.high = best.key;
  if (best.bad) own.bad = first_bad(in);
  const Totals all = reduce(own);
  if (all.bad != UINT64_MAX) {
    out.id = static_cast<int32_t>(all.bad);
    return SWY_SAMPLE_BAD_LOGIT;
  }
  if (all.high == 0) return SWY_SAMPLE_NO_TOKEN;
  out.token = static_cast<int32_t>(swy_row_key_id(all.high));
  return SWY_SAMPLE_OK;
}

std::span<const float> RowSampler::own_logits(const swy_sample_row_in& in) const {
  const size_t end = std::min<size_t>(size_t{last_} * kGroup, vocab_), begin = std::min(size_t{first_} * kGroup, end);
  return {in.logits + begin, end - begin};
}

uint64_t RowSampler::first_bad(const swy_sample_row_in& in) const {
  const auto own = own_logits(in);
  const auto bad = std::find_if(own.begin(), own.end(), [](float x) { return swy_is_bad_logit(x) != 0; });
  return uint64_t{first_} * kGroup + static_cast<uint64_t>(bad - own.begin());
}

// Steps 0 to 3 into z_ and group_max_, the row's highest z, and the z that k ids reach (0: not wanted).
int32_t RowSampler::prepare(const swy_sample_params& p, const swy_sample_row_in& in, uint32_t k, int32_t& bad_id) {
  Totals own;
  own.high = swy_float_key(kDead);
  if (!scale_groups(*kernels_, p, in, first_, last_ - first_, in.logits + size_t{first_} * kGroup,
                    z_ + size_t{first_} * kGroup, group_max_ + first_)) {
    own.bad = first_bad(in);
  } else if (first_ < last_) {
    own.high = swy_float_key(*std::max_element(group_max_ + first_, group_max_ + last_));
    own.least = swy_float_key(least_of_top(k));
  }
  const Totals all = reduce(own);
  if (all.bad != UINT64_MAX) {
    bad_id = static_cast<int32_t>(all.bad);
    return SWY_SAMPLE_BAD_LOGIT;
  }
  max_ = float_of_key(all.high);
  least_ = float_of_key(all.least);
  return max_ == kDead ? SWY_SAMPLE_NO_TOKEN : SWY_SAMPLE_OK;
}

// ---- truncation

void RowSampler::truncate(const swy_sample_params& p) {
  if (p.top_k > 0 && static_cast<uint32_t>(p.top_k) < vocab_) {
    keep_top_k(static_cast<uint32_t>(p.top_k));
    truncate_list(p);
  } else if (p.top_p_q15 < SWY_TOP_P_OFF) {
    keep_top_p(p);
  } else {
    keep_weights(p.min_p_q30);
  }
}

// The k-th highest of the maxima of this member's groups is reached by at least k ids.
float RowSampler::least_of_top(uint32_t k) {
  const float every = std::numeric_limits<float>::lowest();  // live id
  const uint32_t n = last_ - first_;
  if (k == 0 || k >= n) return every;
  float* maxima = scratch_ + first_;
  std::copy_n(group_max_ + first_, n, maxima);
  std::nth_element(maxima, maxima + (k - 1), maxima + n, std::greater<>());
  return std::max(every, maxima[k - 1]);
}

void RowSampler::keep_top_k(uint32_t k) {
  kept_ = 0;
  for (uint32_t g = first_; g < last_; ++g) {
    if (group_max_[g] < least_) continue;
    for (uint32_t id = g * kGroup; id < (g + 1) * kGroup; ++id) {
      ids_[kept_] = id;
      ranks_[kept_] = swy_float_key(z_[id]);
      kept_ += z_[id] >= least_ ? 1 : 0;
    }
  }
  if (collect() <= k) return;
  cut<false>(k);
  collect();
}

// Top-p and min-p over the ids that top-k kept.
void RowSampler::truncate_list(const swy_sample_params& p) {
  if (p.top_p_q15 >= SWY_TOP_P_OFF && p.min_p_q30 == 0) return;
  for (uint32_t i = 0; i < kept_; ++i) ranks_[i] = swy_weight(swy_add(z_[ids_[i]], -max_));
  if (p.top_p_q15 < SWY_TOP_P_OFF) cut<true>(swy_top_p_need(&p, over_members(rank_sum())));
  uint32_t n = 0;
  for (uint32_t i = 0; i < kept_; ++i) {
    ids_[n] = ids_[i];
    n += ranks_[i] >= p.min_p_q30 ? 1 : 0;
  }
  kept_ = n;
}

// Every id that weighs `least` (1 or more) or more. Weights never fall as z rises, so whole groups are skipped.
void RowSampler::keep_weights(uint32_t least) {
  kernels_->weights(group_max_ + first_, last_ - first_, max_, group_rank_ + first_);
  kept_ = 0;
  std::array<uint32_t, kGroup> weights;
  for (uint32_t g = first_; g < last_; ++g) {
    if (group_rank_[g] < least) continue;
    kernels_->weights(z_ + size_t{g} * kGroup, kGroup, max_, weights.data());
    for (uint32_t j = 0; j < kGroup; ++j) {
      ids_[kept_] = g * kGroup + j;
      ranks_[kept_] = weights[j];
      kept_ += weights[j] >= least ? 1 : 0;
    }
  }
}

// The prefix is sought among the heavy ids first: they are few, and mostly enough.
void RowSampler::keep_top_p(const swy_sample_params& p) {
  const uint32_t floor = std::max(p.min_p_q30, 1u);
  Totals own;
  own.sum = kernels_->total_weight(z_ + size_t{first_} * kGroup, group_max_ + first_, last_ - first_, max_);
  for (uint32_t shift = 10;; shift += 5) {
    const uint32_t least = std::max(floor, kWeightOne >> std::min(shift, 31u));
    keep_weights(least);
    own.kept = kept_;
    own.kept_sum = rank_sum();
    const Totals all = reduce(own);
    const uint64_t need = swy_top_p_need(&p, all.sum);
    const bool enough = all.kept_sum >= need;
    if (!enough && least != floor) continue;
    gather(all.kept);
    if (enough) cut<true>(need);  // otherwise the prefix reaches below min-p
    return;
  }
}

uint64_t RowSampler::rank_sum() const {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < kept_; ++i) sum += ranks_[i];
  return sum;
}

// One digit of the last rank of the prefix: `prefix` holds the digits found so far, and `known` the bits they cover.
// The measure of higher digits is subtracted from `need`.
template <bool kByWeight>
uint32_t RowSampler::find_digit(uint32_t shift, uint32_t bits, uint32_t prefix, uint32_t known, uint64_t& need) {
  const uint32_t digits = 1u << bits;
  uint64_t* turn = histograms_ + size_t{histogram_turn_ % 2} * team_->size * kDigits;
  uint64_t* own = turn + size_t{team_->rank} * kDigits;
  std::fill_n(own, digits, 0);
  for (uint32_t i = 0; i < kept_; ++i) {
    if ((ranks_[i] & known) == prefix) own[(ranks_[i] >> shift) & (digits - 1)] += kByWeight ? ranks_[i] : 1;
  }
  if (!gathered_) team_->barrier(team_);
  for (uint32_t digit = digits - 1;; --digit) {
    uint64_t measure = own[digit];
    for (uint32_t m = 0; !gathered_ && m < team_->size; ++m) {
      if (m != team_->rank) measure += turn[size_t{m} * kDigits + digit];
    }
    if (measure >= need) return digit;
    need -= measure;
  }
}

// Keeps the shortest prefix in (rank descending, id ascending) whose measure, the sum of the ranks or the number of
// ids, reaches `need`, which the whole list does. The last rank of the prefix is found digit by digit, the highest
// first.
template <bool kByWeight>
void RowSampler::cut(uint64_t need) {
  uint32_t prefix = 0, known = 0, digit = 0;
  for (const auto& [shift, bits] : {std::pair{21u, 11u}, {10u, 11u}, {0u, 10u}}) {
    ++histogram_turn_;
    digit = find_digit<kByWeight>(shift, bits, prefix, known, need);
    prefix |= digit << shift;
    known |= ((1u << bits) - 1) << shift;
  }
  const uint64_t each = kByWeight ? prefix : 1;  // `need` is 1 or more, and so is this rank
  uint64_t ties = (need + each - 1) / each;
  for (uint32_t m = 0; !gathered_ && m < team_->rank; ++m) {  // lower ids come first
    const uint64_t theirs = histograms_[(size_t{histogram_turn_ % 2} * team_->size + m) * kDigits + digit] / each;
    ties -= std::min(ties, theirs);
  }
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

// ---- sampling

// The best noisy key of the kept ids.
uint64_t RowSampler::draw(const swy_sample_params& p, uint64_t position) {
  uint64_t best = kept_ == 0 ? 0 : noisy_key(p, position, ids_[0], z_[ids_[0]]);
  std::array<uint32_t, kGroup> ids{};
  std::array<float, kGroup> z{};
  for (uint32_t first = 0; first < kept_; first += kGroup) {
    const uint32_t n = std::min(kGroup, kept_ - first);
    for (uint32_t j = 0; j < kGroup; ++j) {
      ids[j] = j < n ? ids_[first + j] : 0;
      z[j] = j < n ? z_[ids[j]] : kDead;
    }
    draw_group(*kernels_, p, position, ids.data(), z.data(), best);
  }
  if (gathered_) return best;
  Totals own;
  own.high = best;
  return reduce(own).high;
}

// ---- log-probabilities and candidates

// As swy_row_logprob_total.
uint64_t RowSampler::logprob_total(const swy_sample_row_in& in, float* max) {
  const auto logits = own_logits(in);
  const auto n = static_cast<uint32_t>(logits.size());
  Totals own;
  own.high = swy_float_key(kernels_->highest(logits.data(), n));
  *max = float_of_key(reduce(own).high);
  own.sum = kernels_->logprob_total(logits.data(), n, *max);
  return reduce(own).sum;
}

// By (z descending, id ascending).
void RowSampler::sort_list() {
  std::sort(ids_, ids_ + kept_, [&](uint32_t a, uint32_t b) {
    return swy_order_key(swy_float_key(z_[a]), a) > swy_order_key(swy_float_key(z_[b]), b);
  });
}

void RowSampler::top_logprobs(std::span<const float> logits, std::span<int32_t> ids, std::span<float> logprobs) {
  swy_sample_params neutral;
  swy_sample_params_init(&neutral);
  swy_sample_params_normalise(&neutral, nullptr);
  swy_sample_row_in in{};
  in.logits = logits.data();
  in.vocab = static_cast<uint32_t>(logits.size());
  const auto n = static_cast<uint32_t>(ids.size());
  int32_t bad_id = -1;
  uint64_t total = 0;
  if (n != 0 && begin(neutral, in) && prepare(neutral, in, n, bad_id) == SWY_SAMPLE_OK) {
    keep_top_k(n);
    const auto own = own_logits(in);
    Totals sums;
    sums.sum = kernels_->logprob_total(own.data(), static_cast<uint32_t>(own.size()), max_);
    total = reduce(sums).sum;
  }
  if (!leads()) return;
  sort_list();
  for (uint32_t i = 0; i < n; ++i) {
    ids[i] = i < kept_ ? static_cast<int32_t>(ids_[i]) : -1;
    logprobs[i] = i < kept_ ? swy_logprob(logits[ids_[i]], max_, total) : 0.0f;
  }
}

void RowSampler::candidates(const swy_sample_params& p, const swy_sample_row_in& in, std::span<int32_t> ids,
                            std::span<float> logits, swy_candidates_result& out) {
  const auto k = static_cast<uint32_t>(ids.size());
  swy_candidates_result r{};
  r.id = -1;
  r.status = begin(p, in) ? prepare(p, in, k, r.id) : SWY_SAMPLE_BAD_ARGUMENT;
  const bool ok = r.status == SWY_SAMPLE_OK;
  if (ok) {
    const float* z = z_ + size_t{first_} * kGroup;
    Totals own;
    own.kept = kernels_->live(z, last_ - first_);
    if (p.inv_temperature != 0.0f) own.sum = kernels_->total_weight(z, group_max_ + first_, last_ - first_, max_);
    const Totals all = reduce(own);
    r.live = static_cast<uint32_t>(all.kept);
    r.total = all.sum;
    if ((p.flags & SWY_SAMPLE_LOGPROB) != 0) r.logprob_total = logprob_total(in, &r.max_logit);
    keep_top_k(k);
  }
  if (!leads()) return;
  sort_list();
  for (uint32_t i = 0; i < k; ++i) {
    ids[i] = i < kept_ ? static_cast<int32_t>(ids_[i]) : -1;
    logits[i] = i < kept_ ? in.logits[ids_[i]] : 0.0f;
  }
  out = r;
}

}  // namespace swy
