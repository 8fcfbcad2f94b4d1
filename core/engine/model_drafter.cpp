// SPDX-License-Identifier: Apache-2.0
#include "core/engine/model_drafter.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace switchyard {
namespace {

constexpr uint32_t kFew = 32;       // so many unread tokens are read at once, and then it guesses
constexpr uint32_t kReads = 256;    // of longer texts, before a step
constexpr double kExpected = 0.75;  // acceptance

size_t common_beginning(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

}  // namespace

class ModelDrafter final : public Drafter {
 public:
  explicit ModelDrafter(DraftModel& shared) : shared_(shared) {}
  // The session stays with what it has seen: another sequence may begin in the same way.
  ~ModelDrafter() override {
    if (place_ != nullptr) shared_.idle_.push_back(std::move(place_));
  }
  void saw(std::span<const int32_t> ids) override {
    text_.insert(text_.end(), ids.begin(), ids.end());
    if (!shared_.model_->check_tokens(ids).ok()) unknown_ = true;
  }
  bool may_propose_after(uint32_t more) const override {
    return !unknown_ && text_.size() + more < shared_.model_->context();
  }
  std::string_view name() const override { return "model"; }
  double expected_acceptance() const override { return kExpected; }
  bool computes() const override { return true; }
  uint64_t reading_ns() const override { return reading_ns_; }
  bool can_propose() const override { return may_propose_after(0); }
  void will_propose(uint32_t most, Guesses& guesses) override { shared_.tasks_.push_back({this, most, &guesses}); }
  Status propose(uint32_t, Guesses&) override {
    reading_ns_ = shared_.tasks_.empty() ? 0 : shared_.compute();
    return std::exchange(status_, {});
  }

