// SPDX-License-Identifier: Apache-2.0
#include "core/draft/draft_policy.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace switchyard {
namespace {

constexpr double kWeight = 0.125;      // of a new measurement
constexpr double kFirstRow = 0.3;      // of a plain step's time a row: a further one, until one was measured
constexpr double kFirstDraft = 0.15;   // likewise: a draft that a device computes
constexpr double kLostSteps = 1.5;     // plain steps that may be lost at first
constexpr double kLostShare = 0.005;   // and this share of the time
constexpr double kAtOnce = 0.5;        // of that, at one step with several drafts: what is lost takes long to come back
constexpr double kKeptSteps = 64;      // of the time saved, that may be lost again; and of debt
constexpr uint32_t kPlainFirst = 3;    // plain steps that are measured before any drafts; the first is often slow
constexpr uint32_t kPlainEvery = 128;  // steps with drafts until plain ones are measured again; at first fewer
constexpr double kFell = 0.7;          // of a plain step's time so far: earlier ones were disturbed
constexpr uint32_t kCheaperEvery = 64;  // steps without drafts until these are taken to cost less than was measured
constexpr double kCheaper = 0.9;        // so much: the machine may have been busy
constexpr double kCheapest = 0.5;       // the least of what was measured
constexpr double kOutlier = 4;          // times the cost so far: something else ran
constexpr double kFirstIsSlow = 0.5;    // what a draft costs, of what the first took
constexpr uint32_t kFirstDrafts = 2;    // that a device computes, before it is known what they cost

}  // namespace

void AverageTime::take(double measured) {
  if (count < 3) {
    ns = count == 0 ? measured : std::min(ns, measured);
  } else {
    ns += std::max(kWeight, 1.0 / count) * (std::min(measured, kOutlier * ns) - ns);
  }
  count = std::min(count + 1, kMost);
}

// ---- accounts

void DraftAccount::add(double ns, double saved, double plain) {
  spent_ += ns;
  balance_ += saved;
  if (plain > 0) balance_ = std::clamp(balance_, -kKeptSteps * plain, kKeptSteps * plain);
}

double DraftAccount::may_lose(double plain) const { return balance_ + kLostSteps * plain + kLostShare * spent_; }

// ---- costs

size_t DraftPolicy::count_of(uint32_t seqs) {
  if (seqs <= kExact) return std::max(seqs, 1u) - 1;
  return std::min<size_t>(kExact + static_cast<size_t>(std::bit_width(seqs - 1)) - 6, kCounts - 1);
}

size_t DraftPolicy::size_of(uint32_t rows) {
  return std::min<size_t>(std::bit_width(std::max(rows, 1u) - 1), kSizes - 1);
}

// By those measured beside it, as if each row took as long as the others; or by those measured with another number of
// sequences.
double DraftPolicy::extra_ns(uint32_t extra, uint32_t seqs, double plain) const {
  size_t size = size_of(seqs);
  for (size_t apart = 1; !measured_[size] && apart < kSizes; ++apart) {
    if (size_of(seqs) >= apart && measured_[size_of(seqs) - apart]) size = size_of(seqs) - apart;
    if (!measured_[size] && size_of(seqs) + apart < kSizes && measured_[size_of(seqs) + apart]) {
      size = size_of(seqs) + apart;
    }
  }
  if (!measured_[size]) return kFirstRow * plain * extra / seqs;
  const Extra& all = extra_[size];
  const uint32_t at = std::min(extra, kExtras);
  uint32_t less = at, more = at;
  while (less > 0 && all[less].ns == 0) --less;
  while (more <= kExtras && all[more].ns == 0) ++more;
  if (more > kExtras) return cheaper() * all[less].ns * extra / less;
  const double share = more == less ? 0 : static_cast<double>(at - less) / (more - less);
  const double ns = all[less].ns + share * (all[more].ns - all[less].ns);
  return cheaper() * ns * extra / at;
}

