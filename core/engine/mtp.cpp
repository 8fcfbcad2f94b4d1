// SPDX-License-Identifier: Apache-2.0
#include "core/engine/mtp.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace switchyard {

namespace {

// The width of the rows that the main function makes logits of; 0: it does not.
uint64_t hidden_width(const Function& main) {
  for (const Op& op : main.ops) {
    if (op.inputs.size() != 1 || op.outputs.empty() || op.outputs[0] != main.outputs[0]) continue;
    return main.values[op.inputs[0]].width;
  }
  return 0;
}

uint32_t vocab_of(const Program& program) {
  const Function& main = program.main();
  return static_cast<uint32_t>(main.values[main.outputs[0]].width);
}

// Whether a function has the layer's input and outputs, and paged states of its own alone.
bool fits(const Program& program, const Function& f) {
  if (f.inputs.size() != 1 || f.outputs.size() != 2 || !f.states.empty() || !f.weights.empty()) return false;
  const Value &row = f.values[f.inputs[0]], &logits = f.values[f.outputs[0]], &own = f.values[f.outputs[1]];
  const auto is = [](const Value& v, swy_rows rows, uint64_t width) {
    return v.dtype == SWY_F32 && v.rows == rows && v.width == width;
  };
  const Function& main = program.main();
  const IdRanges& shortlist = program.mtp_shortlist;
  const uint64_t width = hidden_width(main), vocab = shortlist.empty() ? vocab_of(program) : shortlist.count();
  if (width == 0 || !is(row, SWY_ROWS_STEP, width) || !is(own, SWY_ROWS_STEP, width)) return false;
  if (!is(logits, SWY_ROWS_LOGITS, vocab)) return false;
  std::vector<bool> of_main(program.states.size());
  for (const Op& op : main.ops) {
    for (const uint32_t s : op.states) of_main[s] = true;
  }
  const auto has = [](const auto& list, uint32_t value) {
    return std::find(list.begin(), list.end(), value) != list.end();
  };
  const auto reads = [&](const Op& op) { return has(op.inputs, f.inputs[0]); };
  const auto makes = [&](const Op& op) { return has(op.outputs, f.outputs[1]); };
  if (std::none_of(f.ops.begin(), f.ops.end(), reads) || std::none_of(f.ops.begin(), f.ops.end(), makes)) return false;
  // In snapshots its states follow those of the main function.
  const auto last_of_main = std::find(of_main.rbegin(), of_main.rend(), true);
  const auto first = static_cast<uint32_t>(of_main.rend() - last_of_main);
  return std::all_of(f.ops.begin(), f.ops.end(), [&](const Op& op) {
    return std::all_of(op.states.begin(), op.states.end(),
                       [&](uint32_t s) { return program.states[s].kind == SWY_STATE_PAGED && s >= first; });
  });
}

}  // namespace

const Function* MtpLayer::of(const Program& program) {
  for (size_t i = 1; i < program.functions.size(); ++i) {
    const Function& f = program.functions[i];
    if (f.name == kMtpFunction) return fits(program, f) ? &f : nullptr;
  }
  return nullptr;
}

bool MtpLayer::can_draw(const Program& program) {
  const IdRanges& list = program.mtp_shortlist;
  return list.empty() || (list.ranges()[0].first == 0 && list.ranges()[0].count >= list.count() - list.count() / 16);
}

MtpLayer::Made MtpLayer::add_draws(Graph& g, const DeviceSampling& device) {
  const uint32_t row = g.results.at(1);
  DeviceSampling alone = device;  // what a guess is drawn with
  alone.candidates = false;
  alone.steps &= ~static_cast<uint32_t>(SWY_SAMPLES_PENALTIES | SWY_SAMPLES_LOGPROBS);
  Made made{.head = {}, .last_row = kNoValue, .row = row};
  g.values.push_back({"mtp.last_row", SWY_F32, SWY_ROWS_LOGITS, g.values[row].width});
  made.last_row = static_cast<uint32_t>(g.values.size() - 1);
  g.results[1] = made.last_row;
  made.head = add_head(g, alone);
  g.results.push_back(row);
  GraphOp& gather = g.ops.emplace_back();  // a part of the head, since it knows which row is the last one
  gather.name = "mtp.last_row";
  gather.id = SWY_OP_GATHER_ROWS;
  gather.inputs = {row}, gather.outputs = {made.last_row};
  return made;
}