 private:
  friend class DraftModel;
  DraftModel& shared_;
  std::vector<int32_t> text_;  // of the sequence
  std::unique_ptr<DraftModel::Place> place_;
  Status status_;  // of what was computed last
  uint64_t reading_ns_ = 0;
  bool unknown_ = false;  // the text has tokens that the model has not
};

DraftModel::DraftModel(std::unique_ptr<Model> model, uint32_t vocab) : model_(std::move(model)), vocab_(vocab) {
  if (model_->vocab() < vocab_) padded_.resize(vocab_, -std::numeric_limits<float>::infinity());
}

DraftModel::~DraftModel() { idle_.clear(); }  // before the model

std::shared_ptr<Drafter> DraftModel::drafter() { return std::make_shared<ModelDrafter>(*this); }

void DraftModel::Place::forget_after(size_t tokens) {
  session->rewind(static_cast<uint32_t>(tokens));
  seen.resize(session->position());
  certain = std::min(certain, seen.size());
}

// The session of an ended sequence that began in the same way, a new one, or the one that was left first. NULL: all are
// in use.
Result<std::unique_ptr<DraftModel::Place>> DraftModel::place_for(std::span<const int32_t> text) {
  auto best = idle_.end();
  size_t most = 0;
  for (auto it = idle_.begin(); it != idle_.end(); ++it) {
    const size_t common = common_beginning((*it)->seen, text);
    if (common > most && common >= (*it)->seen.size() / 2) best = it, most = common;
  }
  if (best == idle_.end() && model_->states().sessions() < model_->max_sessions()) {
    auto place = std::make_unique<Place>();
    SWY_LET(place->session, model_->session());
    return place;
  }
  if (best == idle_.end()) best = idle_.begin();
  if (best == idle_.end()) return std::unique_ptr<Place>();
  std::unique_ptr<Place> place = std::move(*best);
  idle_.erase(best);
  place->certain = most;
  place->forget_after(most);
  return place;
}

// Returns the share of the rows that draw nothing in the time of the first step. A device's error leaves sessions of
// which it is not known how far they have come.
uint64_t DraftModel::compute() {
  const uint64_t begin = Os::real().now_ns();
  Status done = read();
  const uint64_t read_ns = Os::real().now_ns() - begin;
  if (done.ok()) done = draw_further();
  for (Task& t : tasks_) {
    t.drafter->status_ = done;
    if (!done.ok() && t.drafter->place_ != nullptr) {
      t.drafter->place_->session->reset();
      t.drafter->place_->forget_after(0);
    }
  }
  tasks_.clear();
  in_step_.clear();  // of a step that was not run
  sequences_.clear();
  return read_rows_ == 0 ? 0 : read_ns * idle_rows_ / read_rows_;
}

// One step with the unread tokens of every sequence, as far as its size allows. Sequences that have read all draw a
// guess.
Status DraftModel::read() {
  uint32_t room = model_->chunk(), reads = kReads;
  read_rows_ = idle_rows_ = 0;
  for (Task& t : tasks_) {
    ModelDrafter& d = *t.drafter;
    const std::vector<int32_t>& text = d.text_;
    if (d.unknown_ || text.empty() || text.size() >= model_->context()) continue;
    t.most = std::min<uint32_t>(t.most, model_->context() - static_cast<uint32_t>(text.size()));
    if (d.place_ == nullptr) {
      SWY_LET(d.place_, place_for(text));
    }
    if (d.place_ == nullptr) continue;
    Place& p = *d.place_;
    p.certain += common_beginning(std::span(p.seen).subspan(p.certain), std::span(text).subspan(p.certain));
    p.forget_after(std::min(p.certain, text.size() - 1));
    const auto unread = static_cast<uint32_t>(text.size() - p.seen.size());
    const bool few = unread <= kFew;
    const uint32_t n = model_->part(p.session->position(), unread, few ? room : std::min(reads, room));
    if (n == 0 || (few && n < unread)) continue;
    if (!few) reads -= n;
    room -= n;
    t.draws = n == unread;
    SWY_TRY(add_rows(t, std::span(text).subspan(p.seen.size(), n)));
    p.certain += n;
    read_rows_ += n;
    if (!t.draws) idle_rows_ += n;
  }
  return run();
}

Status DraftModel::draw_further() {
  for (;;) {
    for (Task& t : tasks_) {
      t.draws = t.draws && t.guesses->ids().size() < t.most;
      if (t.draws) SWY_TRY(add_rows(t, std::span(t.guesses->ids()).last(1)));
    }
    if (in_step_.empty()) return {};
    SWY_TRY(run());
  }
}

Status DraftModel::add_rows(Task& t, std::span<const int32_t> ids) {
  Place& p = *t.drafter->place_;
  // What follows are guesses, which may have to be forgotten.
  if (p.certain == p.seen.size() && !t.guesses->ids().empty()) p.session->mark();
  SWY_TRY(p.session->prepare(static_cast<uint32_t>(ids.size())));
  StepSequence s = p.session->sequence();
  s.tokens = ids;
  s.logit_rows = t.draws ? 1 : 0;
  sequences_.push_back(s);
  in_step_.push_back(&t);
  return {};
}

Status DraftModel::run() {
  if (in_step_.empty()) return {};
  SWY_LET(const auto logits, model_->runner().run(sequences_));
  size_t row = 0;
  for (size_t i = 0; i < in_step_.size(); ++i) {
    Task& t = *in_step_[i];
    Place& p = *t.drafter->place_;
    p.session->commit();
    p.seen.insert(p.seen.end(), sequences_[i].tokens.begin(), sequences_[i].tokens.end());
    if (!t.draws) continue;
    std::span<const float> own = logits.subspan(row++ * model_->vocab(), model_->vocab());
    if (!padded_.empty()) {
      std::copy(own.begin(), own.end(), padded_.begin());
      own = padded_;
    }
    t.draws = t.guesses->draw(own.first(vocab_)).has_value();
  }
  sequences_.clear();
  in_step_.clear();
  return {};
}

}  // namespace switchyard
