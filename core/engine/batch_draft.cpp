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

// Steps without a guess that a request without its drafter counts as.
constexpr uint32_t kPassedByARequest = 50;

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
  room.undrafted_rows = room.decoding_rows;
  room.drafts = model_.drafts();
  return room;
}

// How many tokens may be drafted beyond the rows of a request.
uint32_t Batch::draft_limit(const Running& r, const StepRoom& room) const {
  const uint32_t most_rows = std::min(model_.chunk(), std::max(options_.prompt_rows, room.seqs));
  const uint64_t to_draw = r.request.max_tokens - r.outcome.ids.size();  // one row draws without a draft
  const size_t unfed = r.unfed().size();
  const uint64_t context = model_.context() - r.session.position() - unfed;
  if (model_.feeds_again() && unfed > kFedAgain) return 0;
  const uint64_t rows = most_rows - std::min(most_rows, room.decoding_rows);
  return static_cast<uint32_t>(std::min({uint64_t{room.drafts}, to_draw - 1, context, rows}));
}

// The drafts of every sequence that decodes in this step. Those that a device computes come last, all at once.
Status Batch::draft(StepRoom& room) {
  computed_.clear(), faded_.clear();
  for (const auto& r : running_) {
    r->drafts = r->masks = r->drew = r->asked = 0;
    r->guesses->clear();
    const bool decodes = r->outcome.stopped == StopReason::none && !r->paused && !r->reads_prompt();
    if (room.drafts > 0 && decodes && !r->request.drafters.empty()) ask_drafters(*r, room);
  }
  drafting_ns_ = reading_ns_ = following_ns_ = computed_drafts_ = asked_drafts_ = guesses_ = 0;
  return computed_.empty() ? Status() : compute_drafts();
}

// Asks the drafters in turn until one has guesses, or would compute some.
void Batch::ask_drafters(Running& r, StepRoom& room) {
  const uint32_t most = draft_limit(r, room);
  if (most == 0) return;
  uint32_t proposed = 0;
  bool computes = false;
  for (r.drafter = 0; r.drafter < r.request.drafters.size(); ++r.drafter) {
    Drafter& d = *r.request.drafters[r.drafter];
    computes = d.computes();
    if (computes) {
      proposed = d.can_propose() ? std::min(most, d.most_drafts()) : 0;
    } else if (Status s = d.propose(most, *r.guesses); !s.ok()) {
      return end(r, StopReason::failed, std::move(s));
    } else {
      r.guesses->end(most);
      proposed = static_cast<uint32_t>(r.guesses->ids().size());
    }
    if (proposed > 0) break;
  }
  if (proposed == 0) return;
  r.drafts = r.request.draft_always ? proposed : drafts_that_pay(r, room, proposed, computes);
  if (r.drafts == 0) {
    r.passed_in = steps_;
    passed(r, r.drafter);
    return stop_following(r);
  }
  if (computes) {
    computed_.push_back(&r);
    room.drafting_ns += r.drafts * model_.draft_policy().draft_ns(++room.drafting);
  }
  room.drafts -= r.drafts;
  room.decoding_rows += r.drafts;
  room.tokens += r.records[r.drafter].own.kept(r.drafts);
}

// A guess of the drafter was not worth it. What is known of all sequences fades once a step.
void Batch::passed(Running& r, size_t drafter) {
  Running::Record& record = r.records[drafter];
  record.own.passed();
  if (std::find(faded_.begin(), faded_.end(), record.usual) != faded_.end()) return;
  faded_.push_back(record.usual);
  record.usual->passed();
}

// Lists are looked for as if every sequence were sampled like this one.
DraftPolicy::Ask Batch::ask_for(const Running& r, const StepRoom& room, uint32_t proposed, bool computes) const {
  const SamplingPath path = draws_each_row(r) ? r.outcome.path.path : SamplingPath::logits;
  const uint32_t wants = want_of(path, r.sampler.top_logprobs() > 0);
  return {.rows = room.decoding_rows,
          .seqs = room.seqs,
          .undrafted = room.undrafted_rows,
          .tokens = room.tokens,
          .drafting_ns = room.drafting_ns,
          .proposed = proposed,
          .drafting = computes ? room.drafting + 1 : 0,
          .feeds_again = model_.feeds_again(),
          .has_lists = [this, wants, seqs = room.seqs](uint32_t rows) {
            const StepCounts step{.rows = rows,
                                  .seqs = seqs,
                                  .logit_rows = rows,
                                  .sample_rows = wants == kWantLogits ? 0 : rows,
                                  .context = model_.context()};
            return model_.runner().has_lists(step, wants);
          }};
}