MtpLayer::MtpLayer(const Program& program, Planner planner, Made made)
    : planner_(std::move(planner)), made_(std::move(made)), shortlist_(program.mtp_shortlist) {
  if (!shortlist_.empty()) all_logits_.resize(vocab_of(program), -std::numeric_limits<float>::infinity());
  made_.head.beside.swap(made_.head.always);  // rows of a text that are only read have none
  const Graph& graph = planner_.graph();
  row_value_ = draws() ? made_.row : graph.results[1];
  hidden_ = static_cast<uint32_t>(graph.values[graph.inputs[0]].width);
}

Status MtpLayer::make_rows(StepRunner::Setup& setup, uint32_t hidden) {
  if (!draws()) return {};
  const uint64_t bytes = rows_bytes(setup.max_rows);
  SWY_LET(rows_, DeviceBuffer::allocate(planner_.devices()[0], SWY_MEMORY_DEVICE, bytes, "the layer's rows"));
  setup.bound = {{hidden, 0, &rows_, bytes}};
  return {};
}

Status MtpLayer::prepare(std::span<const StepCounts> steps, bool drawn, const StepRunner::Progress& progress) {
  if (drawn && draws()) {
    SWY_TRY(runner_->prepare(steps, kWantTokens, progress));
    std::vector<StepCounts> ahead(steps.begin(), steps.end()), one = ahead;
    std::erase_if(ahead, [](const StepCounts& s) { return s.rows > kMostAhead; });
    std::erase_if(one, [](const StepCounts& s) { return s.rows > 1; });
    SWY_TRY(runner_->prepare(ahead, kWantTokens, progress, HeadLists::apart));
    for (uint32_t block = 1; block < StepRunner::kMostBlocks; ++block) {
      SWY_TRY(runner_->prepare(one, kWantTokens, progress, HeadLists::joined, block));
    }
    SWY_TRY(runner_->prepare_series(ahead, true));  // a step's guesses: the first is read ahead, or has one row
    SWY_TRY(runner_->prepare_series(one, false));
  }
  SWY_TRY(runner_->prepare(steps, kWantLogits, progress));  // some requests have their guesses drawn by the host
  return runner_->prepare(steps, 0, progress, HeadLists::apart);
}

Status MtpLayer::make_runner(StepRunner::Setup setup, const StepCounts& largest) {
  setup.planner = &planner_;
  setup.tokens = static_cast<uint32_t>(all_logits_.size());
  setup.head = made_.head;
  max_rows_ = setup.max_rows;
  setup.draws = 0;
  if (draws()) {
    const uint64_t row = uint64_t{hidden_} * sizeof(float);
    setup.bound = {{planner_.graph().inputs[0], 0, &rows_, rows_.bytes()}, {made_.last_row, 0, &rows_, row}};
    setup.last_row = made_.last_row, setup.row = row_value_;
    setup.in_flight = kMostGuesses + 2;  // and a body
    setup.blocks = StepRunner::kMostBlocks;
  }
  SWY_LET(runner_, StepRunner::create(setup));
  return runner_->reserve(largest, false);
}

Result<std::span<const float>> MtpLayer::run(const Rows& rows, bool logits) {
  StepSequence s;
  s.tokens = rows.next;
  s.position = rows.position;
  s.pages = rows.pages;
  s.logit_rows = logits ? 1 : 0;
  ahead_ = 0;
  last_rows_ = draws() ? 1 : static_cast<uint32_t>(rows.next.size());
  if (draws()) SWY_TRY(rows_.write(0, std::as_bytes(rows.hidden)));
  SWY_LET(const std::span<const float> made, runner_->run({&s, 1}, draws() ? std::span<const float>() : rows.hidden));
  if (!logits || shortlist_.empty()) return made;
  const float* from = made.data();
  for (const IdRanges::Range& r : shortlist_.ranges()) {
    std::copy_n(from, r.count, all_logits_.data() + r.first);
    from += r.count;
  }
  return std::span<const float>(all_logits_);
}

Status MtpLayer::guess(const Rows& rows, std::span<const SampleRow> draws) {
  std::vector<float>& input = inputs_[next_input_++ % inputs_.size()];
  input.assign(rows.hidden.begin(), rows.hidden.end());
  SWY_TRY(rows_.write_later(0, std::as_bytes(std::span(input))));
  return submit_guesses(rows, draws, false);
}

