// SPDX-License-Identifier: Apache-2.0
// Batch: drafted tokens in steps. A decoding sequence has a row for its last token and one for each drafted token.
// Every row's token is drawn as it would be without drafts: with the noise of its own position, under the mask and with
// the counts that follow from the rows before it. The rows stand up to the first whose draw differs from the draft
// after it.
//
// Paged states need nothing then: later steps write over the positions of rows that do not stand. Other states cannot
// be cut back. Where kernels have pending rows, the step leaves these states as they were, and the next one applies the
// rows that stand. Elsewhere such a step writes them to a second slot, which is dropped if not all rows stand. The rows
// that do are fed again, with the next step's own.
#include <algorithm>
#include <utility>

#include "core/engine/batch_request.h"

namespace switchyard {
namespace {

// A step that feeds more rows again has no drafts, so that the rows to feed again do not grow from step to step.
constexpr size_t kFedAgain = 8;

}  // namespace

// Drafts are for steps that read no prompt, which have work enough, and whose tokens are all known.
Batch::StepRoom Batch::room_for_decoding() const {
  StepRoom room;
  if (model_.drafts() == 0 || !order_.empty() || !flights_.empty()) return room;
  for (const auto& r : running_) {
    if (r->outcome.stopped != StopReason::none || r->paused) continue;
    ++room.seqs;
    room.decoding_rows += static_cast<uint32_t>(r->unfed().size());
  }
  room.tokens = room.seqs;
  room.drafts = model_.drafts();
  return room;
}

// How many tokens may be drafted beyond the rows of a request.
uint32_t Batch::draft_limit(const Running& r, const StepRoom& room) const {
  const uint32_t most_rows = std::min(model_.chunk(), std::max(options_.prompt_rows, room.seqs));
  const uint64_t to_draw = r.request.max_tokens - r.outcome.ids.size();  // one row draws without a draft
  const uint64_t context = model_.context() - r.session.position() - r.rows.size();
  if (model_.feeds_again() && r.rows.size() > kFedAgain) return 0;
  const uint64_t rows = most_rows - std::min(most_rows, room.decoding_rows);
  return static_cast<uint32_t>(std::min({uint64_t{room.drafts}, to_draw - 1, context, rows}));
}

// Appends drafts to the rows of a request.
void Batch::propose(Running& r, StepRoom& room) {
  if (room.drafts == 0 || r.request.drafters.empty()) return;
  const uint32_t most = draft_limit(r, room);
  r.guess.clear();
  for (r.drafter = 0; most > 0 && r.drafter < r.request.drafters.size(); ++r.drafter) {
    r.request.drafters[r.drafter]->propose(most, r.guess);
    if (!r.guess.empty()) break;
  }
  // What follows an end is never drawn.
  const std::span<const int32_t> stops = r.sampler.stop_ids();
  const auto useless = [&](int32_t id) {
    return id < 0 || static_cast<uint32_t>(id) >= model_.vocab() ||
           std::find(stops.begin(), stops.end(), id) != stops.end();
  };
  r.guess.erase(std::find_if(r.guess.begin(), r.guess.end(), useless), r.guess.end());
  if (r.guess.size() > most) r.guess.resize(most);
  if (r.guess.empty()) return;
  Acceptance& a = r.acceptance[r.drafter];
  auto n = static_cast<uint32_t>(r.guess.size());
  if (!r.request.draft_always) {
    n = policy_.choose(room.decoding_rows, room.seqs, room.tokens, n, a.share(), model_.feeds_again());
  }
  if (n == 0) return a.passed();
  r.rows.insert(r.rows.end(), r.guess.begin(), r.guess.begin() + n);
  room.drafts -= n;
  room.decoding_rows += n;
  for (double stands = a.share(); n > 0; --n, stands *= a.share()) room.tokens += stands;
}

// The masks of a request's rows that draw: each as if the drafts before it had been drawn. Rows after a draft that the
// mask before it does not allow are not looked at. Where a draft's own mask allows nothing, its token is left to the
// next step, which says why: what the mask's owner tells of drafts is forgotten when they are drawn.
void Batch::fill_masks(Running& r, const FlightPart& part) {
  std::vector<int32_t>& ids = r.outcome.ids;
  const size_t known = ids.size(), words = mask_words();
  const auto drafts = std::span(r.rows).last(part.drafts);
  ids.insert(ids.end(), drafts.begin(), drafts.end());
  r.drawable = part.drafts;
  for (uint32_t row = 0; row <= part.drafts; ++row) {
    const std::span<uint32_t> mask = std::span(r.mask).subspan(row * words, words);
    std::fill(mask.begin(), mask.end(), 0u);
    r.request.mask(std::span(ids).first(known + row), mask);
    if (model_.vocab() % 32 != 0) mask.back() &= (1u << model_.vocab() % 32) - 1;
    if (std::all_of(mask.begin(), mask.end(), [](uint32_t word) { return word == 0; })) {
      if (row > 0) {
        r.drawable = row - 1;
        break;
      }
      r.mask_fault = error(Code::usage, "no token can match {} after {} generated tokens; change it so that one can",
                           r.request.mask_name, known);
      std::fill(mask.begin(), mask.end(), UINT32_MAX);  // the row is sampled, and the result ignored
      break;
    }
    if (row == part.drafts) break;
    const auto draft = static_cast<uint32_t>(drafts[row]);
    if ((mask[draft / 32] >> draft % 32 & 1) == 0) break;
  }
  ids.resize(known);
}

// The rows that draw, one after the other, up to the first that does not draw the draft after it, or whose draft is
// left to the next step.
void Batch::finish_part(const FlightPart& part, const StepOutput& out) {
  Running& r = *part.request;  // which a callback may end, and the part forgets it then
  --r.due;
  const std::span<const int32_t> drafts =
      part.drafts == 0 ? std::span<const int32_t>() : std::span(r.rows).last(part.drafts);
  // Without drafts the step's own tokens are committed by now.
  const uint32_t first = r.session.position() + (part.drafts == 0 ? 0 : part.tokens - part.drafts);
  uint32_t accepted = 0;
  const uint32_t most = std::min(part.drafts, std::exchange(r.drawable, UINT32_MAX));
  StopReason reason = StopReason::none;
  Status fault = std::exchange(r.mask_fault, {});
  for (; fault.ok(); ++accepted) {
    const auto sampled = [&] {
      const Stretch stretch(model_.runner().observer(), "sample");
      return draw(r, {part, accepted, uint64_t{first} + accepted}, out);
    };
    const auto drawn = sampled();
    if (!drawn.ok()) {
      fault = drawn.status();
      break;
    }
    const int32_t token = drawn->token;
    reason = drew(r, *drawn, first + accepted);
    if (reason != StopReason::none || r.outcome.stopped != StopReason::none) break;
    if (accepted == most || token != drafts[accepted]) break;
  }
  if (!fault.ok()) reason = StopReason::failed;
  if (part.drafts > 0) keep_rows(r, part, accepted);
  if (reason != StopReason::none) return end(r, reason, std::move(fault));
  if (part.drafts == 0) r.session.commit();  // of the step under way that feeds this token, if there is one
}

void Batch::keep_rows(Running& r, const FlightPart& part, uint32_t accepted) {
  const bool over = r.outcome.stopped != StopReason::none;
  r.outcome.drafted += part.drafts;
  r.outcome.accepted += accepted;
  if (!over) r.acceptance[r.drafter].measured(accepted, accepted < part.drafts);
  const uint32_t stand = part.tokens - part.drafts + accepted;
  if (stand == part.tokens) return r.session.commit();
  if (model_.feeds_again()) return r.session.abandon();
  r.session.commit(stand);
}

// `first`: plans were made in this time.
void Batch::measure(const Flight& flight, uint64_t begin_ns, uint64_t drawn, bool first) {
  if (model_.drafts() == 0 || flight.reads_prompt || flight.parts.empty()) return;
  const auto seqs = static_cast<uint32_t>(flight.parts.size()), tokens = static_cast<uint32_t>(drawn);
  const uint64_t ns = Os::real().now_ns() - begin_ns;
  if (first) return policy_.stepped_first(flight.rows, seqs, tokens, ns);
  policy_.stepped(flight.rows, seqs, tokens, ns);
}

}  // namespace switchyard