uint32_t Batch::drafts_that_pay(const Running& r, const StepRoom& room, uint32_t proposed, bool computes) const {
  return model_.draft_policy().choose(ask_for(r, room, proposed, computes), r.records[r.drafter].own, r.account);
}

// Of drafters that compute, those whose guesses were measured not to pay. They are tried again after some requests,
// since texts differ and machines are busy at times; but not before the time is made up for that the last try took.
void Batch::drop_what_cannot_pay(Request& request) const {
  if (request.draft_always) return;
  DraftPolicy& policy = model_.draft_policy();
  std::erase_if(request.drafters, [&](const auto& d) {
    if (!d->computes() || (request.shares_states && d->wants_hidden())) return false;
    if (!policy.may_follow()) return true;
    Acceptance& usual = policy.usual(d->name(), d->expected_acceptance());
    if (policy.may_pay(usual, std::min(d->most_drafts(), model_.drafts()))) return false;
    usual.passed(kPassedByARequest);
    return true;
  });
}

// The drafter that was asked last follows its text at a cost. Where its guesses do not pay, the text goes on without
// it. No step is under way then, so that each has it from its beginning to its end or not at all.
void Batch::stop_following(Running& r) const {
  if (r.request.shares_states) return;
  const Drafter& d = *r.request.drafters[r.drafter];
  const uint32_t most = std::min(d.most_drafts(), model_.drafts());
  if (!d.wants_hidden() || model_.draft_policy().may_pay(r.records[r.drafter].own, most)) return;
  r.request.drafters.erase(r.request.drafters.begin() + static_cast<ptrdiff_t>(r.drafter));
  r.records.erase(r.records.begin() + static_cast<ptrdiff_t>(r.drafter));
  r.drafter = 0;
}

// Whether a request's next tokens may be guessed, and are worth computing.
bool Batch::may_draft_next(Running& r) {
  for (size_t i = 0; i < r.request.drafters.size(); ++i) {
    const Drafter& d = *r.request.drafters[i];
    if (!d.may_propose_after(r.due)) continue;
    if (r.request.draft_always) return true;
    StepRoom room;
    room.seqs = room.decoding_rows = room.undrafted_rows = static_cast<uint32_t>(running_.size());
    room.tokens = room.seqs;
    const DraftPolicy::Ask ask = ask_for(r, room, model_.drafts(), d.computes());
    if (model_.draft_policy().choose(ask, r.records[i].own, r.account) > 0) return true;
    if (r.passed_in + 1 != steps_) passed(r, i);  // else as the step under way was planned
  }
  return false;
}

Status Batch::compute_drafts() {
  const Stretch stretch(model_.runner().observer(), "draft");
  const uint64_t begin = draft_begin_ns_ = Os::real().now_ns();
  const auto drafter = [](const Running& r) -> Drafter& { return *r.request.drafters[r.drafter]; };
  for (Running* r : computed_) drafter(*r).will_propose(r->drafts, *r->guesses);
  for (Running* r : computed_) {
    Status proposed = drafter(*r).propose(r->drafts, *r->guesses);
    reading_ns_ += drafter(*r).reading_ns();
    r->guesses->end(r->drafts);
    r->asked = std::exchange(r->drafts, static_cast<uint32_t>(r->guesses->ids().size()));
    asked_drafts_ += r->asked;
    computed_drafts_ += r->drafts;
    if (r->drafts == 0) passed(*r, r->drafter);
    if (!proposed.ok()) end(*r, StopReason::failed, std::move(proposed));
  }
  if (guesses_ > 0) {
    SWY_TRY(model_.runner().read_ids(model_.runner().guess_entries(), guesses_));
  }
  drafting_ns_ = Os::real().now_ns() - begin;
  reading_ns_ = std::min(reading_ns_, drafting_ns_);
  drafting_ns_ -= reading_ns_;
  return {};
}

// The mask of the row after `drafts`, as if these had been drawn.
void Batch::make_mask(Running& r, std::span<const int32_t> drafts) const {
  std::vector<int32_t>& ids = r.outcome.ids;
  const size_t known = ids.size();
  ids.insert(ids.end(), drafts.begin(), drafts.end());
  const std::span<uint32_t> mask = std::span(r.mask).subspan(drafts.size() * mask_words(), mask_words());
  std::fill(mask.begin(), mask.end(), 0u);
  r.request.mask(ids, mask);
  if (model_.vocab() % 32 != 0) mask.back() &= (1u << model_.vocab() % 32) - 1;
  ids.resize(known);
  r.masks = static_cast<uint32_t>(drafts.size()) + 1;
}