StepSequence MtpLayer::sequence_of(const Rows& rows) {
  StepSequence s;
  s.tokens = rows.next;
  s.position = rows.position;
  s.pages = rows.pages;
  s.drafts = rows.drafts;
  s.logit_rows = 1;
  return s;
}

// Each guess after the first reads the one before it. `begun`: of the first only the head is left.
Status MtpLayer::submit_guesses(const Rows& first, std::span<const SampleRow> draws, bool begun) {
  ahead_ = 0;
  if (draws.size() > kMostGuesses) return error(Code::internal, "{} guesses at once", draws.size());
  std::array<StepSequence, kMostGuesses> all;
  std::array<int32_t, kMostGuesses> before{};
  for (size_t i = 0; i < draws.size(); ++i) {
    StepSequence& s = all[i] = i == 0 ? sequence_of(first) : all[i - 1];
    if (i > 0) {
      before[i] = -1 - static_cast<int32_t>(draws[i - 1].token_entry);
      s.position += static_cast<uint32_t>(s.tokens.size());
      s.tokens = {&before[i], 1};
    }
    s.samples = draws.subspan(i, 1);
  }
  return runner_->submit_unread(std::span(all).first(draws.size()), begun);
}

Result<uint64_t> MtpLayer::read_ahead(const Rows& rows) {
  ahead_ = 0;
  SWY_TRY(runner_->submit_body(sequence_of(rows)));
  return ahead_ = ++tickets_;
}

Status MtpLayer::guess_on(const Rows& standing, std::span<const SampleRow> draws) {
  return submit_guesses(standing, draws, true);
}

Status MtpLayer::read_row(std::span<float> to) const {
  if (draws()) return rows_.read(0, std::as_writable_bytes(to));
  return runner_->read_result(row_value_, std::as_writable_bytes(to), uint64_t{last_rows_ - 1} * to.size_bytes());
}

void MtpTrail::drop(uint32_t rows) {
  read_ += rows;
  hidden_.erase(hidden_.begin(), hidden_.begin() + static_cast<ptrdiff_t>(size_t{rows} * width_));
  next_.erase(next_.begin(), next_.begin() + static_cast<ptrdiff_t>(std::min<size_t>(rows, next_.size())));
}

// The row before has to be there, since another token may come after it.
void MtpTrail::cut(uint32_t position) {
  if (!whole_ || position >= end()) return;
  if (position == 0) {
    *this = {};
  } else if (position <= read_) {
    lose();
  } else {
    hidden_.resize(size_t{position - read_} * width_);
    next_.resize(std::min<size_t>(next_.size(), position - read_ - 1));
    tried_ = -1;
  }
}

void MtpTrail::lose() {
  *this = {};
  whole_ = false;
}

// Whether there is a row, and the row.
std::string MtpTrail::bytes(uint32_t width) const {
  std::string out(bytes_of(width), '\0');
  const uint32_t rows = whole_ && waiting() == 1 ? 1 : 0;
  std::memcpy(out.data(), &rows, sizeof rows);
  if (rows == 1) std::memcpy(out.data() + sizeof rows, hidden_.data(), width * sizeof(float));
  return out;
}

void MtpTrail::restore(uint32_t position, std::string_view bytes, uint32_t width) {
  *this = {};
  uint32_t rows = 0;
  if (!bytes.empty()) std::memcpy(&rows, bytes.data(), sizeof rows);
  if (position == 0) return;
  if (rows != 1) return lose();
  width_ = width;
  read_ = position - 1;
  hidden_.resize(width);
  std::memcpy(hidden_.data(), bytes.data() + sizeof rows, width * sizeof(float));
}

void MtpTrail::saw(uint32_t position, std::span<const int32_t> ids, std::span<const float> rows) {
  if (ids.empty() || !whole_) return;
  width_ = static_cast<uint32_t>(rows.size() / ids.size());
  if (position > end()) return lose();
  const size_t again = std::min<size_t>(end() - position, ids.size());
  ids = ids.subspan(again);
  if (ids.empty()) return;
  if (waiting() > 0 && next_.size() < waiting()) {
    if (tried_ == ids[0]) {
      drop(waiting());
    } else {
      next_.push_back(ids[0]);
    }
  }
  tried_ = -1;
  const auto news = rows.subspan(again * width_);
  hidden_.insert(hidden_.end(), news.begin(), news.end());
  next_.insert(next_.end(), ids.begin() + 1, ids.end());
}

}  // namespace switchyard
