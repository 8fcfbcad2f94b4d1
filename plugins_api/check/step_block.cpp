// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/step_block.h"

#include <algorithm>

#include "switchyard/extensions_ahead.h"

namespace switchyard::check {
namespace {

class Block {
 public:
  explicit Block(uint32_t newer) : bytes_(align(sizeof(swy_step) + newer), std::byte{0xab}) {}
  template <class T>
  uint32_t add(const std::vector<T>& array) {
    if (array.empty()) return 0;
    const auto at = static_cast<uint32_t>(bytes_.size());
    bytes_.resize(align(at + array.size() * sizeof(T)));
    std::memcpy(bytes_.data() + at, array.data(), array.size() * sizeof(T));
    return at;
  }
  std::vector<std::byte> finish(swy_step s) {
    s.total_bytes = static_cast<uint32_t>(bytes_.size());
    std::memcpy(bytes_.data(), &s, sizeof s);
    return std::move(bytes_);
  }

 private:
  static uint64_t align(uint64_t n) { return (n + 15) / 16 * 16; }
  std::vector<std::byte> bytes_;
};

void add_sequences(const Step& step, swy_step& s, Block& block) {
  std::vector<uint32_t> position, owner, start{0}, active, read, write, table, kept;
  bool any = false;  // pending rows
  for (const Sequence& q : step.seqs) {
    s.block_table_stride = std::max(s.block_table_stride, static_cast<uint32_t>(q.pages.size()));
  }
  for (uint32_t i = 0; i < step.seqs.size(); ++i) {
    const Sequence& q = step.seqs[i];
    for (uint32_t r = 0; r < q.rows; ++r) {
      position.push_back(q.position + r);
      owner.push_back(i);
    }
    start.push_back(static_cast<uint32_t>(position.size()));
    active.push_back((q.active ? 1 : 0) | (q.drafts.empty() ? 0 : SWY_SEQ_MAY_STAND));
    read.push_back(q.read_slot);
    write.push_back(q.write_slot);
    kept.push_back(q.kept | (q.pending ? SWY_KEPT_PENDING : 0));
    any = any || kept.back() != 0;
    table.insert(table.end(), q.pages.begin(), q.pages.end());
    table.resize(uint64_t{i + 1} * s.block_table_stride, UINT32_MAX);  // nothing may follow these
    if (q.active) s.max_context = std::max(s.max_context, q.position + q.rows);
  }
  std::vector<int32_t> tokens = step.tokens;
  for (const Sequence& q : step.seqs) tokens.insert(tokens.end(), q.drafts.begin(), q.drafts.end());
  s.row_token_at = block.add(tokens);
  s.row_position_at = block.add(position);
  s.row_seq_at = block.add(owner);
  s.row_start_at = block.add(start);
  s.seq_active_at = block.add(active);
  s.seq_read_slot_at = block.add(read);
  s.seq_write_slot_at = block.add(write);
  s.block_table_at = block.add(table);
  if (any) s.seq_kept_at = block.add(kept);
}

}  // namespace

std::vector<std::byte> step_block(const Step& step, const swy_bucket& bucket, uint64_t number, uint32_t newer) {
  swy_step s{};
  s.struct_size = static_cast<uint32_t>(sizeof s) + newer;
  s.number = number;
  s.rows = step.rows();
  s.seqs = static_cast<uint32_t>(step.seqs.size());
  s.logit_rows = static_cast<uint32_t>(step.logit_rows.size());
  s.sample_rows = static_cast<uint32_t>(step.draws.size());
  s.page_size = bucket.page_size;
  Block block(newer);
  add_sequences(step, s, block);
  s.logit_row_at = block.add(step.logit_rows);
  std::vector<swy_sample_slot> slots;
  std::vector<std::byte> params;  // with poison after each that is longer
  for (const Draw& d : step.draws) {
    swy_sample_slot slot{};
    slot.logit_row = d.logit_row;
    slot.token_entry = d.token_entry;
    slot.position = d.position;
    slot.mask_at = block.add(d.mask);
    slot.bias_at = block.add(d.biases);
    slot.bias_count = static_cast<uint32_t>(d.biases.size());
    slot.stop_at = block.add(d.stops);
    slot.stop_count = static_cast<uint32_t>(d.stops.size());
    slot.counts_read_slot = d.counts_read;
    slot.counts_write_slot = d.counts_write;
    slots.push_back(slot);
    const auto* p = reinterpret_cast<const std::byte*>(&d.params);
    params.insert(params.end(), p, p + sizeof d.params);
    params.resize(params.size() + newer, std::byte{0xab});
  }
  s.sample_at = block.add(slots);
  s.sample_params_at = block.add(params);
  s.sample_params_size = static_cast<uint32_t>(sizeof(swy_sample_params)) + newer;
  return block.finish(s);
}

uint64_t step_block_bytes(const Case& c, uint32_t newer) {
  uint64_t most = 0;
  for (const Step& s : c.steps) most = std::max<uint64_t>(most, step_block(s, c.bucket, 0, newer).size());
  return most;
}

}  // namespace switchyard::check