// The masks of a request's rows that draw: each as if the drafts before it had been drawn. Rows after a draft that the
// mask before it does not allow are not looked at. Where a draft's own mask allows nothing, its token is left to the
// next step, which says why: what the mask's owner tells of drafts is forgotten when they are drawn.
void Batch::fill_masks(Running& r, const FlightPart& part) {
  const size_t words = mask_words();
  const auto drafts = std::span(r.rows).last(part.drafts);
  r.drawable = part.drafts;
  for (uint32_t row = 0; row <= part.drafts; ++row) {
    if (row >= r.masks) make_mask(r, drafts.first(row));  // else it was made for the draft
    const std::span<uint32_t> mask = std::span(r.mask).subspan(row * words, words);
    if (std::all_of(mask.begin(), mask.end(), [](uint32_t word) { return word == 0; })) {
      if (row > 0) {
        r.drawable = row - 1;
        break;
      }
      r.mask_fault = error(Code::usage, "no token can match {} after {} generated tokens; change it so that one can",
                           r.request.mask_name, r.outcome.ids.size());
      std::fill(mask.begin(), mask.end(), UINT32_MAX);  // the row is sampled, and the result ignored
      break;
    }
    if (row == part.drafts) break;
    const auto draft = static_cast<uint32_t>(drafts[row]);
    if ((mask[draft / 32] >> draft % 32 & 1) == 0) break;
  }
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
  if (part.drafts > 0) {
    keep_rows(r, part, accepted);
    Status given = give_hidden(r, part, part.tokens - part.drafts + accepted);
    if (!given.ok() && reason == StopReason::none) reason = StopReason::failed, fault = std::move(given);
  }
  if (reason != StopReason::none) return end(r, reason, std::move(fault));
  if (part.drafts == 0) r.session.commit();  // of the step under way that feeds this token, if there is one
}

void Batch::keep_rows(Running& r, const FlightPart& part, uint32_t accepted) {
  const bool over = r.outcome.stopped != StopReason::none;
  r.outcome.drafts.add(part.drafts, accepted);
  if (!over) r.records[r.drafter].measured(accepted, accepted < part.drafts);
  const uint32_t stand = part.tokens - part.drafts + accepted;
  if (stand == part.tokens) return r.session.commit();
  if (model_.feeds_again()) return r.session.abandon();
  r.session.commit(stand);
}

// All hidden rows of a step that has ended, if they are not there yet: a drafter that gets those of one part may use
// their memory on the device.
Status Batch::read_hidden(const Flight& flight) {
  const auto wants = [](const FlightPart& p) { return p.request != nullptr && p.request->wants_hidden(); };
  if (hidden_there_ || std::none_of(flight.parts.begin(), flight.parts.end(), wants)) return {};
  const uint64_t begin = Os::real().now_ns();
  hidden_.resize(size_t{flight.rows} * model_.hidden_width());
  SWY_TRY(model_.read_hidden(0, hidden_));
  following_ns_ += Os::real().now_ns() - begin;
  return {};
}

// The hidden rows of a part that stand, for the drafters that want them.
Status Batch::give_hidden(Running& r, const FlightPart& part, uint32_t stand) {
  if (!r.wants_hidden()) return {};
  const uint64_t begin = Os::real().now_ns();
  const size_t width = model_.hidden_width();
  std::span<const float> rows = hidden_;
  if (hidden_there_) {
    SWY_LET(rows, model_.hidden_of_last());
  }
  rows = rows.subspan(part.first_row * width, stand * width);
  for (const auto& d : r.request.drafters) {
    if (d->wants_hidden()) SWY_TRY(d->saw_hidden(part.position, part.ids.first(stand), rows));
  }
  following_ns_ += Os::real().now_ns() - begin;
  return {};
}

// `first`: plans were made in this time.
void Batch::measure(const Flight& flight, uint64_t begin_ns, uint64_t drawn, bool first) {
  if (model_.drafts() == 0) return;
  DraftPolicy& policy = model_.draft_policy();
  policy.followed(following_ns_ + reading_ns_);
  if (flight.reads_prompt) policy.read_prompt();
  if (flight.reads_prompt || flight.parts.empty()) return;
  const DraftedStep step{.rows = flight.rows,
                         .seqs = static_cast<uint32_t>(flight.parts.size()),
                         .tokens = static_cast<uint32_t>(drawn),
                         .ns = Os::real().now_ns() - begin_ns - drafting_ns_ - reading_ns_ - following_ns_,
                         .computed = computed_drafts_,
                         .drafting_ns = drafting_ns_,
                         .drafting = static_cast<uint32_t>(computed_.size()),
                         .asked = asked_drafts_,
                         .first = first};
  const DraftedStep counted = policy.stepped(step);
  for (const FlightPart& p : flight.parts) {
    if (p.request == nullptr) continue;
    Running& r = *p.request;
    policy.settle(r.account, counted, {.rows = p.tokens, .tokens = r.drew, .asked = r.asked});
  }
}

}  // namespace switchyard
