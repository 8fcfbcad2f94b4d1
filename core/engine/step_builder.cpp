#include "core/engine/step_builder.h"

#include <algorithm>
#include <cstring>

namespace switchyard {
namespace {

constexpr uint64_t kAlign = 16;
uint64_t aligned(uint64_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

}  // namespace

uint64_t StepBuilder::block_bytes(uint32_t rows, uint32_t seqs, uint32_t pages_per_seq) {
  return aligned(sizeof(swy_step)) + 4 * aligned(uint64_t{rows} * 4) + 3 * aligned(uint64_t{seqs} * 4) +
         aligned((uint64_t{seqs} + 1) * 4) + aligned(uint64_t{seqs} * pages_per_seq * 4);
}

StepBuilder::StepBuilder(uint32_t rows, uint32_t seqs, uint32_t pages_per_seq, uint32_t page_size)
    : block_(block_bytes(rows, seqs, pages_per_seq)), pages_per_seq_(pages_per_seq), page_size_(page_size) {}

template <class T>
T* StepBuilder::array(uint32_t& at_field, uint64_t count) {
  if (used_ + aligned(count * sizeof(T)) > block_.size()) return nullptr;
  at_field = static_cast<uint32_t>(used_);
  auto* p = reinterpret_cast<T*>(block_.data() + used_);
  used_ += aligned(count * sizeof(T));
  return p;
}

Result<std::span<const std::byte>> StepBuilder::build(std::span<const StepSequence> sequences) {
  auto& step = *reinterpret_cast<swy_step*>(block_.data());
  step = {};
  step.struct_size = sizeof step;
  step.number = ++number_;
  step.seqs = static_cast<uint32_t>(sequences.size());
  step.page_size = page_size_;
  step.block_table_stride = pages_per_seq_;
  for (const StepSequence& s : sequences) {
    step.rows += static_cast<uint32_t>(s.tokens.size());
    step.logit_rows += s.logit_rows;
  }
  used_ = aligned(sizeof step);
  auto* token = array<int32_t>(step.row_token_at, step.rows);
  auto* position = array<uint32_t>(step.row_position_at, step.rows);
  auto* row_seq = array<uint32_t>(step.row_seq_at, step.rows);
  auto* logit_row = array<uint32_t>(step.logit_row_at, step.logit_rows);
  auto* start = array<uint32_t>(step.row_start_at, step.seqs + 1);
  auto* active = array<uint32_t>(step.seq_active_at, step.seqs);
  auto* read_slot = array<uint32_t>(step.seq_read_slot_at, step.seqs);
  auto* write_slot = array<uint32_t>(step.seq_write_slot_at, step.seqs);
  auto* table = array<uint32_t>(step.block_table_at, uint64_t{step.seqs} * pages_per_seq_);
  if (table == nullptr) return error(Code::internal, "a step of {} rows does not fit its block", step.rows);

  uint32_t row = 0, wanted = 0;
  for (uint32_t s = 0; s < step.seqs; ++s) {
    const StepSequence& q = sequences[s];
    const auto n = static_cast<uint32_t>(q.tokens.size());
    start[s] = row;
    active[s] = 1;
    read_slot[s] = q.read_slot;
    write_slot[s] = q.write_slot;
    std::copy(q.pages.begin(), q.pages.end(), table + uint64_t{s} * pages_per_seq_);
    for (uint32_t i = 0; i < n; ++i, ++row) {
      token[row] = q.tokens[i];
      position[row] = q.position + i;
      row_seq[row] = s;
      if (i + q.logit_rows >= n) logit_row[wanted++] = row;
    }
    step.max_context = std::max(step.max_context, q.position + n);
  }
  start[step.seqs] = row;
  step.total_bytes = static_cast<uint32_t>(used_);
  return std::span<const std::byte>(block_.data(), used_);
}

}  // namespace switchyard
