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

MtpLayer::MtpLayer(const Program& program, Planner planner)
    : planner_(std::move(planner)), shortlist_(program.mtp_shortlist) {
  if (!shortlist_.empty()) all_logits_.resize(vocab_of(program), -std::numeric_limits<float>::infinity());
  const Graph& graph = planner_.graph();
  row_value_ = graph.results[1];
  hidden_ = static_cast<uint32_t>(graph.values[graph.inputs[0]].width);
}

Status MtpLayer::make_runner(StepRunner::Setup setup, const StepCounts& largest) {
  setup.planner = &planner_;
  setup.tokens = static_cast<uint32_t>(all_logits_.size());
  setup.head = head_of_logits(planner_.graph());
  max_rows_ = setup.max_rows;
  SWY_LET(runner_, StepRunner::create(setup));
  return runner_->reserve(largest, false);
}

Result<std::span<const float>> MtpLayer::run(const Rows& rows, bool logits) {
  StepSequence s;
  s.tokens = rows.next;
  s.position = rows.position;
  s.pages = rows.pages;
  s.logit_rows = logits ? 1 : 0;
  last_rows_ = static_cast<uint32_t>(rows.next.size());
  SWY_LET(const std::span<const float> made, runner_->run({&s, 1}, rows.hidden));
  if (!logits || shortlist_.empty()) return made;
  const float* from = made.data();
  for (const IdRanges::Range& r : shortlist_.ranges()) {
    std::copy_n(from, r.count, all_logits_.data() + r.first);
    from += r.count;
  }
  return std::span<const float>(all_logits_);
}

Status MtpLayer::read_row(std::span<float> to) const {
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
