// SPDX-License-Identifier: Apache-2.0
// Batch: one step, from the choice of its rows to the tokens that came of it. See batch_draft.cpp for drafted rows.
#include <algorithm>
#include <utility>

#include "core/engine/batch_request.h"
#include "core/plugin/call.h"

namespace switchyard {
namespace {

constexpr uint32_t kHiddenAtOnce = 64;  // hidden rows that come with a step's tokens; more are read when it has ended

}  // namespace

// The next step can be submitted ahead if every token that it feeds is known, or sampled by the device. A sequence
// whose next tokens may be guessed waits until it is known what follows.
bool Batch::may_run_ahead() {
  if (!options_.run_ahead || !model_.runner().runs_ahead()) return false;
  const auto drafted = [](const FlightPart& p) { return p.drafts > 0; };
  for (const Flight* f : flights_) {
    if (std::any_of(f->parts.begin(), f->parts.end(), drafted)) return false;
  }
  return std::all_of(running_.begin(), running_.end(), [this](const auto& r) {
    if (r->wants_hidden()) return false;  // the newest step's rows are read
    return r->due == 0 || (r->outcome.path.path == SamplingPath::fused && !r->request.mask && !may_draft_next(*r));
  });
}

// Whether a device that samples draws every row of a step with drafts. The masks of rows after the first follow from
// the drafts, as do the counts for penalties: with either the host draws, one row after the other.
bool Batch::draws_each_row(const Running& r) { return !r.request.mask && r.sampler.counts().empty(); }

// Finds memory for a decoding step of the request's rows; without drafts, where there is too little.
Status Batch::prepare_rows(Running& r, bool blind, uint32_t& drafts) {
  const auto rows = static_cast<uint32_t>(r.rows.size());
  if (drafts > 0) {
    if (r.session.prepare(rows, model_.feeds_again()).ok()) return {};
    r.rows.resize(rows - drafts);
    drafts = 0;
  }
  return r.session.prepare(static_cast<uint32_t>(r.rows.size()), blind);
}

// Rows of a request in this step; false: it has none.
bool Batch::add_to_step(Running& r, Flight& flight, StepRoom& room) {
  if (r.outcome.stopped != StopReason::none) return false;  // ended in this very call, and not swept yet
  if (r.paused) return false;
  const bool prompt = r.reads_prompt(), blind = !prompt && r.due > 0;
  uint32_t n = 0, drafts = 0;
  if (prompt) {
    n = model_.part(r.session.position(), r.until_cut(), std::min(model_.chunk() - room.rows, room.prompt_rows));
  } else if (r.drawn() >= r.request.max_tokens || r.session.position() >= model_.context()) {
    return false;  // the step in flight decides how it ends
  } else {
    const auto unfed = r.unfed();
    r.rows.assign(unfed.begin(), unfed.end());
    if (blind) r.rows.assign(1, -1 - static_cast<int32_t>(r.entry));
    n = static_cast<uint32_t>(r.rows.size());
    drafts = blind ? 0 : std::exchange(r.drafts, 0);
    const std::span<const int32_t> guesses = r.guesses->ids();
    r.rows.insert(r.rows.end(), guesses.begin(), guesses.begin() + drafts);
  }
  if (n == 0 || room.rows + n > model_.chunk()) return false;
  if (Status ready = prompt ? r.session.prepare(n) : prepare_rows(r, blind, drafts); !ready.ok()) {
    if (blind) return false;  // the token in flight may end it in another way
    if (options_.wait_for_memory && ready.code() == Code::out_of_device_memory) {
      if (r.due == 0) starved_.push_back(r.id);
    } else {
      end(r, StopReason::failed, std::move(ready));
    }
    return false;
  }
  StepSequence s = r.session.sequence();
  if (prompt) {
    s.tokens = std::span(r.request.prompt).subspan(r.fed, n);
    r.fed += n;
    room.prompt_rows -= n;
  } else {
    s.tokens = r.rows;
    s.pending = drafts > 0 && model_.pending_rows() > 0;
  }
  FlightPart part{&r, s.tokens, s.position, flight.rows, n + drafts, drafts, blind, !r.reads_prompt()};
  part.path = drafts == 0 || draws_each_row(r) ? r.outcome.path.path : SamplingPath::logits;
  s.logit_rows = part.draws ? 1 + drafts : 0;
  room.rows += part.tokens;
  flight.rows += part.tokens;
  flight.reads_prompt |= prompt;
  flight.parts.push_back(part);
  sequences_.push_back(s);
  return true;
}

Status Batch::plan_step(Flight& flight) {
  sequences_.clear();
  order_prompts();
  StepRoom room = room_for_decoding();
  SWY_TRY(draft(room));
  for (const auto& r : running_) {
    if (!r->reads_prompt()) add_to_step(*r, flight, room);
  }
  room.prompt_rows = room.rows == 0 ? model_.chunk() : options_.prompt_rows;
  for (Running* r : order_) {
    if (room.prompt_rows > 0) add_to_step(*r, flight, room);
  }
  choose_draws(flight);
  return {};
}

// Every other step begins with the prompt of which the least was read, so that a short one need not wait until a long
// one has been read; the steps between with the oldest, so that a long one is read in time whatever else comes.
void Batch::order_prompts() {
  order_.clear();
  for (const auto& r : running_) {
    if (r->reads_prompt()) order_.push_back(r.get());
  }
  if (order_.size() < 2) return;
  const bool oldest = steps_ % 2 == 0;
  std::sort(order_.begin(), order_.end(), [&](const Running* a, const Running* b) {
    if (a->request.priority != b->request.priority) return a->request.priority > b->request.priority;
    if (!oldest && a->fed != b->fed) return a->fed < b->fed;
    return a->id < b->id;
  });
}

// What the head makes, and for which rows.
void Batch::choose_draws(Flight& flight) {
  // The sampler of the device would sample every sampled row, so rows with candidates and fused rows are in different
  // steps.
  const auto draws_on = [&](SamplingPath path) {
    return std::any_of(flight.parts.begin(), flight.parts.end(),
                       [&](const FlightPart& p) { return p.draws && p.path == path; });
  };
  const bool fused = draws_on(SamplingPath::fused);
  for (size_t i = 0; i < flight.parts.size(); ++i) {
    FlightPart& p = flight.parts[i];
    if (!p.draws) continue;
    Running& r = *p.request;
    if (fused && p.path == SamplingPath::candidates) p.path = SamplingPath::logits;
    p.logit_row = flight.logit_rows;
    flight.logit_rows += 1 + p.drafts;
    ++r.due;
    if (p.drafts > 0) r.counts_there = false;  // the device counts no draws of a step with drafts
    flight.wants |= want_of(p.path, r.sampler.top_logprobs() > 0);
    if (p.path == SamplingPath::logits) continue;
    p.sample_row = flight.sample_rows;
    flight.sample_rows += 1 + p.drafts;
    r.sampled.assign(1 + p.drafts, {});
    sequences_[i].samples = r.sampled;
  }
}

// The parameters that the device needs for the rows that it samples. Those of drafts have no mask and no counts
// (draws_each_row).
Status Batch::prepare_sample(Running& r, const StepSequence& s) {
  const auto behind = static_cast<uint32_t>(r.sampled.size() - 1);
  for (uint32_t i = 0; i <= behind; ++i) {
    SampleRow& row = r.sampled[i];
    row.sampler = &r.sampler;
    row.position = s.position + s.tokens.size() - behind + i;
    row.token_entry = i == 0 ? r.entry : model_.runner().draw_entries() + next_draw_++;
    row.mask = r.mask.empty() ? nullptr : r.mask.data();
  }
  if (r.sampler.counts().empty()) return {};
  SampleRow& row = r.sampled[0];
  const bool fused = r.outcome.path.path == SamplingPath::fused;
  row.counts_read_slot = fused && r.counts_there ? s.read_slot : s.write_slot;
  if (fused) row.counts_write_slot = s.write_slot;
  if (fused && r.counts_there) return {};
  for (const StatePool::Unit& u : model_.states().units()) {
    if (!u.counts || u.memory == nullptr) continue;
    const swy_binding at = u.at(s.write_slot);
    PluginError e;
    const auto copy = [&](swy_error* x) {
      return u.device->api->state_import(u.device->handle, &u.state->desc, StatePool::kPageSize, &at,
                                         r.sampler.counts().data(), u.canonical_bytes, x);
    };
    SWY_TRY(e.status(call_plugin(*u.device, "state_import", e.get(), copy), u.device->name,
                     "writing the counts of the penalties"));
  }
  r.counts_there = true;
  return {};
}

Status Batch::fill_masks(Flight& flight) {
  for (const FlightPart& p : flight.parts) {
    if (p.draws && p.request != nullptr && p.request->request.mask) fill_masks(*p.request, p);
  }
  return {};
}

Status Batch::submit(Flight& flight) {
  next_draw_ = 0;
  for (size_t i = 0; i < flight.parts.size(); ++i) {
    const bool none = sequences_[i].samples.empty();
    const Stretch stretch(none ? nullptr : model_.runner().observer(), "prepare sampler");
    if (!none) SWY_TRY(prepare_sample(*flight.parts[i].request, sequences_[i]));
  }
  for (size_t i = 0; i < flight.parts.size(); ++i) {
    if (sequences_[i].pending) flight.parts[i].request->session.pend();
  }
  const bool hidden = std::any_of(flight.parts.begin(), flight.parts.end(),
                                  [](const FlightPart& p) { return p.request->wants_hidden(); });
  hidden_there_ = false;
  if (hidden && flight.rows <= kHiddenAtOnce) {
    SWY_LET(hidden_there_, model_.read_hidden_with_next(flight.rows));
  }
  SWY_TRY(model_.runner().submit(sequences_, flight.wants, [&] { return fill_masks(flight); }));
  flights_.push_back(&flight);  // to be collected, whatever fails from here on
  std::erase(idle_, &flight);
  ++steps_;
  if (guesses_ > 0 && flight.parts.size() == 1 && model_.runner().runs_ahead()) SWY_TRY(read_ahead(flight.parts[0]));
  for (const FlightPart& p : flight.parts) {
    if (p.blind || p.drafts > 0 || p.request == nullptr) continue;
    p.request->session.commit();
    if (!p.request->wants_hidden()) reached_cut(*p.request);
  }
  return {};
}

void Batch::reached_cut(Running& r) {
  const std::vector<uint32_t>& cuts = r.request.cuts;
  while (r.next_cut < cuts.size() && cuts[r.next_cut] < r.session.position()) ++r.next_cut;
  if (r.next_cut == cuts.size() || cuts[r.next_cut] != r.session.position()) return;
  ++r.next_cut;
  if (r.request.on_cut) r.request.on_cut(r.session.position());
}

Result<Draw> Batch::draw(Running& r, const DrawRow& row, const StepOutput& out) {
  const FlightPart& p = row.part;
  const uint32_t* mask = r.mask.empty() ? nullptr : r.mask.data() + row.index * mask_words();
  const uint32_t sampled = p.sample_row + row.index;
  if (p.path == SamplingPath::fused) {
    r.outcome.read_bytes += sizeof(swy_sample_result) + out.top_count * 8;
    const size_t top = size_t{sampled} * out.top_count;
    return r.sampler.accept(out.tokens[sampled], out.top_ids.subspan(top, out.top_count),
                            out.top_logprobs.subspan(top, out.top_count));
  }
  if (p.path == SamplingPath::candidates) {
    const size_t at = size_t{sampled} * out.candidate_count;
    const Candidates candidates{out.candidate_ids.subspan(at, out.candidate_count),
                                out.candidate_logits.subspan(at, out.candidate_count), out.candidate_results[sampled]};
    r.outcome.read_bytes += sizeof(swy_candidates_result) + out.candidate_count * 8;
    SWY_LET(const std::optional<Draw> drawn, r.sampler.finish(candidates, row.position, mask));
    if (drawn) return *drawn;
    ++r.outcome.undecided;
  }
  SWY_LET(const auto logits, model_.runner().logits(p.logit_row + row.index, 1));
  r.outcome.read_bytes += logits.size_bytes();
  return r.sampler.draw(logits, row.position, mask);
}

// A token is known: the request takes it. Returns why it ends, if it does.
StopReason Batch::drew(Running& r, const Draw& d, uint32_t position) {
  if (r.first_ns == 0) {
    r.first_ns = Os::real().now_ns();
    r.outcome.prompt_ns = r.first_ns - r.begin_ns;
  }
  ++draws_, ++r.drew;
  r.sampler.saw_output(d.token);
  r.outcome.ids.push_back(d.token);
  for (const auto& drafter : r.request.drafters) drafter->saw({&r.outcome.ids.back(), 1});
  const TokenEvent event{d.token, position, d.stopped, d.logprob, d.top_ids, d.top_logprobs};
  const bool goes_on = !r.request.on_token || r.request.on_token(event);
  if (d.stopped) return StopReason::end;
  if (!goes_on) return StopReason::callback;
  if (r.outcome.ids.size() >= r.request.max_tokens) return StopReason::length;
  return position >= model_.context() ? StopReason::context : StopReason::none;
}

Status Batch::finish_step() {
  Flight& flight = *flights_.front();
  flights_.erase(flights_.begin());
  idle_.push_back(&flight);
  SWY_TRY(learn_guesses(flight));
  SWY_LET(const StepOutput out, model_.runner().collect());
  SWY_TRY(read_hidden(flight));
  for (const FlightPart& p : flight.parts) {
    if (p.request == nullptr || p.request->outcome.stopped != StopReason::none) continue;
    if (p.drafts == 0) {
      Running& r = *p.request;
      if (Status given = give_hidden(r, p, p.tokens); !given.ok()) {
        end(r, StopReason::failed, std::move(given));
        continue;
      }
      if (r.wants_hidden()) reached_cut(r);
    }
    if (p.draws) finish_part(p, out);
  }
  return {};
}

Result<bool> Batch::step() {
  StepObserver* const observer = model_.runner().observer();
  const Stretch whole(observer, "step");
  const auto begin = [&]() -> Status {
    Flight& flight = *idle_.back();
    {
      const Stretch stretch(observer, "prepare");
      flight.clear();
      SWY_TRY(plan_step(flight));
    }
    if (flight.parts.empty()) return learn_guesses(flight);  // which no step verifies: waits for them
    return submit(flight);
  };
  if (model_.runner().in_flight() > flights_.size()) {
    return error(Code::usage, "another batch of this model is running a step; finish its requests first");
  }
  starved_.clear();
  const uint64_t begin_ns = Os::real().now_ns(), drawn = draws_;
  const uint64_t lists = model_.runner().recorded();
  if (flights_.empty()) {
    if (Status s = begin(); !s.ok()) return fail_all(std::move(s));
  }
  if (!flights_.empty() && may_run_ahead()) {
    if (Status s = begin(); !s.ok()) return fail_all(std::move(s));
  }
  if (!flights_.empty()) {
    const Flight& flight = *flights_.front();
    if (Status s = finish_step(); !s.ok()) return fail_all(std::move(s));
    measure(flight, begin_ns, draws_ - drawn, lists != model_.runner().recorded());
  }
  sweep();
  return !running_.empty() || !flights_.empty();
}

}  // namespace switchyard