double DraftPolicy::cost_ns(uint32_t rows, uint32_t seqs) const {
  const double plain = plain_[count_of(seqs)].ns;
  return plain == 0 || rows <= seqs ? plain : plain + extra_ns(rows - seqs, seqs, plain);
}

const AverageTime* DraftPolicy::draft_time(uint32_t drafting) const {
  for (size_t size = size_of(drafting) + 1; size-- > 0;) {
    if (draft_[size].count > 0) return &draft_[size];
  }
  return nullptr;
}

double DraftPolicy::draft_ns(uint32_t drafting) const {
  const AverageTime* const time = draft_time(drafting);
  return time == nullptr ? 0 : cheaper() * time->ns;
}

// What drafts cost is measured only while there are some.
double DraftPolicy::cheaper() const {
  return since_drafted_ < kCheaperEvery ? 1 : std::max(std::pow(kCheaper, since_drafted_ / kCheaperEvery), kCheapest);
}

// Where a step is far faster than those before, something else ran at their time, and further rows were compared with
// a wrong one.
void DraftPolicy::measure_plain(const DraftedStep& s) {
  const size_t count = count_of(s.seqs), size = size_of(s.seqs);
  const auto took = static_cast<double>(s.ns);
  if (took < kFell * plain_[count].ns) plain_[count].ns = took, extra_[size] = {}, measured_[size] = false;
  plain_[count].take(took);
  since_plain_[count] = 0;
}

// The host may learn late which drafts a device computed, when the step that verifies them has ended, too: then nearly
// all of the time seems to be the drafts'. Then only the sum of both times is known.
bool DraftPolicy::learnt_late(const DraftedStep& s) const {
  return s.computed > 0 && s.rows > s.seqs && static_cast<double>(s.ns) < kFell * plain_[count_of(s.seqs)].ns;
}

DraftedStep DraftPolicy::stepped(DraftedStep s) {
  const size_t count = count_of(s.seqs);
  const bool plain = s.rows <= s.seqs, late = learnt_late(s);
  const double expected = cost_ns(s.rows, s.seqs), one = plain_[count].ns;
  if (late) {
    const uint64_t all = s.ns + s.drafting_ns;
    const double draft = draft_time(s.drafting) == nullptr ? kFirstDraft * one / s.seqs : draft_ns(s.drafting);
    s.drafting_ns = std::min(all, static_cast<uint64_t>(s.computed * draft));
    s.ns = all - s.drafting_ns;
  }
  const auto took = static_cast<double>(s.ns), drafting = static_cast<double>(s.drafting_ns);
  if (s.computed > 0 && !late) draft_[size_of(s.drafting)].take(drafting / s.computed);
  if (s.first) {
    const double planning = std::max(took - expected, 0.0);
    plan_ns_ = plan_ns_ == 0 ? planning : (plan_ns_ + planning) / 2;
  } else if (plain) {
    if (!cold_) measure_plain(s);
    ++since_drafted_;
  } else if (one > 0 && !late) {
    const size_t seqs = size_of(s.seqs);
    extra_[seqs][std::min(s.rows - s.seqs, kExtras)].take(std::max(took - one, 1e-3 * one));
    measured_[seqs] = true;
  }
  cold_ = false;
  if (!plain) ++since_plain_[count], since_drafted_ = 0;
  const double saved = saved_ns(s, {s.rows, s.tokens, s.asked, s.seqs}, one);
  for (DraftAccount* a : {&account_, &all_}) a->add(took + drafting, saved, one);
  return s;
}

// By a part of a step, or the whole. What its further rows and its drafts took is shared by whose they are.
double DraftPolicy::saved_ns(const DraftedStep& s, const Part& part, double plain) {
  if (plain == 0) return 0;  // nothing to compare with
  const uint32_t further = s.rows - std::min(s.rows, s.seqs);
  double saved = s.asked == 0 ? 0 : -static_cast<double>(s.drafting_ns) * part.asked / s.asked;
  if (further == 0) return saved;
  saved += plain * (part.tokens - static_cast<double>(part.seqs)) / s.seqs;
  return saved - (static_cast<double>(s.ns) - plain) * (part.rows - part.seqs) / further;
}

void DraftPolicy::settle(DraftAccount& account, const DraftedStep& s, const Part& part) const {
  const double plain = plain_[count_of(s.seqs)].ns;
  account.add(static_cast<double>(s.ns + s.drafting_ns) / s.seqs, saved_ns(s, part, plain), plain / s.seqs);
}

void DraftPolicy::followed(uint64_t ns) {
  const auto took = static_cast<double>(ns);
  all_.add(took, -took, plain_[0].ns);
}

// ---- choice

uint32_t DraftPolicy::choose(const Ask& ask, const Acceptance& acceptance, const DraftAccount& account) const {
  const AverageTime& measured = plain_[count_of(ask.seqs)];
  const double plain = measured.ns, now = cost_ns(ask.rows, ask.seqs) + ask.drafting_ns;
  const uint32_t every = measured.count < AverageTime::kMost ? 8 * measured.count : kPlainEvery;
  if (measured.count < kPlainFirst || since_plain_[count_of(ask.seqs)] > every) return 0;
  const double undrafted = cost_ns(ask.undrafted, ask.seqs);
  const double all_may_lose = account_.may_lose(plain), own_may_lose = account.may_lose(plain / ask.seqs);
  const AverageTime* const time = ask.drafting > 0 ? draft_time(ask.drafting) : nullptr;
  const bool first = ask.drafting > 0 && (time == nullptr || time->count < kFirstDrafts);  // to know what it costs
  const double draft = ask.drafting == 0 ? 0 : time == nullptr ? kFirstDraft * plain / ask.seqs : cheaper() * time->ns;
  const uint32_t proposed = first ? std::min(ask.proposed, 1u) : ask.proposed;
  double best = first ? 0 : ask.tokens / now, expected = 0, all = 1;  // all: that every draft is kept
  uint32_t chosen = 0;
  for (uint32_t k = 1; k <= proposed; ++k) {
    expected += all *= acceptance.share(k - 1);
    double cost = cost_ns(ask.rows + k, ask.seqs) + ask.drafting_ns + draft * k;
    const auto again_ns = [&](uint32_t stand) { return cost_ns(ask.seqs + stand, ask.seqs) - plain; };
    const double worst = cost + (ask.feeds_again ? again_ns(k) : 0);
    const auto may_lose = [&](double planning) {
      return worst + planning - undrafted <= all_may_lose &&
             worst + planning - now <= (k == 1 ? 1 : kAtOnce) * own_may_lose;
    };
    if (!may_lose(0)) continue;
    if (ask.feeds_again) cost += (1 - all) * again_ns(1 + static_cast<uint32_t>(expected));
    if ((ask.tokens + expected) / cost <= best) continue;
    if (ask.has_lists && !ask.has_lists(ask.rows + k) && !may_lose(plan_ns_)) continue;
    best = (ask.tokens + expected) / cost;
    chosen = k;
  }
  return chosen;
}

Acceptance& DraftPolicy::usual(std::string_view drafter, double expected) {
  const auto [found, added] = usual_.try_emplace(drafter, Acceptance::kOfAllSequences);
  if (added) found->second.start(expected);
  return found->second;
}

bool DraftPolicy::may_pay(const Acceptance& acceptance, uint32_t most) const {
  if (plain_[0].count < kPlainFirst || draft_[0].count == 0 || !measured_[0]) return true;
  const double plain = plain_[0].ns, draft = draft_ns(1) * (draft_[0].count < kFirstDrafts ? kFirstIsSlow : 1);
  for (uint32_t k = 1; k <= most; ++k) {
    if ((1 + acceptance.kept(k)) * plain > cost_ns(1 + k, 1) + draft * k) return true;
  }
  return false;
}

}  // namespace switchyard
